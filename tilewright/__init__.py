"""Tilewright: a language of tiles embedded in Python, and the compiler behind it.

Kernels are Python functions decorated with `jit`, written with `tilewright.language`, and launched
on NumPy arrays or PyTorch tensors: `kernel[grid](x, y, n, BLOCK=1024)`. Kernels written for Triton
run as they are.
"""

from typing import TYPE_CHECKING, Any

from tilewright import language, testing, tools
from tilewright.errors import (
    CompileError,
    CompileTimeAssertionFailure,
    InternalError,
    LaunchError,
    TilewrightError,
    Unsupported,
)
from tilewright.frontend.aggregates import aggregate
from tilewright.frontend.builtin import must_use_result
from tilewright.frontend.constexpr_function import constexpr_function
from tilewright.runtime.autotune import Autotuner, autotune, tuning
from tilewright.runtime.config import Config
from tilewright.runtime.default_target import default_target
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.emulated import emulate
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.host_functions import cdiv, next_power_of_2, set_allocator
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.spelling import unknown_name

if TYPE_CHECKING:
    from tilewright.runtime.device_array import DeviceArray
    from tilewright.runtime.pool import get_num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = [
    "Autotuner",
    "CompileError",
    "CompileTimeAssertionFailure",
    "Config",
    "DeviceArray",
    "Heuristics",
    "InternalError",
    "JITFunction",
    "LaunchError",
    "MockTensor",
    "TensorWrapper",
    "TilewrightError",
    "Unsupported",
    "__version__",
    "aggregate",
    "autotune",
    "cdiv",
    "constexpr_function",
    "emulate",
    "get_num_threads",
    "heuristics",
    "jit",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "set_allocator",
    "set_num_threads",
    "testing",
    "tools",
    "tuning",
]

# Names of modules that not every program needs.
_LATER = {
    "DeviceArray": Deferred("tilewright.runtime.device_array"),
    "get_num_threads": Deferred("tilewright.runtime.pool"),
    "set_num_threads": Deferred("tilewright.runtime.pool"),
}

# The language knows no devices, and host code asks it about them.
language.target_info.answer_hosts(default_target)

_SWITCHES = "the switches are environment variables, all of them in `tilewright/env.py`"
_ABSENT = {
    "OutOfResources": "`tilewright.Unsupported` says that a kernel needs what the machine lacks",
    "backends": _SWITCHES,
    "compile": "`kernel.warmup(...)` compiles without launching, and so does "
    "`tilewright.compiler.compile`, for types that are written down",
    "knobs": _SWITCHES,
}


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # where types are checked, a name that is not there is an error

    def __getattr__(name: str) -> Any:
        if name in _LATER:
            return getattr(_LATER[name], name)
        raise unknown_name("tilewright", name, __all__, _ABSENT)
