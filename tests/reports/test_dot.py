"""Public reports about matrix products (triton-lang/triton, by number)."""

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.executors import product_tolerance
from tilewright import jit

BFLOAT16 = ml_dtypes.bfloat16


def random(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@jit
def product_and_sum(
    a_ptr, b_ptr, out_ptr, sum_ptr, steps, D: tl.constexpr, BLOCK: tl.constexpr,
    SUM_FIRST: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, D)[None, :]
    total = tl.zeros((D, D), tl.float32)
    sums = tl.zeros((D,), tl.float32)
    for i in range(steps):
        a = tl.load(a_ptr + (i * BLOCK + rows) * D + columns)
        b = tl.load(b_ptr + (i * BLOCK + rows) * D + columns)
        if SUM_FIRST:
            sums += tl.sum(a.to(tl.float32), 0)
        total += tl.dot(tl.trans(a), b)
        if not SUM_FIRST:
            sums += tl.sum(a.to(tl.float32), 0)
    tl.store(out_ptr + tl.arange(0, D)[:, None] * D + columns, total)
    tl.store(sum_ptr + tl.arange(0, D), sums)


def test_6691_6647_neither_order_nor_stages_change_a_result(launch):
    a, b = random((2, 3 * 64, 128), np.float16)
    results = []
    for first in (True, False):
        for stages in (1, 2, 3, 4):
            out, sums = np.zeros((128, 128), np.float32), np.zeros(128, np.float32)
            launch(product_and_sum, (1,), a, b, out, sums, 3, 128, 64, first, num_stages=stages)
            results.append((out, sums))
    for out, sums in results[1:]:
        np.testing.assert_array_equal(out, results[0][0])
        np.testing.assert_array_equal(sums, results[0][1])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(results[0][0], wide.T @ b.astype(np.float64), atol=1e-3)
    np.testing.assert_allclose(results[0][1], wide.sum(0), atol=1e-3)


@jit
def two_products(q_ptr, k_ptr, v_ptr, out_ptr, N: tl.constexpr, TRANSPOSED: tl.constexpr):
    offsets = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    q, k, v = tl.load(q_ptr + offsets), tl.load(k_ptr + offsets), tl.load(v_ptr + offsets)
    scores = tl.dot(q, tl.trans(k)).to(q.dtype)
    if TRANSPOSED:
        scores = scores.T
    tl.store(out_ptr + offsets, tl.dot(scores, v))


@pytest.mark.parametrize("size", [16, 64, 5])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.int8])
def test_1162_6124_3580_a_product_of_a_product(launch, dtype, transposed, size):
    if dtype is np.int8:
        q, k, v = np.random.default_rng(0).integers(-3, 4, (3, size, size)).astype(dtype)
    else:
        q, k, v = random((3, size, size), dtype)
    wide = np.int64 if dtype is np.int8 else np.float64
    out = np.zeros((size, size), np.int32 if dtype is np.int8 else np.float32)
    launch(two_products, (1,), q, k, v, out, N=size, TRANSPOSED=transposed)
    scores = (q.astype(wide) @ k.astype(wide).T).astype(dtype).astype(wide)
    expected = (scores.T if transposed else scores) @ v.astype(wide)
    if dtype is np.int8:
        np.testing.assert_array_equal(out, expected)
    else:
        # The scores round to their type, which fp32 sums near a tie may do differently.
        last = float(ml_dtypes.finfo(dtype).eps)
        last = product_tolerance(last) if dtype is np.float32 else last
        step = last * np.abs(scores).max() * np.abs(v).max()
        np.testing.assert_allclose(out, expected, atol=size * step)


@jit
def transposed_product(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, K)[:, None] * M + tl.arange(0, M)[None, :])
    b = tl.load(b_ptr + tl.arange(0, N)[:, None] * K + tl.arange(0, K)[None, :])
    out = tl.dot(a.T, b.T)
    tl.store(out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_1840_1666_transposed_operands(launch, dtype):
    a, b = random((32, 48), dtype), random((16, 32), dtype, seed=1)
    out = np.zeros((48, 16), np.float64)
    launch(transposed_product, (1,), a, b, out, M=48, N=16, K=32)
    expected = a.T.astype(np.float64) @ b.T.astype(np.float64)
    tolerance = 1e-12 if dtype is np.float64 else product_tolerance(1e-4)
    np.testing.assert_allclose(out, expected, atol=tolerance)


@jit
def product(
    a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    PRECISION: tl.constexpr = None,
):  # fmt: skip
    a = tl.load(a_ptr + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    out = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PRECISION)
    tl.store(out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], out)


@pytest.mark.parametrize("m", [1, 2, 8])
@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("k", [1, 2, 4, 3])
def test_10141_small_products(launch, m, n, k):
    a = np.random.default_rng(0).integers(-9, 9, (m, k)).astype(np.float32)
    b = np.random.default_rng(1).integers(-9, 9, (k, n)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    launch(product, (1,), a, b, out, M=m, N=n, K=k)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("precision", ["ieee", None])
@pytest.mark.parametrize("dtype", [BFLOAT16, np.float32])
def test_10176_5895_products_of_floats_have_their_precision(launch, dtype, precision):
    size = 32 if launch.is_gpu else 128
    if launch.is_gpu and dtype is np.float32 and precision is None:
        precision = "tf32x3"  # what is left out is tf32 there
    a, b = random((2, size, size), dtype)
    out = np.zeros((size, size), np.float32)
    launch(product, (1,), a, b, out, M=size, N=size, K=size, PRECISION=precision)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = size * np.finfo(np.float32).eps * (np.abs(wide_a) @ np.abs(wide_b))
    assert (np.abs(out - wide_a @ wide_b) <= bound).all()
    assert np.abs(out - wide_a @ wide_b).max() < 1e-4  # that of tf32 would be 1e-2


@jit
def carried_state(k_ptr, v_ptr, out_ptr, steps, D: tl.constexpr, V: tl.constexpr):
    state = tl.zeros((D, V), tl.float32)
    row, column = tl.arange(0, D), tl.arange(0, V)
    for i in range(steps):
        k = tl.load(k_ptr + i * D * D + row[:, None] * D + row[None, :])
        v = tl.load(v_ptr + i * D * V + row[:, None] * V + column[None, :])
        state = state * 0.5 + tl.dot(k, v - tl.dot(k, state) * 0.1)
    place = out_ptr + tl.program_id(0) * D * V
    tl.store(place + row[:, None] * V + column[None, :], state)


def test_9871_10590_a_recurrence_of_products_is_reproducible(launch):
    depth, width, steps = 32, 32, 4
    k, v = random((steps, depth, depth)), random((steps, depth, width), seed=1)
    is_slow = launch.is_eager or launch.is_gpu
    programs = 2 if is_slow else 64
    results = []
    for run in range(4 if is_slow else 50):
        out = np.zeros((programs, depth, width), np.float32)
        options = {"num_warps": 4 << run % 2, "num_stages": 2 + run % 2}
        launch(carried_state, (programs,), k, v, out, steps, D=depth, V=width, **options)
        results.append(out)
    for out in results:
        np.testing.assert_array_equal(out, np.broadcast_to(results[0][:1], out.shape))
