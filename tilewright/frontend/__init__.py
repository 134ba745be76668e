"""From Python source to tile IR, and kernels run as Python: only here is Python's syntax known."""
