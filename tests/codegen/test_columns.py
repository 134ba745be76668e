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
