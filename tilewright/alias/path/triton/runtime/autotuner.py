"""`triton.runtime.autotuner`: tuning, and parameters computed at each launch."""

from tilewright.alias.drivers import driver
from tilewright.errors import CompileTimeAssertionFailure
from tilewright.errors import InternalError as PTXASError
from tilewright.errors import LaunchError as AutotunerError
from tilewright.errors import Unsupported as OutOfResources
from tilewright.runtime.autotune import Autotuner, autotune
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.kernel_interface import KernelInterface

__all__ = [
    "Autotuner",
    "AutotunerError",
    "CompileTimeAssertionFailure",
    "Config",
    "Heuristics",
    "JITFunction",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "driver",
    "heuristics",
]
