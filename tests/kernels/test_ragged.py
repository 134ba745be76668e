"""Parts of one array that have their own numbers of rows, read and written by one descriptor."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.tools.ragged_tma import (
    atomic_add_ragged,
    create_ragged_descriptor,
    load_ragged,
    store_ragged,
)


@tw.jit
def move(x, y, total, start, size, row, BATCHED: tl.constexpr):
    """Blocks of rows from one part, to another place and into a sum."""
    if BATCHED:
        block = load_ragged(x, start, size, [1, row, 0], ragged_dim=1)
        store_ragged(y, start + 1, size, [0, row, 0], block, ragged_dim=1)
        atomic_add_ragged(total, start, size, [0, row, 0], block, 1)
    else:
        block = load_ragged(x, start, size, [row, 0])
        store_ragged(y, start + 1, size, [row, 0], block)
        atomic_add_ragged(total, start, size, [row, 0], block)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_a_part_ends_where_the_kernel_says(launch, dtype, axis):
    shape, block = ((20, 16), [8, 16]) if axis == 0 else ((2, 20, 16), [1, 8, 16])
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    y, total = np.full_like(x, -1), np.ones_like(x)
    described = [create_ragged_descriptor(a, block, ragged_dim=axis) for a in (x, y, total)]
    launch(move, (1,), *described, 5, 11, 8, BATCHED=axis != 0)
    rows = x if axis == 0 else x[1]
    moved, summed = (a if axis == 0 else a[0] for a in (y, total))
    expected, expected_sum = np.full_like(rows, -1), np.ones_like(rows)
    expected[14:17] = rows[13:16]
    expected_sum[13:16] += rows[13:16]
    assert np.array_equal(moved, expected)
    assert np.array_equal(summed, expected_sum)
    if axis != 0:
        assert (y[1] == -1).all()


@pytest.mark.parametrize(("shape", "axis"), [((8, 8), 1), ((8, 8), -1), ((2, 2, 2, 8), 0)])
def test_axes_that_cannot_have_parts(shape, axis):
    with pytest.raises(tw.LaunchError, match="cannot have the parts"):
        create_ragged_descriptor(np.zeros(shape, np.float32), shape, ragged_dim=axis)
