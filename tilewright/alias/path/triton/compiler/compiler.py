"""`triton.compiler.compiler`: compiling for types that are written down."""

from tilewright.alias.drivers import max_shared_mem
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
    "max_shared_mem",
    "triton_key",
]
