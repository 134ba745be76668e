"""Tiles in other shapes: the same elements moved, none computed."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import casts, promotion, shapes, values
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.ops import Cat, Join

__all__ = [
    "broadcast", "broadcast_to", "cat", "expand_dims", "flip", "gather", "interleave", "item",
    "join", "permute", "ravel", "reshape", "split", "squeeze", "trans", "unsqueeze", "view",
]  # fmt: skip


@builtin
def broadcast(input: Any, other: Any) -> tuple[Tensor, ...]:
    """Return both tiles in their common shape; sizes must be equal or 1, aligned at the end.

    >>> x, y = tl.broadcast(tl.arange(0, 2)[:, None], tl.arange(0, 3))
    >>> x.shape, y.shape
    ((2, 3), (2, 3))
    """
    left, right = values.as_tensor(input, "broadcast"), values.as_tensor(other, "broadcast")
    return shapes.broadcast_tensors("broadcast", left, right)


@tensor_member
@builtin
def broadcast_to(input: Any, *shape: Any) -> Tensor:
    """Repeat `input` along axes of size 1, and along new axes in front, up to `shape`.

    `shape` is a sequence of compile-time ints, or several ints.

    >>> tl.broadcast_to(tl.arange(0, 3), 2, 3)
    tensor([[0, 1, 2],
            [0, 1, 2]], i32[2, 3])
    """
    tensor = values.as_tensor(input, "broadcast_to")
    return shapes.broadcast_to(tensor, values.as_shape(shape, "broadcast_to"))


@tensor_member
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> Tensor:
    """Give the elements another shape in row-major order; one size may be -1.

    `shape` is a sequence of compile-time ints, or several ints, whose product is the number of
    elements. `can_reorder` allows another order; the row-major one is always kept.

    >>> tl.reshape(tl.arange(0, 6), 2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]], i32[2, 3])
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
    """Return the elements as a 1-d tile, in row-major order.

    >>> tl.ravel(tl.arange(0, 4).reshape(2, 2))
    tensor([0, 1, 2, 3], i32[4])
    """
    tensor = values.as_tensor(x, "ravel")
    return shapes.reshape(tensor, (tensor.numel,), "ravel")


@tensor_member
@builtin
def item(input: Any) -> Tensor:
    """Return the only element of a tile as a scalar.

    >>> tl.arange(7, 8).item()
    7
    """
    return shapes.reshape(values.as_tensor(input, "item"), (), "item")


@tensor_member
@builtin
def expand_dims(input: Any, axis: Any) -> Tensor:
    """Insert an axis of size 1 at `axis`, or several; positions count in the result.

    >>> tl.expand_dims(tl.arange(0, 3), (0, -1)).shape
    (1, 3, 1)
    """
    return shapes.expand_dims(values.as_tensor(input, "expand_dims"), axis)


@tensor_member
@builtin
def unsqueeze(x: Any, dim: Any) -> Tensor:
    """Insert an axis of size 1 at `dim`.

    >>> tl.unsqueeze(tl.arange(0, 3), 1).shape
    (3, 1)
    """
    return shapes.expand_dims(values.as_tensor(x, "unsqueeze"), dim)


@tensor_member
@builtin
def squeeze(x: Any, dim: Any) -> Tensor:
    """Remove the axis `dim`, whose size must be 1.

    >>> tl.squeeze(tl.zeros((3, 1), tl.float32), 1).shape
    (3,)
    """
    return shapes.squeeze(values.as_tensor(x, "squeeze"), dim)


@tensor_member
@builtin
def permute(input: Any, *dims: Any) -> Tensor:
    """Reorder the axes: axis `i` of the result is axis `dims[i]` of `input`.

    `dims` is a sequence of compile-time ints, or several ints.

    >>> tl.permute(tl.zeros((2, 3, 4), tl.float32), 2, 0, 1).shape
    (4, 2, 3)
    """
    return shapes.permute(values.as_tensor(input, "permute"), dims)


