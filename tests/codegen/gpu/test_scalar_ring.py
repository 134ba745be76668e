"""Scalars that loops copy ahead, beside the tiles of their iterations."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import ptx_of, small_integers

TARGETS = list(harness.TARGETS)
SCALAR_COPY = r"@%p\d+ cp\.async\.ca\.shared\.global"  # by one thread


def slow(value):
    """A parameter for which tests run only where all do."""
    return pytest.param(value, marks=pytest.mark.slow)


@tw.jit
def two_sums_kernel(
    x_ptr, table_ptr, scale_ptr, shift_ptr, y_ptr, rows, columns,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Rows as a table says, with numbers of their own: all but the shift are copied ahead."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        source = tl.load(table_ptr + row)
        x = tl.load(x_ptr + source * columns + column, mask=inside, other=0.0)
        scale = tl.load(scale_ptr + row, mask=row % 3 != 1, other=0.0)
        scaled = x * scale
        first = tl.sum(scaled, axis=0) + tl.load(shift_ptr + row, mask=row % 5 != 1, other=2.0)
        second = tl.sum(scaled * x, axis=0) + source
        tl.store(y_ptr + row * columns + column, scaled + first - second, mask=inside)


def rows_of_integers(rows, columns):
    x, scale, shift = (
        small_integers(shape, np.float32, seed)
        for seed, shape in enumerate([(rows, columns), rows, rows])
    )
    table = np.random.default_rng(3).permutation(rows).astype(np.int32)
    return [x, table, scale, shift, np.zeros_like(x), rows, columns]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stages", [1, 2, 3, slow(4), 5])
@pytest.mark.parametrize("columns", [256, slow(1000), 1024])
@pytest.mark.parametrize("rows", [0, 1, slow(2), 7])
def test_scalars_are_copied_ahead(target, stages, columns, rows):
    constants = {"BLOCK": 1024 if columns > 256 else 256, "STAGES": stages}
    values = rows_of_integers(rows, columns)
    harness.check(two_sums_kernel, (2,), values, target=target, num_warps=4, **constants)


def test_warps_meet_twice_for_a_row_that_is_copied_ahead():
    """Once for the row, once for both sums; and no load is waited for that begins there."""
    values = rows_of_integers(40, 1000)
    ptx = ptx_of(two_sums_kernel, values, BLOCK=1024, STAGES=3, num_warps=4)
    in_the_loop = ptx[: ptx.rindex("cp.async.wait_group")]
    assert in_the_loop.count("bar.sync") == 2
    assert "ld.global" not in ptx[ptx.index("ld.shared") : ptx.index("shfl.sync")]


@tw.jit
def scaled_kernel(
    x_ptr, scale_ptr, y_ptr, rows, columns, FIRST: tl.constexpr, OTHER: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows times numbers that begin anywhere in their array; some numbers are masked."""
    column = tl.arange(0, BLOCK)
    for row in tl.range(0, rows, num_stages=3):
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=OTHER)
        scale = tl.load(scale_ptr + FIRST + row, mask=row % 2 == 0)
        scale = tl.where(row % 2 == 0, scale, 0).to(tl.float32)
        tl.store(y_ptr + row * BLOCK + column, x * scale)


def scaled(dtype, *, first=0, other=0.0, columns=100, rows=5):
    x, scale = small_integers((rows, columns)), small_integers(first + rows, dtype, 1)
    values = [x, scale, np.zeros((rows, 128), np.float32), rows, columns]
    return values, {"FIRST": first, "OTHER": other, "BLOCK": 128, "num_warps": 2}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", [0, 1, slow(2), 3])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int64, np.float64])
def test_scalars_of_4_and_8_bytes_begin_anywhere(target, dtype, first):
    values, options = scaled(dtype, first=first)
    assert re.search(SCALAR_COPY, ptx_of(scaled_kernel, values, target=target, **options))
    harness.check(scaled_kernel, (1,), values, target=target, **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.uint16])
def test_smaller_scalars_are_loaded(target, dtype):
    values, options = scaled(dtype, first=1)
    ptx = ptx_of(scaled_kernel, values, target=target, **options)
    assert "cp.async" in ptx
    assert not re.search(SCALAR_COPY, ptx)
    harness.check(scaled_kernel, (1,), values, target=target, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_scalars_beside_tiles_that_pass_by_registers(target):
    """No copy writes ones where a tile is masked."""
    values, options = scaled(np.float32, other=1.0)
    assert re.search(SCALAR_COPY, ptx_of(scaled_kernel, values, target=target, **options))
    harness.check(scaled_kernel, (1,), values, target=target, **options)


@tw.jit
def beside_rows_kernel(x_ptr, z_ptr, scale_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in tl.range(0, rows, num_stages=3):
        x = tl.load(x_ptr + row * BLOCK + column)
        z = tl.load(z_ptr + row * columns + column, mask=column < columns, other=0.0)
        scale = tl.load(scale_ptr + row)
        tl.store(y_ptr + row * BLOCK + column, tl.sum(x + z, axis=0) + x * scale)


@pytest.mark.parametrize("target", TARGETS)
def test_scalars_beside_rows_that_one_thread_asks_for(target):
    """Of those a barrier counts the bytes; of the scalars and the masked rows, threads count."""
    x, z, scale = small_integers((5, 512)), small_integers((5, 500)), small_integers(5)
    values = [x, z, scale, np.zeros_like(x), 5, 500]
    ptx = ptx_of(beside_rows_kernel, values, target=target, BLOCK=512)
    assert ("cp.async.bulk" in ptx) == (target == "h100")
    harness.check(beside_rows_kernel, (1,), values, target=target, BLOCK=512)


@tw.jit
def recurrence_kernel(x_ptr, total_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    """Each iteration needs a number that the one before it has stored."""
    column = tl.arange(0, BLOCK)
    for row in tl.range(0, rows, num_stages=3):
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
        before = tl.load(total_ptr + row)
        tl.store(y_ptr + row * BLOCK + column, x + before)
        tl.store(total_ptr + row + 1, tl.sum(x, axis=0) + before)


@pytest.mark.parametrize("target", TARGETS)
def test_scalars_that_the_loop_stores_are_not_copied_ahead(target):
    values = [small_integers((5, 100)), np.zeros(6, np.float32), np.zeros((5, 128), np.float32)]
    harness.check(recurrence_kernel, (1,), [*values, 5, 100], target=target, BLOCK=128)
