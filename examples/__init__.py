"""Kernels as a user writes them, and a demonstration that runs, checks and times them."""
