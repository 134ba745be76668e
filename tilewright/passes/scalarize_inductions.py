"""Carry a scalar through a loop instead of a tile that only moves by the same step everywhere.

Kernels advance tiles of pointers (`a_ptrs += BLOCK_K * stride`). Such a tile is its first value
plus one number, so the loop carries the number; the tile becomes a recipe again, whose contiguity
is plain to see.

    for ... (%p = %p0) {            →   for ... (%o = 0) {
      ...                                 %p = pointer_add %p0, broadcast(%o)
      yield pointer_add %p, %step         ...
    }                                     yield %o + step
                                        }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import ops
from tilewright.ir.builder import Emit, clone_op, rewrite
from tilewright.ir.core import Block, Function, Op, Param, Value
from tilewright.ir.types import DTYPES, DType, PointerType, TileType

__all__ = ["scalarize_inductions"]


@dataclass(frozen=True)
class _Induction:
    """Carried tile number `index`; `steps` are scalars or uniform constants of the body."""

    index: int
    init: Value
    steps: tuple[Value, ...]

    @property
    def offset_dtype(self) -> DType:
        element = self.init.type.element
        return DTYPES["i64"] if isinstance(element, PointerType) else element


def scalarize_inductions(function: Function) -> Function:
    """Rewrite every counted loop that carries such tiles."""
    return rewrite(function, _rule)


def _rule(op: Op, emit: Emit) -> tuple[Value, ...] | None:
    if not isinstance(op, ops.For):
        return None
    found = [i for i in range(len(op.inits)) if op.inits[i].shape]
    inductions = [x for x in (_induction(op, i) for i in found) if x is not None]
    if not inductions:
        return None
    moved = {x.index: x for x in inductions}
    kept = [i for i in range(len(op.inits)) if i not in moved]
    zeros = [emit(ops.Full(0, TileType(x.offset_dtype))) for x in inductions]
    body = _body(op, inductions, kept)
    attributes = {**op.attributes}
    inits = (*(op.inits[i] for i in kept), *zeros)
    loop = emit(ops.For(op.start, op.stop, op.step, inits, body, **attributes))
    results: list[Value] = list(op.results)
    for position, i in enumerate(kept):
        results[i] = loop.results[position]
    for number, x in enumerate(inductions):
        results[x.index] = _advanced(x, loop.results[len(kept) + number], emit)
    return tuple(results)


def _induction(op: ops.For, index: int) -> _Induction | None:
    """Read `param + step + step ...` backwards from the yield."""
    param, value = op.body.params[index + 1], op.body.yields[index]
    inside = set(op.body.ops)
    steps: list[Value] = []
    while value is not param:
        match value:
            case ops.PointerAdd(pointer=inner, offset=step):
                pass
            case ops.Add(inner, step) if not isinstance(param.type.element, PointerType):
                if _scalar(step) is None:
                    inner, step = step, inner
            case _:
                return None
        if _scalar(step) is None or value not in inside:
            return None
        steps.append(step)
        value = inner
    if not steps or param.type.element.is_floating():
        return None
    return _Induction(index, op.inits[index], tuple(reversed(steps)))


def _scalar(tile: Value) -> Value | None:
    """Return what a uniform tile repeats: a scalar, or the constant tile itself."""
    match tile:
        case ops.Broadcast(x=x) if not x.shape:
            return x
        case ops.Full():
            return tile
    return None


def _body(op: ops.For, inductions: list[_Induction], kept: list[int]) -> Block:
    old = op.body
    index = Param(old.params[0].type, old.params[0].name)
    carried = {i: Param(old.params[i + 1].type, old.params[i + 1].name) for i in kept}
    offsets = [
        Param(TileType(x.offset_dtype), f"{old.params[x.index + 1].name}_offset")
        for x in inductions
    ]
    block = Block((index, *carried.values(), *offsets))

    def emit(new: Op) -> Op:
        new.location = new.location or op.location
        block.ops.append(new)
        return new

    known: dict[Value, Value] = {old.params[0]: index}
    known.update({old.params[i + 1]: param for i, param in carried.items()})
    for x, offset in zip(inductions, offsets, strict=True):
        known[old.params[x.index + 1]] = _advanced(x, offset, emit)
    for inner in old.ops:
        new = clone_op(inner, known)
        block.ops.append(new)
        known.update(zip(inner.results, new.results, strict=True))
    moved = [_sum(x, offset, known, emit) for x, offset in zip(inductions, offsets, strict=True)]
    block.yields = (*(known.get(old.yields[i], old.yields[i]) for i in kept), *moved)
    return block


def _advanced(x: _Induction, offset: Value, emit: Emit) -> Value:
    tile = emit(ops.Broadcast(offset, x.init.shape))
    adds_to_pointer = isinstance(x.init.type.element, PointerType)
    return emit(ops.PointerAdd(x.init, tile) if adds_to_pointer else ops.Add(x.init, tile))


def _sum(x: _Induction, offset: Value, known: dict[Value, Value], emit: Emit) -> Value:
    total = offset
    for step in x.steps:
        scalar = _scalar(known.get(step, step))
        if isinstance(scalar, ops.Full) and scalar.shape:
            scalar = emit(ops.Full(scalar.value, TileType(scalar.type.element)))
        assert scalar is not None
        if scalar.type.element != x.offset_dtype:
            scalar = emit(ops.Cast(scalar, x.offset_dtype))
        total = emit(ops.Add(total, scalar))
    return total
