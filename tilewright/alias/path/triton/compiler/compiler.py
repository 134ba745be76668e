"""`triton.compiler.compiler`: compiled kernels."""

from tilewright.alias.drivers import GPUTarget
from tilewright.runtime.compiled import CompiledKernel
from tilewright.runtime.fingerprint import build_fingerprint as triton_key

__all__ = ["CompiledKernel", "GPUTarget", "triton_key"]
