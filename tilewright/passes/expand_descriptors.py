"""Access through tensor descriptors as loads, stores and atomics on tiles of pointers, with masks.

    %x = descriptor_load %base, [%m, %n], [%s], [%i, %j] {block=[64, 32]} : fp16[64, 32]

        →   %p = (%base + %i * %s + %j) + arange(64)[:, None] * %s + arange(32)[None, :]
            %inside = (%i + arange(64) < %m)[:, None] & (%j + arange(32) < %n)[None, :]
            %x = load %p, %inside : fp16[64, 32]

The indices are compared as unsigned numbers: one below 0 is then a large one, and outside. That 16
bytes divide the base and the strides is handed on as a promise, so rows are known to be aligned.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright import ops
from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DTYPES
from tilewright.ops.descriptor import ALIGNMENT_BYTES

__all__ = ["expand_descriptors"]

_I64, _U32 = DTYPES["i64"], DTYPES["u32"]


def expand_descriptors(
    function: Function, keeps: Callable[[ops.DescriptorOp], bool] | None = None
) -> Function:
    """Replace every op on a tensor descriptor but those that a target `keeps`."""

    def expand(op: Op, emit: Emit) -> Value | tuple[Value, ...] | None:
        if not isinstance(op, ops.DescriptorOp) or (keeps is not None and keeps(op)):
            return None
        return _expand(op, emit)

    return rewrite(function, expand)


def _expand(op: ops.DescriptorOp, emit: Emit) -> Value | tuple[Value, ...]:
    pointers, inside = _pointers(op, emit), _inside(op, emit)
    match op:
        case ops.DescriptorLoad(padding=padding) | ops.DescriptorGather(padding=padding):
            is_zero = padding is ops.Padding.ZERO
            other = None if is_zero else emit(ops.Full(math.nan, op.type))
            return emit(ops.Load(pointers, inside, other))
        case ops.DescriptorStore(value=value) | ops.DescriptorScatter(value=value):
            emit(ops.Store(pointers, value, inside))
        case ops.DescriptorReduce(kind=kind, value=value):
            emit(ops.AtomicRmw(kind, pointers, value, inside, sem="relaxed"))
    return ()


def _pointers(op: ops.DescriptorOp, emit: Emit) -> Value:
    """The corner of the block, a scalar, and from there the offsets along each axis."""
    elements = max(1, ALIGNMENT_BYTES // op.element.itemsize)
    strides: list[Value | None] = [
        emit(ops.Hint(stride, "multiple_of", (elements,))) for stride in op.strides
    ]
    strides.append(None)
    corner: Value = emit(ops.Hint(op.base, "multiple_of", (ALIGNMENT_BYTES,)))
    for first, stride in zip(op.indices, strides, strict=True):
        if not first.shape:
            corner = emit(ops.PointerAdd(corner, _scaled(first, stride, emit)))
    pointers: Value = emit(ops.Broadcast(corner, op.block_shape))
    for axis, (first, stride) in enumerate(zip(op.indices, strides, strict=True)):
        places = first if first.shape else emit(ops.Arange(0, op.block_shape[axis]))
        offsets = _along(axis, _scaled(places, stride, emit), op.block_shape, emit)
        pointers = emit(ops.PointerAdd(pointers, offsets))
    return pointers


def _scaled(places: Value, stride: Value | None, emit: Emit) -> Value:
    """Return places times a stride; None is the last axis, whose stride is 1."""
    if stride is None:
        return places
    factor = emit(ops.Broadcast(stride, places.shape)) if places.shape else stride
    return emit(ops.Mul(emit(ops.Cast(places, _I64)), factor))


def _inside(op: ops.DescriptorOp, emit: Emit) -> Value:
    """Return which elements of the block are elements of the array."""
    inside: Value | None = None
    for axis, (first, size) in enumerate(zip(op.indices, op.sizes, strict=True)):
        shape = op.block_shape[axis : axis + 1]
        places = first
        if not first.shape:
            repeated = emit(ops.Broadcast(first, shape))
            places = emit(ops.Add(repeated, emit(ops.Arange(0, shape[0]))))
        count = emit(ops.Maximum(size, emit(ops.Full(0, size.type))))
        limit = emit(ops.Broadcast(emit(ops.Bitcast(count, _U32)), shape))
        below = emit(ops.Compare(ops.Predicate.LT, emit(ops.Bitcast(places, _U32)), limit))
        mask = _along(axis, below, op.block_shape, emit)
        inside = mask if inside is None else emit(ops.And(inside, mask))
    assert inside is not None  # there is an axis
    return inside


def _along(axis: int, row: Value, shape: tuple[int, ...], emit: Emit) -> Value:
    """Spread a 1-d tile over the other axes."""
    for other in range(len(shape)):
        if other != axis:
            row = emit(ops.ExpandDims(row, other))
    return row if row.shape == shape else emit(ops.Broadcast(row, shape))
