"""`triton.compiler`: compiling for types that are written down, and what goes wrong in it."""

from tilewright.alias.drivers import max_shared_mem
from tilewright.compiler import ASTSource, compile
from tilewright.compiler import CompiledSource as CompiledKernel
from tilewright.compiler.backend import make_backend
from tilewright.errors import CompileError as CompilationError
from tilewright.runtime.hooks import LazyDict

from . import compiler, errors

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompiledKernel",
    "LazyDict",
    "compile",
    "compiler",
    "errors",
    "make_backend",
    "max_shared_mem",
]
