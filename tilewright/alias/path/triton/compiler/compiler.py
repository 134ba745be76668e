"""`triton.compiler.compiler`: compiling for types that are written down."""

from tilewright.compiler import ASTSource, GPUTarget, compile
from tilewright.compiler import CompiledSource as CompiledKernel
from tilewright.compiler.backend import make_backend
from tilewright.runtime.fingerprint import build_fingerprint as triton_key
from tilewright.runtime.hooks import LazyDict

__all__ = [
    "ASTSource",
    "CompiledKernel",
    "GPUTarget",
    "LazyDict",
    "compile",
    "make_backend",
    "triton_key",
]
