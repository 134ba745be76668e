"""`triton.backends.driver`: the kinds of drivers."""

from tilewright.alias.drivers import DriverBase, GPUDriver

__all__ = ["DriverBase", "GPUDriver"]
