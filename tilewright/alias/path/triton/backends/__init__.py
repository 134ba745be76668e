"""`triton.backends`: what there is to run kernels on."""

from tilewright.alias.drivers import BACKENDS as backends  # noqa: N811 - the name of Triton

from . import compiler, driver

__all__ = ["backends", "compiler", "driver"]
