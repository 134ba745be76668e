"""Kernels as PTX in the emulator, with the race detector on, against the interpreter."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from examples.attention import attention_kernel
from examples.elementwise import add_kernel, bias_gelu_scale_residual_kernel
from examples.matmul import matmul_kernel
from examples.rows import layer_norm_kernel, softmax_kernel
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import check, numbers, ptx_of, small_integers
from tilewright.errors import Unsupported

TARGETS = list(harness.TARGETS)
BF16 = ml_dtypes.bfloat16


# Elementwise, and rows.


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.float64, np.int8])
def test_add(target, dtype):
    x, y = small_integers(3000, dtype), small_integers(3000, dtype, 1)
    check(add_kernel, (3,), [x, y, np.zeros_like(x), 3000], target=target, BLOCK=1024)


@pytest.mark.parametrize("size", [2999, 3000, 3008])
def test_add_of_any_length_touches_nothing_else(size):
    x, y = numbers(size), numbers(size, seed=1)
    check(add_kernel, (3,), [x, y, np.zeros_like(x), size], BLOCK=1024)


def test_loads_and_stores_are_16_bytes_wide():
    x = numbers(4096)
    ptx = ptx_of(add_kernel, [x, x, x, 4096], BLOCK=1024)
    assert ptx.count("ld.global.v4.b32") == 4
    assert ptx.count("st.global.cs.v4.b32") == 2
    assert ptx.count("ld.global") == 4


@pytest.mark.parametrize("target", TARGETS)
def test_gelu(target):
    x, bias, residual = numbers((2, 500)), numbers(500, seed=1), numbers((2, 500), seed=2)
    values = [x, bias, residual, np.zeros_like(x), 0.7, 500]
    check(bias_gelu_scale_residual_kernel, (2,), values, target=target, tolerance=1e-5, BLOCK=256)


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
def test_softmax(num_warps):
    x = numbers((3, 1000))
    values = [x, np.zeros_like(x), 1000, 1000, 1000]
    check(softmax_kernel, (3,), values, num_warps=num_warps, tolerance=1e-6, BLOCK=1024)


@pytest.mark.parametrize("target", TARGETS)
def test_layer_norm(target):
    x, weight, bias = numbers((3, 1000)), numbers(1000, seed=1), numbers(1000, seed=2)
    mean, rstd = np.zeros(3, np.float32), np.zeros(3, np.float32)
    values = [x, weight, bias, np.zeros_like(x), mean, rstd, 1000, 1000, 1e-5]
    check(layer_norm_kernel, (3,), values, target=target, tolerance=1e-5, BLOCK=1024)


def test_softmax_converts_no_layout():
    x = numbers((3, 1024))
    ptx = ptx_of(softmax_kernel, [x, x, 1024, 1024, 1024], BLOCK=1024)
    # Each reduction: the warps write once and meet once; its memory is not that of the other.
    assert ptx.count("bar.sync") + ptx.count("barrier") == 2
    assert ptx.count("shfl.sync.bfly") == 10


# Two axes, conversions, reductions along either.


@tw.jit
def transpose_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out_ptr + j * M + i, tl.load(x_ptr + i * N + j))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_transpose(target, dtype):
    x = small_integers((64, 32), dtype)
    values = [x, np.zeros((32, 64), dtype)]
    check(transpose_kernel, (1,), values, target=target, M=64, N=32)


@tw.jit
def sums_kernel(x_ptr, rows_ptr, columns_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    inside = (i[:, None] < M - 1) & (j[None, :] < N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :], mask=inside, other=1)
    tl.store(rows_ptr + i, tl.sum(x, axis=1))
    tl.store(columns_ptr + j, tl.max(x, axis=0))


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("shape", [(64, 32), (8, 128), (4, 4), (1, 64), (128, 16), (6, 40)])
def test_reductions_along_both_axes(shape, num_warps):
    m, n = shape
    x = small_integers(shape)
    values = [x, np.zeros(m, np.float32), np.zeros(n, np.float32)]
    check(sums_kernel, (1,), values, num_warps=num_warps, M=m, N=n)


@tw.jit
def first_largest_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    tl.store(out_ptr + i, tl.argmax(x, axis=1))


def test_argmax_takes_the_first():
    check(
        first_largest_kernel, (1,), [small_integers((16, 64)), np.zeros(16, np.int32)], M=16, N=64
    )


@tw.jit
def crowded_sums_kernel(x_ptr, sums_ptr, largest_ptr, places_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    tl.store(sums_ptr + j, tl.sum(x, axis=0))
    tl.store(largest_ptr + j, tl.max(x, axis=0))
    tl.store(places_ptr + j, tl.argmax(x, axis=0))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_tables_of_several_results_have_memory_of_their_own(dtype):
    m, n = 5, 1000
    x = small_integers((m, n), dtype)
    values = [x, np.zeros(n, dtype), np.zeros(n, dtype), np.zeros(n, np.int32)]
    check(crowded_sums_kernel, (1,), values, num_warps=8, M=m, N=n)


@tw.jit
def keep_last(x, y):
    return y


@tw.jit
def last_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.reduce(x, 0, keep_last))


@pytest.mark.parametrize("size", [64, 512, 2048])
def test_reduction_keeps_the_order(size):
    check(last_kernel, (1,), [numbers(size), np.zeros(1, np.float32)], N=size)


@tw.jit
def interleave_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    joined = tl.interleave(tl.load(x_ptr + i), tl.load(y_ptr + i))
    folded = tl.reshape(joined, (4, N // 2))
    even, odd = tl.split(tl.reshape(tl.trans(folded), (N, 2)))
    tl.store(out_ptr + i, even - odd)


def test_join_split_and_reshape():
    values = [numbers(128), numbers(128, seed=1), np.zeros(128, np.float32)]
    check(interleave_kernel, (1,), values, N=128)


@tw.jit
def odd_sizes_kernel(x_ptr, index_ptr, out_ptr, counts_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    taken = tl.gather(x, tl.load(index_ptr + at), axis=1)
    turned = tl.reshape(tl.trans(taken), (M * N,))
    tl.store(out_ptr + tl.arange(0, M * N), tl.sort(turned))
    tl.store(counts_ptr + tl.arange(0, 8), tl.histogram(x.to(tl.int32).reshape(M * N), 8))


@pytest.mark.parametrize("shape", [(3, 5), (8, 16), (12, 10)])
def test_gather_sort_and_count(shape):
    m, n = shape
    index = np.random.default_rng(1).integers(0, n, shape, np.int32)
    values = [small_integers(shape), index, np.zeros(m * n, np.float32), np.zeros(8, np.int32)]
    check(odd_sizes_kernel, (1,), values, M=m, N=n)


@tw.jit
def masked_counts_kernel(x_ptr, counts_ptr, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    counts = tl.histogram(tl.load(x_ptr + i), BINS, mask=i < n)
    tl.store(counts_ptr + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_what_is_not_counted_is_added_to_a_number_that_is_there(num_warps):
    values = [np.arange(-40, 60, dtype=np.int8), np.zeros(17, np.int32), 58]
    check(masked_counts_kernel, (1,), values, num_warps=num_warps, N=100, BINS=17)


@tw.jit
def crowded_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + i * N + j)
    turned = tl.load(x_ptr + j * M + i)
    tl.store(out_ptr + i * N + j, tl.gather(x, (x + turned) & (N - 1), axis=1))


def test_a_table_keeps_its_memory_while_tiles_are_moved():
    m, n = 32, 128
    x = np.random.default_rng(0).integers(0, n, (m, n), np.int64)
    check(crowded_kernel, (1,), [x, np.zeros_like(x)], M=m, N=n)


# Scans and atomics.


@tw.jit
def running_kernel(x_ptr, rows_ptr, columns_ptr, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(rows_ptr + at, tl.cumsum(x, axis=1, reverse=R))
    tl.store(columns_ptr + at, tl.cumsum(x, axis=0, reverse=R))


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1, 1024), (16, 64), (64, 4), (2, 2), (3, 100)])
def test_running_sums(shape, reverse, num_warps):
    m, n = shape
    x = small_integers(shape)
    values = [x, np.zeros_like(x), np.zeros_like(x)]
    check(running_kernel, (1,), values, num_warps=num_warps, M=m, N=n, R=reverse)


@tw.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@tw.jit
def affine_kernel(a_ptr, b_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    pair = tl.load(a_ptr + at), tl.load(b_ptr + at)
    a, b = tl.associative_scan(pair, AXIS, affine, reverse=True)
    c, d = tl.associative_scan(pair, AXIS, affine)
    tl.store(a_ptr + at, a + c)
    tl.store(b_ptr + at, b - d)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(4, 64), (3, 100), (5, 3)])
def test_scan_of_pairs(shape, axis):
    a, b = (small_integers(shape, np.int32, seed) for seed in range(2))
    check(affine_kernel, (1,), [a, b], M=shape[0], N=shape[1], AXIS=axis)


@tw.jit
def atomics_kernel(x_ptr, counts_ptr, out_ptr, total_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.atomic_add(counts_ptr + x, 1)
    tl.store(out_ptr + i, tl.atomic_max(out_ptr + i, x, mask=x > 3))
    before = tl.atomic_add(total_ptr, N)
    tl.store(out_ptr + N, before)
    tl.atomic_cas(total_ptr + 1, 0, before)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [64, 512, 100])
def test_atomics(size, target):
    x = np.random.default_rng(0).integers(0, 9, size, np.int32)
    counts, out, total = (np.zeros(n, np.int32) for n in (10, size + 1, 2))
    check(atomics_kernel, (1,), [x, counts, out, total], target=target, N=size)


@tw.jit
def float_atomics_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(out_ptr + i % 4, tl.load(x_ptr + i))
    tl.atomic_max(out_ptr + 4 + i % 4, tl.load(x_ptr + i))


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
def test_atomics_on_floats(dtype):
    check(float_atomics_kernel, (1,), [small_integers(64, dtype), np.zeros(8, dtype)], N=64)


# Loops and branches.


@tw.jit
def control_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    count = 0
    for start in range(0, n, N):
        total += tl.load(x_ptr + start + i)
        count += 1
    while count < 10:
        total = total * 2.0 + tl.sum(total)
        count += 1
    if count > n:
        total = total + 1.0
        tl.store(out_ptr + N, 7.0)
    else:
        total = total * 3.0
    tl.store(out_ptr + i, total)


@pytest.mark.parametrize("target", TARGETS)
def test_control_flow(target):
    x = small_integers(1024)
    check(control_kernel, (1,), [x, np.zeros(129, np.float32), 1024], target=target, N=128)


@tw.jit
def repeated_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    for _ in range(3):
        tl.store(out_ptr + at, tl.load(out_ptr + at) + x)


@pytest.mark.parametrize("shape", [(32, 13), (8, 16)])
def test_a_loop_loads_what_it_has_stored(shape):
    values = [small_integers(shape), np.zeros(shape, np.float32)]
    check(repeated_kernel, (1,), values, M=shape[0], N=shape[1])


@tw.jit
def volatile_kernel(flag_ptr, out_ptr, N: tl.constexpr):
    x = tl.arange(0, N)
    if tl.load(flag_ptr, volatile=True) > 2:
        x = x + tl.sum(x, axis=0)
    tl.store(out_ptr + x % N, x)


@pytest.mark.parametrize("flag", [1, 3])
def test_volatile_scalars_are_the_same_for_all_threads(flag):
    values = [np.full(1, flag, np.int32), np.zeros(256, np.int32)]
    check(volatile_kernel, (1,), values, N=256)


@tw.jit
def shift_kernel(x_ptr, steps, N: tl.constexpr):
    i = tl.arange(0, N)
    for _ in range(steps):
        tl.store(x_ptr + i, tl.load(x_ptr + i + 1) + 1)


def test_a_load_sees_the_stores_of_other_threads():
    x = np.arange(300, dtype=np.int32)
    check(shift_kernel, (1,), [x, 5], races=False, N=256)


# Products.


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_warps", [2, 4, 8])
def test_matmul(target, num_warps):
    m, n, k = 70, 50, 90
    a, b = small_integers((m, k), np.float16), small_integers((k, n), np.float16, 1)
    values = [a, b, np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1]
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
    check(matmul_kernel, (4,), values, target=target, num_warps=num_warps, **blocks)


@tw.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr
):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + j[None, :])
    c = tl.load(c_ptr + i[:, None] * N + j[None, :])
    out = tl.dot(a, b, c, input_precision=PRECISION, out_dtype=c.dtype)
    tl.store(c_ptr + i[:, None] * N + j[None, :], out)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "sums", "precision"),
    [
        (np.float16, np.float32, "ieee"),
        (BF16, np.float32, "ieee"),
        (np.float32, np.float32, "tf32"),
        (np.float32, np.float32, "ieee"),
        (np.int8, np.int32, "ieee"),
        (np.float16, np.float16, "ieee"),
        (np.float64, np.float64, "ieee"),
    ],
)
@pytest.mark.parametrize("shape", [(32, 32, 32), (16, 16, 16)])
def test_dot(target, dtype, sums, precision, shape):
    m, n, k = shape
    a, b = small_integers((m, k), dtype), small_integers((k, n), dtype, 1)
    values = [a, b, small_integers((m, n), sums, 2)]
    check(dot_kernel, (1,), values, target=target, M=m, N=n, K=k, PRECISION=precision)


@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures_assemble(target):
    x = numbers((4, 1024), BF16)
    ptx_of(softmax_kernel, [x, x, 1024, 1024, 1024], target=target, BLOCK=1024)
    values = [x, x, numbers((64, 64)), 64, 64, 64, 64, 1, 64, 1, 64, 1]
    blocks = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
    ptx = ptx_of(matmul_kernel, values, target=target, **blocks)
    assert ("mma.sync" in ptx) == (target != "sm_75")


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    length, head = 100, 32
    q, k, v = (numbers((2, length, head), np.float16, seed) for seed in range(3))
    scale = math.log2(math.e) / math.sqrt(head)
    values = [q, k, v, np.zeros_like(q), scale, length]
    blocks = {"HEAD": head, "BLOCK_M": 64, "BLOCK_N": 32, "CAUSAL": causal}
    check(attention_kernel, (2, 2), values, tolerance=4e-3, **blocks)


def test_registers_of_a_thread_are_limited_by_an_option():
    x = numbers(4096)
    assert ".maxnreg 40" in ptx_of(add_kernel, [x, x, x, 4096], BLOCK=1024, maxnreg=40)


@pytest.mark.parametrize("num_ctas", [1, 2, 4])
def test_blocks_of_a_cluster_are_one_block(num_ctas):
    m, n, k = 70, 50, 40
    a, b = small_integers((m, k), np.float16), small_integers((k, n), np.float16, 1)
    values = [a, b, np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1]
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
    check(matmul_kernel, (4,), values, num_warps=4, num_ctas=num_ctas, **blocks)


def test_more_warps_than_a_block_has():
    x = numbers(4096)
    with pytest.raises(Unsupported, match="64 warps for a program"):
        ptx_of(add_kernel, [x, x, x, 4096], BLOCK=1024, num_warps=64)
    # A cluster has more; here a program is one block, whose warps then have more to do.
    ptx = ptx_of(add_kernel, [x, x, x, 4096], BLOCK=1024, num_warps=8, num_ctas=8)
    assert ".reqntid 1024" in ptx
    assert "cluster" not in ptx


@tw.jit
def large_product_kernel(a_ptr, b_ptr, c_ptr, SIDE: tl.constexpr):
    at = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    product = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at))
    tl.store(c_ptr + at, product)


def test_what_does_not_fit_is_listed_with_its_lines():
    x = np.zeros((512, 512), np.float32)
    with pytest.raises(Unsupported) as caught:
        ptx_of(large_product_kernel, [x, x, x], num_warps=16, SIDE=512)
    message = str(caught.value)
    assert "needs 2097152 bytes of shared memory, sm_90a has 232448" in message
    assert message.count("1048576 bytes at ") == 2
    assert message.count("product = tl.dot(") == 3  # both operands, and the line with a caret
