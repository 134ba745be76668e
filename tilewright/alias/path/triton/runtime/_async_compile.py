"""`triton.runtime._async_compile`: compiling on an executor."""

from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel

__all__ = ["AsyncCompileMode", "FutureKernel"]