@tensor_member
@builtin
def trans(input: Any, *dims: Any) -> Tensor:
    """Reorder the axes as `permute` does; without `dims`, swap the last two.

    >>> tl.trans(tl.arange(0, 4).reshape(2, 2))
    tensor([[0, 2],
            [1, 3]], i32[2, 2])
    """
    tensor = values.as_tensor(input, "trans")
    return shapes.permute(tensor, dims, "trans") if dims else shapes.transpose(tensor)


@builtin
def join(a: Any, b: Any) -> Tensor:
    """Stack two tiles along a new last axis of size 2, broadcast and in their common type.

    >>> tl.join(tl.arange(0, 2), tl.arange(5, 7))
    tensor([[0, 5],
            [1, 6]], i32[2, 2])
    """
    return emit(Join, *_alike("join", a, b))


def _alike(name: str, a: Any, b: Any) -> tuple[Tensor, ...]:
    """Bring two tiles to one type and shape: integers of one width to the type of the first."""
    left = values.as_tensor(a, name)
    return promotion.promote_tensors(name, left, _with_sign_of(left, values.as_tensor(b, name)))


def _with_sign_of(first: Tensor, second: Tensor) -> Tensor:
    """Return a tile as the integer type of another, if they differ in the sign alone."""
    one, other = first.dtype, second.dtype
    is_alike = one.is_int() and other.is_int()
    if is_alike and one.primitive_bitwidth == other.primitive_bitwidth:
        return casts.cast(second, one, bitcast=True)
    return second


@tensor_member
@builtin
def split(a: Any) -> tuple[Tensor, ...]:
    """Return the two halves along a last axis of size 2: the opposite of `join`.

    >>> tl.split(tl.arange(0, 4).reshape(2, 2))
    (tensor([0, 2], i32[2]), tensor([1, 3], i32[2]))
    """
    return shapes.split(values.as_tensor(a, "split"))


@builtin
def interleave(a: Any, b: Any) -> Tensor:
    """Return `a[0], b[0], a[1], b[1], ...` along the last axis, twice as long.

    >>> tl.interleave(tl.arange(0, 2), tl.arange(5, 7))
    tensor([0, 5, 1, 6], i32[4])
    """
    joined = emit(Join, *_alike("interleave", a, b))
    *rest, size, _ = joined.shape if len(joined.shape) > 1 else (1, 2)
    return shapes.reshape(joined, (*rest, 2 * size))


@builtin
def cat(input: Any, other: Any, can_reorder: bool = False, dim: int = 0) -> Tensor:
    """Put `other` behind `input` along `dim`, where their sizes may differ; their types may not.

    `can_reorder` allows another order of the elements; this one is always kept.

    >>> tl.cat(tl.arange(0, 2), tl.arange(7, 10))
    tensor([0, 1, 7, 8, 9], i32[5])
    """
    left = values.as_tensor(input, "cat")
    right = _with_sign_of(left, values.as_tensor(other, "cat"))
    if left.dtype != right.dtype:
        values.fail(
            f"cat: the types differ, {values.describe(left)} and {values.describe(right)}",
            "convert one of them with .to(...)",
        )
    return emit(Cat, left, right, shapes.normalized_axis(dim, len(left.shape), "cat"))


@tensor_member
@builtin
def flip(x: Any, dim: Any = None) -> Tensor:
    """Reverse the elements along `dim` (the last axis).

    >>> tl.flip(tl.arange(0, 4))
    tensor([3, 2, 1, 0], i32[4])
    """
    return shapes.flip(values.as_tensor(x, "flip"), dim)


@tensor_member
@builtin
def gather(src: Any, index: Any, axis: Any) -> Tensor:
    """Return `src[..., index[..., i, ...], ...]` along `axis`; an index outside gives 0.

    `index` has integers, the rank of `src`, and may differ from its shape along `axis` only.

    >>> tl.gather(tl.arange(10, 14), tl.arange(2, 5), axis=0)
    tensor([12, 13,  0], i32[3])
    """
    source, places = values.as_tensor(src, "gather"), values.as_tensor(index, "gather: the index")
    return shapes.gather(source, places, axis)
