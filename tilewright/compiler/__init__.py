"""Compiling for types that are written down, for programs that generate kernels.

`compile(ASTSource(...), target, options)` is what `kernel.warmup(...)` does where there are no
arguments yet, and the result can be handed to another process.
"""

from tilewright.compiler.kernel import CompiledSource, compile
from tilewright.compiler.source import ASTSource
from tilewright.target import GPUTarget

__all__ = ["ASTSource", "CompiledSource", "GPUTarget", "compile"]
