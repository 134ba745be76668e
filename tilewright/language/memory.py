"""Loads, stores, block pointers and atomics."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin, must_use_result
from tilewright.frontend.semantic import BlockPointer, block_pointer
from tilewright.frontend.semantic import memory as semantic
from tilewright.frontend.tensor import Tensor, member_of, tensor_member
from tilewright.ops import AtomicKind

__all__ = [
    "advance", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min",
    "atomic_or", "atomic_xchg", "atomic_xor", "load", "make_block_ptr", "store",
]  # fmt: skip


@member_of(Tensor, BlockPointer)
@builtin
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Tensor:
    """Return the elements at `pointer` where `mask` holds; elsewhere `other`, or 0.

    `pointer` is a scalar or a tile of pointers, broadcast against `mask` (bools); `other` is
    converted to the memory's type and broadcast to their shape. Masked-out lanes touch no memory.
    For a block pointer, the axes in `boundary_check` are checked against its shape, and places
    outside give 0, or NaN with `padding_option="nan"`. `cache_modifier` (`.ca`, `.cg`, `.cs`,
    `.cv`) and `eviction_policy` (`evict_first`, `evict_last`) are hints; a `volatile` load is
    neither repeated nor left out.

    >>> tl.load(x_ptr + tl.arange(0, 4), mask=tl.arange(0, 4) < 2, other=-1.0)
    tensor([ 0.,  1., -1., -1.], fp32[4])
    """
    return semantic.load(
        pointer,
        mask,
        other,
        boundary_check,
        padding_option,
        cache_modifier,
        eviction_policy,
        volatile=volatile,
    )


@member_of(Tensor, BlockPointer)
@builtin
def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write `value`, converted to the memory's type, to `pointer` where `mask` holds.

    Value and mask are broadcast to the pointer's shape, which does not grow. Of lanes with one
    address any may win. For a block pointer, places outside along the axes in `boundary_check` are
    not written. `cache_modifier` (`.wb`, `.cg`, `.cs`, `.wt`) and `eviction_policy` are hints.

    >>> tl.store(x_ptr + tl.arange(0, 4), tl.arange(0, 4) * 2)
    >>> tl.load(x_ptr + 3)
    6.0
    """
    semantic.store(pointer, value, mask, boundary_check, cache_modifier, eviction_policy)


@builtin
def make_block_ptr(
    base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> BlockPointer:
    """Return a window of `block_shape` at `offsets` of the array at `base` (`shape`, `strides`).

    `base` is a scalar pointer; the others have an entry for each axis: scalar integers, and for
    `block_shape` and `order` compile-time ones. All sizes count elements. `order` names the axes
    from the one closest in memory outward; it is a hint.

    >>> block = tl.make_block_ptr(x_ptr, (2, 3), (3, 1), (0, 1), (2, 2), (1, 0))
    >>> tl.load(block, boundary_check=(1,))
    tensor([[1., 2.],
            [4., 5.]], fp32[2, 2])
    """
    return block_pointer.make_block_ptr(base, shape, strides, offsets, block_shape, order)


@member_of(Tensor, BlockPointer)
@must_use_result
@builtin
def advance(base: Any, offsets: Any) -> BlockPointer:
    """Return a block pointer moved by `offsets` elements along each axis; `base` stays where it is.

    A kernel that does not use the result is refused.

    >>> block = tl.make_block_ptr(x_ptr, (8,), (1,), (0,), (2,), (0,))
    >>> tl.load(tl.advance(block, (4,)))
    tensor([4., 5.], fp32[2])
    """
    return block_pointer.advance(base, offsets)


@tensor_member
@builtin
def atomic_add(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Add `val` to the memory at `pointer` in one step and return the old elements.

    `pointer` is a scalar or a tile of pointers to 32- or 64-bit integers, fp16, bf16, fp32 or fp64;
    `val` and `mask` are broadcast to its shape. Masked-out lanes touch no memory and return 0.
    `sem` is `acquire`, `release`, `acq_rel` (the default) or `relaxed`; `scope` is `gpu` (the
    default), `cta` or `sys`. The other atomics are alike.

    >>> tl.atomic_add(x_ptr + 1, 2.5)
    1.0
    >>> tl.load(x_ptr + 1)
    3.5
    """
    return semantic.atomic_rmw(AtomicKind.ADD, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_max(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Store the larger of memory and `val` in one step and return the old elements.

    >>> tl.atomic_max(x_ptr + 1, 5.0), tl.load(x_ptr + 1)
    (1.0, 5.0)
    """
    return semantic.atomic_rmw(AtomicKind.MAX, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_min(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Store the smaller of memory and `val` in one step and return the old elements.

    >>> tl.atomic_min(x_ptr + 1, -5.0), tl.load(x_ptr + 1)
    (1.0, -5.0)
    """
    return semantic.atomic_rmw(AtomicKind.MIN, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_and(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Combine memory with `val` by `&` in one step and return the old elements: integers only."""
    return semantic.atomic_rmw(AtomicKind.AND, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_or(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Combine memory with `val` by `|` in one step and return the old elements: integers only."""
    return semantic.atomic_rmw(AtomicKind.OR, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_xor(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Combine memory with `val` by `^` in one step and return the old elements: integers only."""
    return semantic.atomic_rmw(AtomicKind.XOR, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_xchg(
    pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Replace the memory at `pointer` by `val` in one step and return the old elements.

    >>> tl.atomic_xchg(x_ptr + 2, 9.0), tl.load(x_ptr + 2)
    (2.0, 9.0)
    """
    return semantic.atomic_rmw(AtomicKind.XCHG, pointer, val, mask, sem, scope)


@tensor_member
@builtin
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> Tensor:
    """Where memory equals `cmp` bit for bit, replace it by `val`; return the old elements.

    Elements have 16, 32 or 64 bits. `sem` and `scope` are as in `atomic_add`.

    >>> tl.atomic_cas(x_ptr + 2, 2.0, 7.0), tl.load(x_ptr + 2)
    (2.0, 7.0)
    """
    return semantic.atomic_cas(pointer, cmp, val, sem, scope)
