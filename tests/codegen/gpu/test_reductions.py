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


@tw.jit
def merged(mean, m2, weight, other_mean, other_m2, other_weight):
    total = weight + other_weight
    share = tl.where(total == 0.0, 0.0, other_weight / total)
    delta = other_mean - mean
    return mean + delta * share, m2 + other_m2 + delta * delta * weight * share, total


@tw.jit
def welford_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    mean = m2 = weight = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK)).to(tl.float32)
        if start == 0:
            mean, m2, weight = x, tl.zeros_like(m2), tl.full((BLOCK,), 1.0, tl.float32)
        else:
            weight = weight + 1
            delta = x - mean
            mean = mean + delta / weight
            m2 = m2 + delta * (x - mean)
    mean, m2, weight = tl.reduce((mean, m2, weight), 0, merged)
    tl.store(out_ptr, mean)
    tl.store(out_ptr + 1, m2)
    tl.store(out_ptr + 2, weight)


def test_what_a_loop_carries_together_is_in_one_place():
    """The weights depend on no load: they are where the means are, only parts of warps move."""
    x = small_integers(4096).astype(ml_dtypes.bfloat16)
    values = [x, np.zeros(3, np.float32), 4096]
    options = {"num_warps": 16, "num_stages": 1, "BLOCK": 2048}
    harness.check(welford_kernel, (1,), values, tolerance=1e-5, **options)
    ptx = ptx_of(welford_kernel, values, **options)
    assert ptx.count("st.shared") == 3
    assert "matrix" not in ptx
    # Three values of four warps each, at once; then two steps between lanes.
    assert ptx.count("ld.shared") == ptx.count("ld.shared.v4.b32") == 3
    assert ptx.count("shfl.sync.bfly") == 3 * (5 + 2)
