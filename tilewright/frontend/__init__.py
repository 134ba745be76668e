"""From Python source to tile IR, and kernels run as Python: the only package that knows Python syntax."""
