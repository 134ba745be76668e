"""What the rows of a store have in common, and takes much arithmetic, is computed once."""

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def spread(out_ptr, width, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    at = column // width * step + column % width
    out_ptrs = out_ptr + row * 256 + at[None, :]
    tl.store(out_ptrs, row * 1000 + column[None, :], (column % width < width - 1)[None, :])


def test_divisions_of_columns_are_not_in_the_loop_over_rows():
    out = np.full((8, 256), -1, np.int32)
    kernel = spread[(1,)](out, 5, 7, ROWS=8, COLUMNS=64)
    expected = np.full((8, 256), -1, np.int32)
    for column in range(64):
        if column % 5 < 4:
            expected[:, column // 5 * 7 + column % 5] = np.arange(8) * 1000 + column
    np.testing.assert_array_equal(out, expected)
    before, _, store = kernel.asm["llir"].partition("masked.scatter")
    last_loop = before.rpartition("\nloop")[2]
    assert "div" in before
    assert "div" not in last_loop
    assert "rem" not in last_loop
    assert "div" not in store


@tw.jit
def spread_by_sum(x_ptr, out_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    width = tl.sum(tl.load(x_ptr + column)) + 1
    at = column // width * 7 + column % width
    tl.store(out_ptr + row * 256 + at[None, :], row * 1000 + column[None, :])


def test_columns_wait_for_what_is_computed_from_a_sum():
    x, out = np.zeros(64, np.int32), np.full((8, 256), -1, np.int32)
    x[3] = 4
    spread_by_sum[(1,)](x, out, ROWS=8, COLUMNS=64)
    expected = np.full((8, 256), -1, np.int32)
    for column in range(64):
        expected[:, column // 5 * 7 + column % 5] = np.arange(8) * 1000 + column
    np.testing.assert_array_equal(out, expected)
