"""Broadcasting, reshaping and reordering of tiles."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic.values import (
    as_shape,
    describe,
    fail,
    to_constant,
    to_constants,
)
from tilewright.frontend.tensor import Tensor, tensor_operator
from tilewright.ops import (
    Arange,
    Broadcast,
    ExpandDims,
    Gather,
    Permute,
    Reshape,
    Split,
)
from tilewright.spelling import integer_text

__all__ = [
    "arange", "broadcast_tensors", "broadcast_to", "expand_dims", "flip",
    "gather", "move_axis_last", "normalized_axis", "permute", "reshape", "split", "squeeze", "take",
    "transpose",
]  # fmt: skip


def normalized_axis(axis: Any, rank: int, name: str) -> int:
    """Return a compile-time axis counted from the front, from one that may be negative."""
    number = to_constant(axis, f"{name}: the axis")
    if not -rank <= number < rank:
        fail(
            f"{name}: no axis {number} in a tile of rank {rank}",
            hint=f"axes count from 0 to {rank - 1}, or backwards from -1"
            if rank
            else "a scalar has none",
        )
    return number % rank


def arange(start: Any, end: Any) -> Tensor:
    """Return the int32 numbers from `start` up to `end`."""
    first, last = to_constant(start, "arange: the start"), to_constant(end, "arange: the end")
    if not -(2**31) <= first <= last <= 2**31:
        bounds = f"{integer_text(first)}, {integer_text(last)}"
        fail(
            f"arange: the numbers must fit int32 and not fall, got arange({bounds})",
            hint="write tl.arange(0, n); add or multiply for other numbers",
        )
    return emit(Arange, first, last)


def _broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return what two shapes broadcast to, or None: sizes equal or 1, aligned at the end."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(m != n and 1 not in {m, n} for m, n in zip(left, right, strict=True)):
        return None
    return tuple(n if m == 1 else m for m, n in zip(left, right, strict=True))


def broadcast_tensors(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Broadcast tensors against each other."""
    shape = tensors[0].shape
    for other in tensors[1:]:
        wider = _broadcast_shape(shape, other.shape)
        if wider is None:
            shown = " and ".join(str(list(t.shape)) for t in tensors)
            fail(
                f"{name}: the shapes {shown} do not fit together",
                "sizes must be equal or 1; add axes with x[:, None] or x[None, :]",
            )
        shape = wider
    return tuple(broadcast_to(t, shape, name) for t in tensors)


def broadcast_to(x: Tensor, shape: tuple[int, ...], name: str = "broadcast_to") -> Tensor:
    """Repeat `x` along axes of size 1, and along new axes in front, up to `shape`."""
    if x.shape == shape:
        return x
    if _broadcast_shape(x.shape, shape) != shape:
        fail(
            f"{name}: a tile of shape {list(x.shape)} does not broadcast to {list(shape)}",
            hint="only axes of size 1 are repeated: add some by x[:, None], or x.expand_dims(axis)",
        )
    if x.shape:
        for _ in range(len(shape) - len(x.shape)):
            x = emit(ExpandDims, x, 0)
    return x if x.shape == shape else emit(Broadcast, x, shape)


def reshape(x: Tensor, shape: Any, name: str = "reshape") -> Tensor:
    """Give the elements another shape in row-major order; one size may be -1."""
    sizes = list(as_shape(shape, name))
    if sizes.count(-1) == 1:
        known = -prod(sizes)
        if known == 0 or x.numel % known:
            fail(
                f"{name}: {list(x.shape)} has no size for -1 in {sizes}",
                hint="leave at most one size out, and let the others divide the elements",
            )
        sizes[sizes.index(-1)] = x.numel // known
    return x if tuple(sizes) == x.shape else emit(Reshape, x, tuple(sizes))


def expand_dims(x: Tensor, axis: Any) -> Tensor:
    """Insert axes of size 1, at positions in the result."""
    axes = to_constants(axis, "expand_dims: the axis")
    rank = len(x.shape) + len(axes)
    positions = sorted(normalized_axis(a, rank, "expand_dims") for a in axes)
    if len(set(positions)) != len(positions):
        fail(f"expand_dims: an axis is named twice in {list(axes)}", hint="name each new axis once")
    for position in positions:
        x = emit(ExpandDims, x, position)
    return x


def squeeze(x: Tensor, dim: Any) -> Tensor:
    """Remove an axis of size 1."""
    axis = normalized_axis(dim, len(x.shape), "squeeze")
    if x.shape[axis] != 1:
        fail(
            f"squeeze: axis {axis} of {list(x.shape)} has size {x.shape[axis]}, not 1",
            hint="only axes of size 1 go away: reduce it, for instance tl.sum(x, axis)",
        )
    return emit(Reshape, x, x.shape[:axis] + x.shape[axis + 1 :])


def permute(x: Tensor, dims: Any, name: str = "permute") -> Tensor:
    """Reorder the axes: axis `i` of the result is axis `dims[i]`."""
    order = as_shape(dims, name)
    rank = len(x.shape)
    if sorted(d % rank if rank and -rank <= d < rank else d for d in order) != [*range(rank)]:
        fail(
            f"{name}: {list(order)} is not an order of the {rank} axes of {list(x.shape)}",
            hint="name each axis once",
        )
    order = tuple(d % rank for d in order)
    return x if order == tuple(range(rank)) else emit(Permute, x, order)


@tensor_operator("transpose")
def transpose(x: Tensor) -> Tensor:
    """Swap the last two axes."""
    rank = len(x.shape)
    if rank < 2:
        fail(
            f"trans: expected a tile of at least 2 axes, got {describe(x)}",
            hint="add an axis: x[None, :]",
        )
    return emit(Permute, x, (*range(rank - 2), rank - 1, rank - 2))


def move_axis_last(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return `x` with `axis` behind all others, and the order that undoes it."""
    rank = len(x.shape)
    order = (*range(axis), *range(axis + 1, rank), axis)
    inverse = tuple(order.index(i) for i in range(rank))
    return permute(x, order), inverse


def split(x: Tensor) -> tuple[Tensor, ...]:
    """Return the halves along a last axis of size 2."""
    return emit_all(Split, x)


def gather(x: Tensor, index: Tensor, axis: Any) -> Tensor:
    """Pick elements along `axis` by their index."""
    return emit(Gather, x, index, normalized_axis(axis, len(x.shape), "gather"))


def flip(x: Tensor, dim: Any = None) -> Tensor:
    """Reverse the elements along `dim` (the last axis)."""
    rank = len(x.shape)
    if not rank:
        fail(
            f"flip: expected a tile, got the scalar {describe(x)}", hint="pass a tile, and the axis"
        )
    axis = rank - 1 if dim is None else normalized_axis(dim, rank, "flip")
    size = x.shape[axis]
    return take(x, (size - 1) - emit(Arange, 0, size), axis)


def take(x: Tensor, places: Tensor, axis: int) -> Tensor:
    """Return the elements at a 1-d tile of places along `axis`."""
    (count,) = places.shape
    column = reshape(places, [count if i == axis else 1 for i in range(len(x.shape))])
    return emit(
        Gather, x, broadcast_to(column, (*x.shape[:axis], count, *x.shape[axis + 1 :])), axis
    )
