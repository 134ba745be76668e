"""Loop nests of the CPU: what is kept in memory between them, and which masks are left out."""

import re

import numpy as np

import tilewright as tw
import tilewright.language as tl

ROWS, BLOCK = 4, 256


@tw.jit
def variances_kernel(
    x_ptr, out_ptr, rows, columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows)[:, None] & (column < columns)
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * stride + column, mask, 0.0)
    mean = tl.sum(x, axis=1) / columns
    distance = tl.where(mask, x - mean[:, None], 0.0)
    tl.store(out_ptr + row, tl.sum(distance * distance, axis=1) / columns, row < rows)


def variances(rows, columns):
    x = np.random.default_rng(rows).standard_normal((rows, columns + 5), dtype=np.float32)
    out = np.empty(rows, np.float32)
    grid = (tw.cdiv(rows, ROWS),)
    kernel = variances_kernel[grid](x, out, rows, columns, columns + 5, ROWS=ROWS, BLOCK=BLOCK)
    np.testing.assert_allclose(out, x[:, :columns].var(axis=1), rtol=1e-4)
    return kernel


def test_masks_that_are_full_select_nothing():
    variances(10, BLOCK)
    kernel = variances(7, 201)
    # Once in the nest with masks, for each of its vectors; not in that without.
    selections = [line for line in kernel.asm["llir"].splitlines() if "select <" in line]
    assert 0 < len(selections) <= 4


@tw.jit
def counts_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.program_id(0) + 1
    x = tl.load(x_ptr + column, mask, 0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.where(mask, weight, 0) + x))


def test_what_they_select_may_be_the_same_for_all_elements():
    for columns in (16, 13):  # one vector, which no loop surrounds
        out = np.empty(2, np.int32)
        counts_kernel[(2,)](np.ones(16, np.int32), out, columns, BLOCK=16)
        assert out.tolist() == [2 * columns, 3 * columns]


def test_consecutive_loads_are_read_again_not_kept():
    # The sums of rows are all that has to be in memory, not elements and not their addresses.
    assert variances(8, BLOCK).code.scratch_bytes < 2 * ROWS * BLOCK


@tw.jit
def chosen_kernel(x_ptr, flags_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    is_chosen = tl.load(flags_ptr + column) != 0
    x = tl.load(x_ptr + column, mask, 0)
    tl.store(out_ptr + BLOCK, tl.sum(tl.where(is_chosen, x, -x)))
    tl.store(out_ptr + column, column, is_chosen)


def test_a_mask_without_a_test_that_selects_does_not_keep_others():
    x, flags = np.arange(BLOCK, dtype=np.int32), np.arange(BLOCK, dtype=np.int32) % 3
    for columns in (BLOCK, BLOCK - 5):
        out = np.zeros(BLOCK + 1, np.int32)
        kernel = chosen_kernel[(1,)](x, flags, out, columns, BLOCK=BLOCK)
        assert out[-1] == np.where(flags != 0, x, -x)[:columns].sum()
        np.testing.assert_array_equal(out[:-1], np.where(flags != 0, x, 0))
    assert len(re.findall(r"^whole\w*:", kernel.asm["llir"], re.MULTILINE)) == 1
