"""Tiles in other shapes: the same elements moved, none computed."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import promotion, shapes, values
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.ops import Cat, Join

__all__ = [
    "broadcast", "broadcast_to", "cat", "expand_dims", "flip", "gather", "interleave", "item",
    "join", "permute", "ravel", "reshape", "split", "squeeze", "trans", "unsqueeze", "view",
]  # fmt: skip


@builtin
def broadcast(input: Any, other: Any) -> tuple[Tensor, ...]:
    """Return both tiles in their common shape; sizes must be equal or 1, aligned at the end."""
    left, right = values.as_tensor(input, "broadcast"), values.as_tensor(other, "broadcast")
    return shapes.broadcast_tensors("broadcast", left, right)


@tensor_member
@builtin
def broadcast_to(input: Any, *shape: Any) -> Tensor:
    """Repeat `input` along axes of size 1, and along new axes in front, up to `shape`."""
    tensor = values.as_tensor(input, "broadcast_to")
    return shapes.broadcast_to(tensor, values.as_shape(shape, "broadcast_to"))


@tensor_member
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> Tensor:
    """Give the elements another shape in row-major order; one size may be -1.

    `can_reorder` allows another order; the row-major one is always kept.
    """
    return shapes.reshape(values.as_tensor(input, "reshape"), shape)


@tensor_member
@builtin
def view(input: Any, *shape: Any) -> Tensor:
    """Give the elements another shape: an older name of `reshape`."""
    return shapes.reshape(values.as_tensor(input, "view"), shape, "view")


@tensor_member
@builtin
def ravel(x: Any, can_reorder: bool = False) -> Tensor:
    """Return the elements as a 1-d tile, in row-major order."""
    tensor = values.as_tensor(x, "ravel")
    return shapes.reshape(tensor, (tensor.numel,), "ravel")


@tensor_member
@builtin
def item(input: Any) -> Tensor:
    """Return the only element of a tile as a scalar."""
    return shapes.reshape(values.as_tensor(input, "item"), (), "item")


@tensor_member
@builtin
def expand_dims(input: Any, axis: Any) -> Tensor:
    """Insert an axis of size 1 at `axis`, or several; positions count in the result."""
    return shapes.expand_dims(values.as_tensor(input, "expand_dims"), axis)


@tensor_member
@builtin
def unsqueeze(x: Any, dim: Any) -> Tensor:
    """Insert an axis of size 1 at `dim`."""
    return shapes.expand_dims(values.as_tensor(x, "unsqueeze"), dim)


@tensor_member
@builtin
def squeeze(x: Any, dim: Any) -> Tensor:
    """Remove the axis `dim`, whose size must be 1."""
    return shapes.squeeze(values.as_tensor(x, "squeeze"), dim)


@tensor_member
@builtin
def permute(input: Any, *dims: Any) -> Tensor:
    """Reorder the axes: axis `i` of the result is axis `dims[i]` of `input`."""
    return shapes.permute(values.as_tensor(input, "permute"), dims)


@tensor_member
@builtin
def trans(input: Any, *dims: Any) -> Tensor:
    """Reorder the axes; without `dims`, swap the last two."""
    tensor = values.as_tensor(input, "trans")
    return shapes.permute(tensor, dims, "trans") if dims else shapes.transpose(tensor)


@builtin
def join(a: Any, b: Any) -> Tensor:
    """Stack two tiles of one shape along a new last axis of size 2."""
    return emit(Join, *promotion.promote_tensors("join", a, b))


@tensor_member
@builtin
def split(a: Any) -> tuple[Tensor, ...]:
    """Return the two halves along a last axis of size 2: the opposite of `join`."""
    return shapes.split(values.as_tensor(a, "split"))


@builtin
def interleave(a: Any, b: Any) -> Tensor:
    """Return `a[0], b[0], a[1], b[1], ...` along the last axis, twice as long."""
    joined = emit(Join, *promotion.promote_tensors("interleave", a, b))
    *rest, size, _ = joined.shape if len(joined.shape) > 1 else (1, 2)
    return shapes.reshape(joined, (*rest, 2 * size))


@builtin
def cat(input: Any, other: Any, can_reorder: bool = False, dim: int = 0) -> Tensor:
    """Put `other` behind `input` along `dim`; their sizes may differ there."""
    left, right = values.as_tensor(input, "cat"), values.as_tensor(other, "cat")
    if left.dtype != right.dtype:
        values.fail(
            f"cat: the types differ, {values.describe(left)} and {values.describe(right)}",
            "convert one of them with .to(...)",
        )
    return emit(Cat, left, right, shapes.normalized_axis(dim, len(left.shape), "cat"))


@tensor_member
@builtin
def flip(x: Any, dim: Any = None) -> Tensor:
    """Reverse the elements along `dim` (the last axis)."""
    return shapes.flip(values.as_tensor(x, "flip"), dim)


@tensor_member
@builtin
def gather(src: Any, index: Any, axis: Any) -> Tensor:
    """Return `src[..., index[..., i, ...], ...]` along `axis`; an index outside gives 0.

    `index` has the rank of `src` and may differ from its shape along `axis` only.
    """
    source, places = values.as_tensor(src, "gather"), values.as_tensor(index, "gather: the index")
    return shapes.gather(source, places, axis)
