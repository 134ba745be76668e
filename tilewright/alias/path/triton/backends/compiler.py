"""`triton.backends.compiler`: what kernels are compiled for."""

from tilewright.compiler import GPUTarget

__all__ = ["GPUTarget"]
