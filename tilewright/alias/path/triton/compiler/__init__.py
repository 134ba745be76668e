"""`triton.compiler`: compiled kernels, and what goes wrong in making them."""

from tilewright.errors import CompileError as CompilationError
from tilewright.runtime.compiled import CompiledKernel

from . import compiler, errors

__all__ = ["CompilationError", "CompiledKernel", "compiler", "errors"]
