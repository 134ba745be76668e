"""`triton.runtime`: kernels, tuning, and the driver that is in use."""

from tilewright.alias.drivers import driver
from tilewright.errors import TilewrightError as InterpreterError
from tilewright.errors import Unsupported as OutOfResources
from tilewright.runtime.autotune import Autotuner, autotune
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.kernel_interface import KernelInterface
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

from . import autotuner, cache, errors, interpreter, jit

# Imported as a module it is `triton.runtime.driver`; as an attribute the name is the object in it.
from .driver import driver  # noqa: F811 - this line is what makes both true

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "autotune",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "interpreter",
    "jit",
    "reinterpret",
]
