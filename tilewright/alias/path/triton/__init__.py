"""The names of the package `triton`, each the same object as in Tilewright.

Found only where the alias is installed (`tilewright.alias`). Modules with the names of ours are
ours (`triton.language` is `tilewright.language`); those below are lists of what Triton has there.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("tilewright") is None:
    # A child process that found this directory by PYTHONPATH, with another path than its parent.
    sys.path.append(str(Path(__file__).resolve().parents[4]))

import tilewright
from tilewright import language, testing
from tilewright.compiler import compile
from tilewright.errors import CompileError as CompilationError
from tilewright.errors import TilewrightError as InterpreterError
from tilewright.errors import TilewrightError as TritonError
from tilewright.errors import Unsupported as OutOfResources
from tilewright.frontend.aggregates import aggregate
from tilewright.frontend.builtin import must_use_result
from tilewright.frontend.constexpr_function import constexpr_function
from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel
from tilewright.runtime.autotune import Autotuner, autotune
from tilewright.runtime.config import Config
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.host_functions import cdiv, next_power_of_2, set_allocator
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.kernel_interface import KernelInterface
from tilewright.runtime.metadata import TRITON_VERSION
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.torch import connect

from . import backends, compiler, errors, knobs, runtime, tools

# What Python finds here it does not look for in files, where it would find ours a second time.
for _module in (language, testing):
    for _name in [n for n in sys.modules if f"{n}.".startswith(f"{_module.__name__}.")]:
        sys.modules[f"{__name__}{_name.removeprefix('tilewright')}"] = sys.modules[_name]

connect()

__version__ = TRITON_VERSION

__all__ = [
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "Config",
    "FutureKernel",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "__version__",
    "aggregate",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tilewright",
    "tools",
]
