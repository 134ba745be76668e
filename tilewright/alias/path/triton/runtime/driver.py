"""`triton.runtime.driver`: what kernels run on by default."""

from tilewright.alias.drivers import driver

__all__ = ["driver"]
