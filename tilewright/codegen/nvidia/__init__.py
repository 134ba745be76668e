"""The NVIDIA target: PTX instructions, and the way from a tile function to PTX."""
