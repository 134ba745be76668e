"""Reductions over as many warps as a block can have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import ptx_of, small_integers

TARGETS = list(harness.TARGETS)


@tw.jit
def later_if_not_zero(a, b):
    return tl.where(b == 0, a, b)


@tw.jit
def reductions_kernel(x_ptr, out_ptr, last_ptr, where_ptr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr, tl.sum(x, axis=0))
    tl.store(out_ptr + 1, tl.max(x, axis=0))
    tl.store(last_ptr, tl.reduce(x, 0, later_if_not_zero))
    tl.store(where_ptr, tl.argmin(x, axis=0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_warps", [8, 16, 32])
@pytest.mark.parametrize(
    "dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.int64, np.float64]
)
def test_parts_of_many_warps(target, num_warps, dtype):
    x = small_integers(4096, dtype)
    x[x == x.min()] = x.max()
    x[3000:] = 0  # the last that is not zero lies before the last warps' parts
    x[[1234, 2345]] = -5
    values = [x, np.zeros(2, dtype), np.zeros(1, dtype), np.zeros(1, np.int32)]
    harness.check(reductions_kernel, (1,), values, target=target, num_warps=num_warps, SIZE=4096)


@tw.jit
def columns_kernel(x_ptr, sums_ptr, squares_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + i * COLUMNS + j[None, :])
    tl.store(sums_ptr + j, tl.sum(x, axis=0))
    tl.store(squares_ptr + j, tl.sum(x * x, axis=0))


@pytest.mark.parametrize("num_warps", [16, 32])
@pytest.mark.parametrize("shape", [(1024, 2), (512, 8), (64, 32), (33, 128), (1000, 4)])
def test_columns_whose_parts_many_warps_have(shape, num_warps):
    """From no lane to all lanes lie along the columns; some columns end inside a warp's part."""
    rows, columns = shape
    x = small_integers(shape)
    values = [x, *(np.zeros(columns, np.float32) for _ in range(2))]
    harness.check(columns_kernel, (1,), values, num_warps=num_warps, ROWS=rows, COLUMNS=columns)


@tw.jit
def sum_kernel(x_ptr, out_ptr, SIZE: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, SIZE)), axis=0))


@pytest.mark.parametrize(("num_warps", "reads", "shuffles"), [(8, 2, 5), (16, 1, 7), (32, 1, 8)])
def test_lanes_share_the_parts_of_16_warps(num_warps, reads, shuffles):
    """A lane reads 4 words at once; what is left comes from its neighbours."""
    values = [np.zeros(8192, np.float32), np.zeros(1, np.float32)]
    ptx = ptx_of(sum_kernel, values, num_warps=num_warps, SIZE=8192)
    assert ptx.count("ld.shared.v4.b32") == reads
    assert ptx.count("shfl.sync.bfly") == shuffles
