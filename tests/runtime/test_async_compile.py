"""Compiling on an executor while the program goes on."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileTimeAssertionFailure, LaunchError
from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel


def make_fill():
    @tw.jit
    def fill(x_ptr, VALUE: tl.constexpr):
        tl.static_assert(VALUE != 13)
        tl.store(x_ptr, VALUE)

    return fill


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_kernels_are_compiled_when_the_mode_ends(kind):
    fill = make_fill()
    with kind(2) as pool, AsyncCompileMode(pool):
        futures = [fill.warmup(tl.float32, VALUE=v, grid=(1,)) for v in (1, 2, 1)]
        assert all(isinstance(future, FutureKernel) for future in futures)
        assert futures[0] is futures[2]
    kernels = [future.result() for future in futures]
    x = np.zeros(1, np.float32)
    assert fill[(1,)](x, VALUE=2) is kernels[1]
    assert x[0] == 2


def test_errors_are_raised_where_the_kernel_is_asked_for():
    fill = make_fill()
    with ThreadPoolExecutor() as pool:
        with AsyncCompileMode(pool, ignore_errors=True):
            future = fill.warmup(tl.float32, VALUE=13, grid=(1,))
        assert future.result(ignore_errors=True) is None
        with pytest.raises(CompileTimeAssertionFailure):
            future.result()
        with pytest.raises(CompileTimeAssertionFailure), AsyncCompileMode(pool):
            fill.warmup(tl.float32, VALUE=13, grid=(1,))
        with AsyncCompileMode(pool), pytest.raises(LaunchError, match="another AsyncCompileMode"):
            AsyncCompileMode(pool).__enter__()
