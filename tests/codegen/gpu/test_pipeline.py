"""Loops that copy tiles ahead, and the products of warpgroups that read them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from examples.attention import attention_kernel
from examples.matmul import matmul_kernel, whole_matmul_kernel
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import ptx_of, small_integers

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TARGETS = list(harness.TARGETS)


def slow(value):
    """A parameter for which tests run only where all do."""
    return pytest.param(value, marks=pytest.mark.slow)


def multiply(m, n, k, dtype, *, blocks, kernel=whole_matmul_kernel, turned=False, **options):
    """The product of two matrices of small integers in the emulator; B may lie transposed."""
    a, b = small_integers((m, k), dtype, 0), small_integers((k, n), dtype, 1)
    result = np.float32 if np.dtype(dtype).itemsize == 1 else dtype
    stored = np.ascontiguousarray(b.T) if turned else b
    strides = (1, k) if turned else (n, 1)
    values = [a, stored, np.zeros((m, n), result), m, n, k, k, 1, *strides, n, 1]
    names = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks, strict=True))
    grid = (-(-m // blocks[0]) * -(-n // blocks[1]),)
    pairs = harness.run_both(kernel, grid, values, GROUP_M=8, **names, **options)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(pairs[2][1], expected.astype(result))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_stages", [1, 2, slow(3), 4, slow(5)])
@pytest.mark.parametrize("k", [64, slow(128), 448])
def test_the_number_of_stages_changes_nothing(target, num_stages, k):
    multiply(64, 64, k, BF16, blocks=(64, 64, 64), target=target, num_stages=num_stages)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_warps", [1, 2, 8])
def test_the_number_of_warps_changes_nothing(target, num_warps):
    side = 64 if num_warps < 4 else 128
    blocks = (side, side, 32)
    multiply(128, 128, 128, np.float16, blocks=blocks, target=target, num_warps=num_warps)


@pytest.mark.parametrize("blocks", [(64, 16, 64), (64, 256, 32), (128, 64, 16), (256, 64, 64)])
def test_warpgroups_of_any_shape(blocks):
    multiply(256, 256, 128, BF16, blocks=blocks, num_warps=8)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, E4M3, np.float16])
def test_operands_of_every_width_and_order(dtype, turned):
    multiply(64, 64, 128, dtype, blocks=(64, 64, 64), turned=turned)


@pytest.mark.parametrize("target", TARGETS)
def test_masked_tiles_are_copied_with_zeros(target):
    multiply(
        100, 72, 144, np.float16, blocks=(64, 64, 64), kernel=matmul_kernel, target=target,
    )  # fmt: skip


@tw.jit
def transposed_a_kernel(a_ptr, b_ptr, c_ptr, trips, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for step in range(trips):
        k = step * SIDE + i
        a = tl.load(a_ptr + k[:, None] * SIDE + i[None, :])
        b = tl.load(b_ptr + k[:, None] * SIDE + i[None, :])
        acc += tl.dot(tl.trans(a), b)
    tl.store(c_ptr + i[:, None] * SIDE + i[None, :], acc)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_loops_that_are_shorter_than_the_ring(trips):
    a, b = (small_integers((5 * 64, 64), np.float16, seed) for seed in (0, 1))
    values = [a, b, np.ones((64, 64), np.float32), trips]
    pairs = harness.run_both(transposed_a_kernel, (1,), values, SIDE=64, num_stages=4)
    wide = (x[: trips * 64].astype(np.float32) for x in (a, b))
    first, second = wide
    np.testing.assert_array_equal(pairs[2][1], first.T @ second)


@tw.jit
def paged_kernel(table_ptr, pages_ptr, b_ptr, c_ptr, count, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for step in range(count):
        page = tl.load(table_ptr + step)
        a = tl.load(pages_ptr + (page * SIDE + i[:, None]) * SIDE + i[None, :])
        b = tl.load(b_ptr + i[:, None] * SIDE + i[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * SIDE + i[None, :], acc)


@pytest.mark.parametrize("target", TARGETS)
def test_addresses_that_are_loaded_themselves(target):
    pages = small_integers((6, 64, 64), np.float16, 0)
    b = small_integers((64, 64), np.float16, 1)
    table = np.array([4, 1, 3, 0, 5], np.int32)
    values = [table, pages, b, np.zeros((64, 64), np.float32), 5]
    pairs = harness.run_both(paged_kernel, (1,), values, target=target, SIDE=64)
    expected = pages[table].astype(np.float32).sum(0) @ b.astype(np.float32)
    np.testing.assert_array_equal(pairs[3][1], expected)


@tw.jit
def narrow_kernel(
    a_ptr, b_ptr, scale_ptr, c_ptr, pitch, b_pitch, trips,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    i, j, k = tl.arange(0, ROWS), tl.arange(0, ROWS), tl.arange(0, DEPTH)
    acc = tl.zeros((ROWS, ROWS), tl.float32)
    for step in range(trips):
        a = tl.load(a_ptr + i[:, None] * pitch + step * DEPTH + k[None, :])
        b = tl.load(b_ptr + (step * DEPTH + k[:, None]) * b_pitch + j[None, :])
        if SCALED:
            a *= tl.load(scale_ptr + i * trips + step, mask=i < ROWS - 3, other=2.0)[:, None]
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * ROWS + j[None, :], acc)


def narrow_values(trips, more=0, rows=64, depth=32):
    """A matrix whose rows begin anywhere, so that no copy of several of its elements is aligned.

    Nor of the other one, where its rows have one element `more`.
    """
    pitch = trips * depth + 1
    a = small_integers((rows, pitch), BF16, 0)
    b = small_integers((trips * depth, rows + more), BF16, 1)
    scale = small_integers((rows, trips), BF16, 2)
    return [a, b, scale, np.zeros((rows, rows), np.float32), pitch, rows + more, trips]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_stages", [2, slow(3), 4])
@pytest.mark.parametrize("trips", [1, slow(2), 6])
@pytest.mark.parametrize(("scaled", "more"), [(False, 0), (True, 0), (False, 1)])
def test_loads_without_a_copy_pass_by_registers(target, num_stages, trips, scaled, more):
    values = narrow_values(trips, more)
    options = {"ROWS": 64, "DEPTH": 32, "SCALED": scaled}
    pairs = harness.run_both(
        narrow_kernel, (1,), values, target=target, num_stages=num_stages, **options
    )
    interpreted, emulated = pairs[3]
    np.testing.assert_array_equal(emulated, interpreted)


@tw.jit
def thin_kernel(a_ptr, b_ptr, c_ptr, trips, pitch):
    i, j, k = tl.arange(0, 32), tl.arange(0, 8), tl.arange(0, 64)
    acc = tl.zeros((32, 8), tl.float32)
    for step in range(trips):
        a = tl.load(a_ptr + i[:, None] * 256 + (step * 64 + k)[None, :])
        b = tl.load(b_ptr + (step * 64 + k)[:, None] * pitch + j[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * 8 + j[None, :], acc)


@pytest.mark.parametrize("target", TARGETS)
def test_no_thread_copies_less_than_a_word(target):
    a, b = small_integers((32, 256), E4M3, 0), small_integers((256, 16), E4M3, 1)
    values = [a, b, np.zeros((32, 8), np.float32), 4, 16]
    pairs = harness.run_both(thin_kernel, (1,), values, target=target, num_warps=8)
    np.testing.assert_array_equal(pairs[2][1], a.astype(np.float32) @ b[:, :8].astype(np.float32))


def test_all_threads_meet_once_in_an_iteration_whose_loads_pass_by_registers():
    constants = {"ROWS": 64, "DEPTH": 32, "SCALED": True}
    ptx = ptx_of(narrow_kernel, narrow_values(4), num_stages=2, **constants)
    until_the_end = ptx[: ptx.rindex("cp.async.wait_group")]
    assert until_the_end.count("bar.sync") == 1
    assert "ld.global.b16" in until_the_end


def test_operands_are_computed_while_the_steps_before_run():
    """Each of the four steps waits until its registers have been read an iteration ago."""
    values, constants = narrow_values(4, depth=64), {"ROWS": 64, "DEPTH": 64, "SCALED": True}
    body = ptx_of(narrow_kernel, values, num_stages=4, num_warps=8, **constants)
    steps = body.split("wgmma.mma_async")[1:]
    assert len(steps) == 4
    assert all("wgmma.wait_group.sync.aligned \t3;" in step for step in steps[:-1])
    assert all(step.count("mul.rn.bf16x2") for step in steps[:-1])


@tw.jit
def feedback_kernel(a_ptr, b_ptr, count, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    place = i[:, None] * SIDE + i[None, :]
    b = tl.load(b_ptr + place)
    for step in range(count):
        a = tl.load(a_ptr + step * SIDE * SIDE + place)
        tl.store(a_ptr + (step + 1) * SIDE * SIDE + place, tl.dot(a, b).to(a.dtype))


def test_what_the_loop_writes_is_not_copied_ahead():
    a = small_integers((4, 64, 64), np.float16, 0)
    b = np.eye(64, k=1, dtype=np.float16)
    for expected, got in harness.run_both(feedback_kernel, (1,), [a, b, 3], SIDE=64):
        np.testing.assert_array_equal(got, expected)
    assert "cp.async" not in ptx_of(feedback_kernel, [a, b, 3], SIDE=64)


@tw.jit
def persistent_kernel(a_ptr, b_ptr, c_ptr, tiles, trips, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    place = i[:, None] * SIDE + i[None, :]
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((SIDE, SIDE), tl.float32)
        for step in range(trips):
            a = tl.load(a_ptr + (tile * trips + step) * SIDE * SIDE + place)
            b = tl.load(b_ptr + step * SIDE * SIDE + place)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + tile * SIDE * SIDE + place, acc.to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_in_a_loop_uses_its_ring_again(target):
    a, b = small_integers((5, 3, 64, 64), np.float16, 0), small_integers((3, 64, 64), np.float16, 1)
    values = [a, b, np.zeros((5, 64, 64), np.float32), 5, 3]
    pairs = harness.run_both(persistent_kernel, (2,), values, target=target, SIDE=64)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).sum(1)
    np.testing.assert_array_equal(pairs[2][1], expected)


@tw.jit
def rows_kernel(x_ptr, y_ptr, rows, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    for row in tl.range(0, rows, num_stages=3):
        x = tl.load(x_ptr + row * COLUMNS + column)
        tl.store(y_ptr + row * COLUMNS + column, x / tl.sum(x, axis=0))


def test_a_loop_that_asks_for_stages_copies_every_tile():
    x = np.random.default_rng(0).random((7, 1024), dtype=np.float32)
    values = [x, np.zeros_like(x), 7]
    for expected, got in harness.run_both(rows_kernel, (1,), values, COLUMNS=1024):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert "cp.async" in ptx_of(rows_kernel, values, COLUMNS=1024)


def matrices(dtype=BF16, size=256):
    a, b, c = (np.zeros((size, size), dtype) for _ in range(3))
    return [a, b, c, size, size, size, size, 1, size, 1, size, 1]


BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}


def test_a_product_is_made_by_warpgroups_from_copied_tiles():
    ptx = ptx_of(whole_matmul_kernel, matrices(), num_warps=8, **BLOCKS)
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in ptx
    assert "cp.async.cg.shared.global" in ptx
    assert "mma.sync" not in ptx
    assert "wgmma.wait_group.sync.aligned \t1" in ptx  # it runs on into the next iteration


def test_older_machines_multiply_by_warps_from_copied_tiles():
    ptx = ptx_of(whole_matmul_kernel, matrices(), target="a100", num_warps=8, **BLOCKS)
    assert "mma.sync.aligned.m16n8k16" in ptx
    assert "cp.async.cg.shared.global" in ptx
    assert "ldmatrix.sync.aligned.m8n8.x4" in ptx


def test_attention_keeps_its_probabilities_in_registers():
    q, k, v, out = (np.zeros((1, 256, 64), np.float16) for _ in range(4))
    ptx = ptx_of(
        attention_kernel, [q, k, v, out, 0.1, 256],
        HEAD=64, BLOCK_M=128, BLOCK_N=64, CAUSAL=False, num_warps=8,
    )  # fmt: skip
    products = [line for line in ptx.splitlines() if "wgmma.mma_async" in line]
    from_registers = [line for line in products if line.count("{") == 2]
    assert len(products) == 8
    assert len(from_registers) == 4


@tw.jit
def sums_kernel(a_ptr, b_ptr, c_ptr, d_ptr, FORM: tl.constexpr):
    i = tl.arange(0, 64)
    places = i[:, None] * 64 + i[None, :]
    a, b = tl.load(a_ptr + places), tl.load(b_ptr + places)
    top = tl.max(a, 1).to(tl.float32)
    if FORM == "equal along rows":
        acc = tl.broadcast_to(top[:, None], (64, 64))
    elif FORM == "needed later":
        acc = tl.load(c_ptr + places)
    elif FORM == "constant":
        acc = tl.full((64, 64), 3, tl.float32)
    else:
        acc = tl.zeros((64, 64), tl.float32)
        a = tl.full((64, 64), 2, tl.float16)
    tl.store(c_ptr + places, tl.dot((a + 1).to(tl.float16), b, acc))
    tl.store(d_ptr + places, acc)


@pytest.mark.parametrize("form", ["equal along rows", "needed later", "constant", "constant a"])
def test_sums_are_registers_of_their_own(form):
    a, b = small_integers((64, 64), np.float16, 0), small_integers((64, 64), np.float16, 1)
    c, d = small_integers((64, 64), np.float32, 2), np.zeros((64, 64), np.float32)
    for expected, got in harness.run_both(sums_kernel, (1,), [a, b, c, d], FORM=form):
        np.testing.assert_array_equal(got, expected)
