"""Tiles copied by tensor maps: alone, ahead in loops, through loops in loops, and to memory."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.systems import TILEWRIGHT, load
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import kernel_of, small_integers
from tests.runtime.descriptor_kernels import increment_described
from tilewright.codegen.nvidia.tensor_map import Product
from tilewright.runtime.tensor_descriptor import TensorDescriptor

BF16 = ml_dtypes.bfloat16
attention_kernel = load(TILEWRIGHT, "attention")["attention_kernel"]


@tw.jit
def descriptor_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    if TURNED:
        b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    else:
        b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    across = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * across, tl.num_programs(0)):
        row, column = tile // across * BLOCK_M, tile % across * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            left = a.load([row, k])
            right = tl.trans(b.load([column, k])) if TURNED else b.load([k, column])
            acc = tl.dot(left, right, acc)
        c.store([row, column], acc.to(c_ptr.dtype.element_ty))


def multiply(m, n, k, dtype, *, blocks, turned=False, programs=2, **options):
    a, b = small_integers((m, k), dtype, 0), small_integers((k, n), dtype, 1)
    stored = np.ascontiguousarray(b.T) if turned else b
    result = np.float32 if np.dtype(dtype).itemsize == 1 else dtype
    names = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks, strict=True))
    values = [a, stored, np.zeros((m, n), result), m, n, k]
    pairs = harness.run_both(
        descriptor_matmul_kernel, (programs,), values, TURNED=turned, **names, **options
    )
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(pairs[2][1], expected.astype(result))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 5])
def test_products_of_copied_tiles(num_stages, turned):
    multiply(160, 144, 320, BF16, blocks=(64, 64, 64), turned=turned, num_stages=num_stages)


@pytest.mark.parametrize("blocks", [(128, 256, 64), (64, 32, 16), (128, 128, 128), (256, 64, 64)])
def test_boxes_of_every_shape(blocks):
    multiply(256, 256, 128, np.float16, blocks=blocks, num_warps=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.float8_e4m3fn])
def test_elements_of_every_width(dtype):
    multiply(128, 64, 256, dtype, blocks=(64, 64, 64), turned=True)


@tw.jit
def scaled_kernel(a_ptr, b_ptr, scales, out_ptr, K, SIDE: tl.constexpr):
    i, k = tl.arange(0, SIDE), tl.arange(0, 64)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for step in range(0, K, 64):
        a = tl.load(a_ptr + i[:, None] * K + step + k[None, :])
        b = tl.load(b_ptr + (step + k)[:, None] * SIDE + i[None, :])
        scale = tl.trans(scales.load([step // 32, 0]))
        acc = tl.dot_scaled(a, None, "e4m3", b, scale, "e4m3", acc)
    tl.store(out_ptr + i[:, None] * SIDE + i[None, :], acc)


def test_copies_of_fewer_bytes_than_they_are_aligned_to():
    side, depth = 32, 256
    a, b = (small_integers((depth, side), ml_dtypes.float8_e4m3fn, seed) for seed in (0, 1))
    exponents = np.random.default_rng(2).integers(125, 130, (depth // 32, side), np.uint8)
    scales = TensorDescriptor.from_tensor(exponents, [2, side])
    out = np.zeros((side, side), np.float32)
    values = [np.ascontiguousarray(a.T), b, scales, out, depth]
    kernel = harness.run(scaled_kernel, (1,), values, SIDE=side, num_stages=3)
    assert "cp.async.bulk.tensor" in kernel.ptx
    by = np.repeat(2.0 ** (exponents.astype(np.float32) - 127), 32, axis=0)
    np.testing.assert_array_equal(out, a.astype(np.float32).T @ (b.astype(np.float32) * by))


def test_fewer_stages_where_more_do_not_fit():
    multiply(128, 256, 256, BF16, blocks=(128, 256, 64), num_warps=8, num_stages=7)


@pytest.mark.parametrize("num_warps", [1, 2])
def test_products_by_warps_read_copied_tiles(num_warps):
    multiply(64, 64, 128, BF16, blocks=(32, 32, 32), num_warps=num_warps)


@tw.jit
def move_kernel(
    x_ptr, y_ptr, M, N, row, column, R: tl.constexpr, C: tl.constexpr, NAN: tl.constexpr
):
    x = tl.make_tensor_descriptor(
        x_ptr, [M, N], [N, 1], [R, C], padding_option="nan" if NAN else "zero"
    )
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [R, C])
    y.store([0, 0], x.load([row, column]) + 1)


@pytest.mark.parametrize("corner", [(0, 0), (5, 32), (-3, -16), (100, 0)])
@pytest.mark.parametrize("nan", [False, True])
def test_what_lies_outside(corner, nan):
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    values = [x, np.zeros_like(x), 40, 64, *corner]
    for expected, got in harness.run_both(move_kernel, (1,), values, R=32, C=32, NAN=nan):
        np.testing.assert_array_equal(got, expected)


@tw.jit
def chain_kernel(x_ptr, N, SIDE: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [N, SIDE], [SIDE, 1], [SIDE, SIDE])
    for step in range(1, N // SIDE):
        x.store([step * SIDE, 0], x.load([(step - 1) * SIDE, 0]) * 2 + x.load([step * SIDE, 0]))


def test_a_load_sees_the_store_before_it():
    x = small_integers((5 * 16, 16), np.float32, 0)
    for expected, got in harness.run_both(chain_kernel, (1,), [x, 80], SIDE=16):
        np.testing.assert_array_equal(got, expected)


@tw.jit
def mixed_kernel(a_ptr, b_ptr, c_ptr, K, SIDE: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [SIDE, K], [K, 1], [SIDE, SIDE])
    i = tl.arange(0, SIDE)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for k in range(0, K, SIDE):
        b = tl.load(b_ptr + (k + i[:, None]) * SIDE + i[None, :])
        acc = tl.dot(a.load([0, k]), b, acc)
    tl.store(c_ptr + i[:, None] * SIDE + i[None, :], acc)


def test_tensor_copies_beside_others():
    a, b = small_integers((64, 256), np.float16, 0), small_integers((256, 64), np.float16, 1)
    values = [a, b, np.zeros((64, 64), np.float32), 256]
    pairs = harness.run_both(mixed_kernel, (1,), values, SIDE=64)
    np.testing.assert_array_equal(pairs[2][1], a.astype(np.float32) @ b.astype(np.float32))


@tw.jit
def uneven_kernel(x, lengths_ptr, y_ptr, count, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    one = (i[:, None] == i[None, :]).to(tl.float16)
    for group in range(count):
        length = tl.load(lengths_ptr + group)
        acc = tl.zeros((SIDE, SIDE), tl.float32)
        for step in range(length):
            acc = tl.dot(x.load([(group + step) * SIDE, 0]), one, acc)
        tl.store(y_ptr + group * SIDE * SIDE + i[:, None] * SIDE + i[None, :], acc)


def test_inner_loops_of_any_length_some_empty():
    x = small_integers((8 * 64, 64), np.float16, 0)
    lengths = np.array([0, 3, 0, 0, 1, 2, 0], np.int32)
    descriptor = TensorDescriptor.from_tensor(x, [64, 64])
    out = np.ones((7, 64, 64), np.float32)
    with tw.emulate("sm_90a"):
        uneven_kernel[1,](descriptor, lengths, out, 7, SIDE=64)
    tiles = x.astype(np.float32).reshape(8, 64, 64)
    for group, length in enumerate(lengths):
        np.testing.assert_array_equal(out[group], tiles[group : group + length].sum(0))


def test_descriptors_become_tensor_copies_where_there_are_such():
    a, b = np.zeros((128, 128), BF16), np.zeros((128, 128), BF16)
    values = [a, b, np.zeros((128, 128), BF16), 128, 128, 128]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "TURNED": False}
    kernel = kernel_of(descriptor_matmul_kernel, values, **constants)
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in kernel.ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in kernel.ptx
    assert len(kernel.tensor_maps) == 3
    newer = kernel_of(descriptor_matmul_kernel, values, target="sm_120a", **constants)
    assert "cp.async.bulk.tensor.2d.shared::cta.global" in newer.ptx
    older = kernel_of(descriptor_matmul_kernel, values, target="a100", **constants)
    assert "bulk" not in older.ptx
    assert "cp.async.cg.shared.global" in older.ptx


def test_sizes_and_strides_that_are_products_of_arguments():
    heads, n, width, head = 3, 7, 5, 16
    x = small_integers((heads * n * 2, width * head), np.float32, 0)
    values = [x, np.zeros_like(x), heads, n, width]
    pairs = harness.run_both(increment_described, (1,), values, SIDE=16, HEAD=head)
    np.testing.assert_array_equal(pairs[1][1], x + 1)
    kernel = kernel_of(increment_described, values, SIDE=16, HEAD=head)
    assert len(kernel.tensor_maps) == 2
    assert kernel.tensor_maps[0].sizes == (Product((2, 3), 2, 32), Product((4,), head, 32))
    assert [m.strides for m in kernel.tensor_maps] == [
        (Product((4,), head, bits),) for bits in (32, 64)
    ]


@tw.jit
def loaded_parts_kernel(x_ptr, sizes_ptr, y_ptr, n, width, SIDE: tl.constexpr):
    """What only the kernel knows: a size from memory, a base, products that wrap between."""
    count = tl.load(sizes_ptr)
    x = tl.make_tensor_descriptor(x_ptr, [count, width], [width, 1], [SIDE, SIDE])
    y = tl.make_tensor_descriptor(y_ptr + width, [n, width], [width, 1], [SIDE, SIDE])
    wide = (n * width).to(tl.int64) * width
    z = tl.make_tensor_descriptor(x_ptr, [1, width], [wide, 1], [1, SIDE])
    y.store([0, 0], x.load([0, 0]) + z.load([0, 0]))


def test_descriptors_that_only_the_kernel_knows_are_read_through_pointers():
    x, y = small_integers((16, 32), np.float32, 0), np.zeros((17, 32), np.float32)
    values = [x, np.array([9], np.int32), y, 16, 32]
    for expected, got in harness.run_both(loaded_parts_kernel, (1,), values, SIDE=16):
        np.testing.assert_array_equal(got, expected)
    assert not kernel_of(loaded_parts_kernel, values, SIDE=16).tensor_maps


def test_one_warp_asks_for_copies_together():
    """No branch parts its threads: the assembler then keeps addresses in registers of the warp."""
    a = np.zeros((128, 128), BF16)
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "TURNED": False}
    ptx = kernel_of(descriptor_matmul_kernel, [a, a, a, 128, 128, 128], **constants).ptx
    copies = re.findall(r".*(?:cp\.async\.bulk\.tensor|mbarrier\.arrive\.expect_tx).*", ptx)
    flags = {line.split()[0] for line in copies}
    assert len(copies) > 4
    assert all(re.search(rf"elect\.sync\s+%r\d+\|{flag[1:]},", ptx) for flag in flags)


def test_copies_are_asked_for_while_the_first_product_of_an_iteration_runs():
    arrays = [np.zeros((256, 64), BF16) for _ in range(4)]
    heights = (128, 64, 64, 128)
    blocks = [
        TensorDescriptor.from_tensor(x, [h, 64]) for x, h in zip(arrays, heights, strict=True)
    ]
    constants = {"HEAD": 64, "BLOCK_M": 128, "BLOCK_N": 64, "IS_CAUSAL": False}
    values = [*blocks, np.zeros(256, np.float32), 0.1, 256]
    ptx = kernel_of(attention_kernel, values, num_warps=8, num_stages=3, **constants).ptx
    last_of_logits = ptx.rindex("{al, au}")
    start = ptx.index("wgmma.commit_group", last_of_logits)
    end = ptx.find("wgmma.wait_group", start)
    assert "cp.async.bulk.tensor" in ptx[start:end]


@tw.jit
def overwriting_kernel(x, y, count, SIDE: tl.constexpr):
    for step in range(count):
        y.store([0, 0], x.load([step * SIDE, 0]))


def test_a_store_waits_for_the_one_before_when_it_begins():
    """And not when that one has been started: it runs on while the next tile is computed."""
    x = small_integers((8 * 16, 64), np.float32, 0)
    y = np.zeros((16, 64), np.float32)
    blocks = [TensorDescriptor.from_tensor(array, [16, 64]) for array in (x, y)]
    with tw.emulate("sm_90a", races=True):
        ptx = overwriting_kernel[1,](*blocks, 8, SIDE=16).asm["ptx"]
    np.testing.assert_array_equal(y, x[-16:])
    waits = [found.start() for found in re.finditer(r"cp\.async\.bulk\.wait_group\s+0", ptx)]
    assert len(waits) == 1
    assert waits[0] < ptx.index("cp.async.bulk.tensor.2d.global.shared::cta")


@tw.jit
def halves_kernel(x, y, count, SIDE: tl.constexpr, STEP: tl.constexpr):
    for step in range(count):
        tile = x.load([step * SIDE, 0])
        y.store([step * SIDE, 0], tile)
        y.store([step * SIDE, STEP], tile + 1)


@pytest.mark.parametrize(("step", "waits"), [(64, 1), (128, 1), (32, 2)])
def test_stores_of_blocks_side_by_side_do_not_wait_for_each_other(step, waits):
    """Each iteration waits for the one before; blocks that overlap wait for each other as well."""
    x = small_integers((4 * 16, 64), np.float32, 0)
    y = np.zeros((4 * 16, 256), np.float32)
    blocks = [TensorDescriptor.from_tensor(array, [16, 64]) for array in (x, y)]
    with tw.emulate("sm_90a", races=True):
        ptx = halves_kernel[1,](*blocks, 4, SIDE=16, STEP=step).asm["ptx"]
    width = min(step, 64)
    np.testing.assert_array_equal(y[:, :width], x[:, :width])
    np.testing.assert_array_equal(y[:, step : step + 64], x + 1)
    assert len(re.findall(r"cp\.async\.bulk\.wait_group\s+0", ptx)) == waits


@tw.jit
def batched_product_kernel(x, y, out, WIDTH: tl.constexpr):
    right = tl.reshape(y.load([0, 0, 0]), (WIDTH, WIDTH))
    acc = tl.dot(tl.reshape(x.load([0, 0, 0]), (64, WIDTH)), right).to(out.dtype)
    out.store([0, 0, 0], acc[None, :, :])


def test_a_product_is_stored_with_an_axis_of_one_as_without():
    shapes = [(1, 64, 64), (1, 64, 64), (1, 64, 64)]
    x, y, out = (small_integers(shape, np.float16, i) for i, shape in enumerate(shapes))
    blocks = [TensorDescriptor.from_tensor(array, [1, 64, 64]) for array in (x, y, out)]
    with tw.emulate("sm_90a", races=True):
        ptx = batched_product_kernel[1,](*blocks, WIDTH=64).asm["ptx"]
    np.testing.assert_array_equal(out, x @ y)
    assert "stmatrix" in ptx
    assert not re.search(r"[ls][dt]\.shared\.v", ptx)
