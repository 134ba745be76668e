"""Parts of one array, each with its own number of rows, as blocks of a single descriptor.

The parts lie one behind the other along one axis, and only the kernel knows where a part begins
and how long it is. A descriptor that does not change has to end where the part does. With B the
size that the descriptor states for the axis of rows, of stride s, the row r of the part of n rows
from row `start` on has three coordinates:

- B - n + r on that axis, which is outside from r = n on;
- `start` + n on an axis in front of it, of stride s too;
- B on another one, whose stride is 2^34 - s: with B = 2^30 that moves the address by 2^64 - B s.

Addresses are numbers modulo 2^64, and what is left of the sum is (start + r) s.
"""

# As in the standard library of the language: parameters have the types of their arguments.
# ruff: noqa: ANN001, ANN201, ANN202
# ruff: noqa: RUF005 - in kernels, lists are put together by `+`
# mypy: disable-error-code="assignment, no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.runtime.jit import jit
from tilewright.runtime.tensor_descriptor import TensorDescriptor

__all__ = ["atomic_add_ragged", "create_ragged_descriptor", "load_ragged", "store_ragged"]

# B, and beside it what 2^30 steps of that stride need to come to 2^64.
_ROWS: tl.constexpr = tl.constexpr(2**30)
_FULL_TURN = 2**34
# More than any coordinate on the two axes in front; whole numbers of every block.
_UNBOUNDED = 0x7FFF0000
_MOST_AXES = 3


def create_ragged_descriptor(
    T: Any, block_shape: Sequence[int], ragged_dim: int = 0
) -> TensorDescriptor:
    """Return a descriptor of the parts of `T` along `ragged_dim`, which is not the last axis.

    `T` has 2 or 3 axes and at most 2^30 rows. Only `load_ragged`, `store_ragged` and
    `atomic_add_ragged` read it. Raises `LaunchError` for other arrays.

    >>> import numpy as np
    >>> create_ragged_descriptor(np.zeros((10, 8), np.float32), [4, 8]).block_shape
    [1, 1, 4, 8]
    """
    described = TensorDescriptor.from_tensor(T, block_shape)
    shape, strides = list(described.shape), list(described.strides)
    axis = ragged_dim + len(shape) if ragged_dim < 0 else ragged_dim
    if len(shape) > _MOST_AXES or not 0 <= axis < len(shape) - 1:
        raise LaunchError(
            f"create_ragged_descriptor: axis {ragged_dim} of {len(shape)} cannot have the parts",
            hint=f"an array has 2 or {_MOST_AXES} axes, and parts along any but the last",
        )
    if shape[axis] > _ROWS.value:
        raise LaunchError(
            f"create_ragged_descriptor: {shape[axis]} rows are more than 2**30",
            hint="make descriptors of parts of the array",
        )
    rows = strides[axis]
    shape[axis] = _ROWS.value
    return TensorDescriptor(
        T,
        [_UNBOUNDED, _UNBOUNDED, *shape],
        [_FULL_TURN - rows, rows, *strides],
        [1, 1, *described.block_shape],
    )


@jit
def _coordinates(start, size, coords, ragged_dim: tl.constexpr):
    """The coordinates of a block on all axes of the descriptor."""
    row = _ROWS - size + coords[ragged_dim]
    inner = coords[:ragged_dim] + [row] + coords[ragged_dim + 1 :]
    return [_ROWS, start + size] + inner


@jit
def load_ragged(TMA, batch_offset, batch_size, coords, ragged_dim: tl.constexpr = 0):
    """Return the block at `coords` of the part of `batch_size` rows that begins at `batch_offset`.

    What lies behind the part is 0. The coordinates count within the part and are not negative.
    """
    places = _coordinates(batch_offset, batch_size, coords, ragged_dim)
    block = TMA.load(places)
    return tl.reshape(block, block.shape[2:])


@jit
def store_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Write `data` to the block at `coords` of such a part; what lies behind the part stays."""
    places = _coordinates(batch_offset, batch_size, coords, ragged_dim)
    TMA.store(places, tl.reshape(data, [1, 1] + data.shape))


@jit
def atomic_add_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Add `data` to such a block by atomic operations; what lies behind the part stays."""
    places = _coordinates(batch_offset, batch_size, coords, ragged_dim)
    TMA.atomic_add(places, tl.reshape(data, [1, 1] + data.shape))
