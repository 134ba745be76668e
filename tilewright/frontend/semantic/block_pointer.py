"""Block pointers: a window of a strided array in memory, moved as a whole.

A block pointer is a bundle of scalars that lives in the frontend only. A load or store turns it
into a tile of pointers and a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic.arithmetic import add, bit_and, multiply, offset_pointer
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.comparison import compare
from tilewright.frontend.semantic.shapes import broadcast_to, normalized_axis, reshape
from tilewright.frontend.semantic.values import as_tensor, describe, fail, to_constants
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, ElementType, PointerType
from tilewright.ops import Arange, Predicate

__all__ = ["BlockPointer", "advance", "block_mask", "block_pointers", "make_block_ptr"]

INT64 = DTYPES["i64"]


@dataclass(frozen=True, eq=False)
class BlockPointer:
    """A window of shape `block_shape` at `offsets` of an array (`base`, `shape`, `strides`).

    Loops and branches carry its tensors, which they find as fields of a dataclass.
    """

    base: Tensor
    shape: tuple[Tensor, ...]
    strides: tuple[Tensor, ...]
    offsets: tuple[Tensor, ...]
    block_shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def dtype(self) -> ElementType:
        """The type of the pointer."""
        return self.base.dtype


def _wide(values: Any, what: str) -> tuple[Tensor, ...]:
    values = unwrap(values)
    items = values if isinstance(values, tuple | list) else (values,)
    tensors = tuple(as_tensor(item, what) for item in items)
    for tensor in tensors:
        if tensor.shape or not tensor.dtype.is_int():
            fail(
                f"{what}: expected scalar integers, got {describe(tensor)}",
                hint="pass ints or scalar integers, for instance x.to(tl.int32)",
            )
    return tuple(convert(t, INT64) for t in tensors)


def make_block_ptr(
    base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> BlockPointer:
    """Return a block pointer; `order` names the axes from the one closest in memory (a hint)."""
    if not (isinstance(base, Tensor) and isinstance(base.dtype, PointerType) and not base.shape):
        fail(
            f"make_block_ptr: the base must be a scalar pointer, got {describe(base)}",
            hint="pass the array's own parameter, and offsets by `offsets`",
        )
    result = BlockPointer(
        base,
        _wide(shape, "make_block_ptr: shape"),
        _wide(strides, "make_block_ptr: strides"),
        _wide(offsets, "make_block_ptr: offsets"),
        to_constants(block_shape, "make_block_ptr: each size of the block"),
        to_constants(order, "make_block_ptr: each axis of the order"),
    )
    rank = len(result.block_shape)
    lengths = [len(x) for x in (result.shape, result.strides, result.offsets, result.order)]
    if any(length != rank for length in lengths):
        fail(
            f"make_block_ptr: shape, strides, offsets and order need {rank} entries, as "
            f"block_shape has, got {lengths}",
            hint="give each a number for each axis",
        )
    if sorted(result.order) != list(range(rank)):
        fail(
            f"make_block_ptr: {list(result.order)} is not an order of {rank} axes",
            hint="name each axis once, the fastest first: order=(1, 0)",
        )
    return result


def advance(base: BlockPointer, offsets: Any) -> BlockPointer:
    """Return the window moved by `offsets` elements along each axis."""
    if not isinstance(base, BlockPointer):
        fail(
            f"advance: expected a block pointer, got {describe(base)}",
            hint="make one by tl.make_block_ptr; other pointers advance by +",
        )
    steps = _wide(offsets, "advance: offsets")
    if len(steps) != len(base.offsets):
        fail(
            f"advance: expected {len(base.offsets)} offsets, got {len(steps)}",
            hint="give a number for each axis, 0 where it stays",
        )
    moved = tuple(add(a, b) for a, b in zip(base.offsets, steps, strict=True))
    return replace(base, offsets=moved)


def block_pointers(block: BlockPointer) -> Tensor:
    """Return the tile of pointers that the window covers."""
    corner = block.base
    for offset, stride in zip(block.offsets, block.strides, strict=True):
        corner = offset_pointer("+", corner, multiply(offset, stride))
    pointers = corner
    for axis, stride in enumerate(block.strides):
        pointers = offset_pointer("+", pointers, multiply(_places(block, axis), stride))
    return broadcast_to(pointers, block.block_shape)


def block_mask(block: BlockPointer, boundary_check: Any, name: str) -> Tensor | None:
    """Return where the checked axes lie inside the array, or None where none is checked."""
    rank = len(block.block_shape)
    mask: Tensor | None = None
    for checked in to_constants(boundary_check, f"{name}: each axis of boundary_check"):
        axis = normalized_axis(checked, rank, f"{name}: boundary_check")
        place = add(_places(block, axis), block.offsets[axis])
        inside = bit_and(
            compare(Predicate.GE, place, 0), compare(Predicate.LT, place, block.shape[axis])
        )
        mask = inside if mask is None else bit_and(mask, inside)
    return None if mask is None else broadcast_to(mask, block.block_shape)


def _places(block: BlockPointer, axis: int) -> Tensor:
    size = block.block_shape[axis]
    column = [size if i == axis else 1 for i in range(len(block.block_shape))]
    return convert(reshape(emit(Arange, 0, size), column), INT64)
