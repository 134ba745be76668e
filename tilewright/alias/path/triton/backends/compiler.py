"""`triton.backends.compiler`: what kernels are compiled for."""

from tilewright.alias.drivers import GPUTarget

__all__ = ["GPUTarget"]
