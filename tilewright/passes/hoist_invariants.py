"""Pure ops that compute the same in every iteration move in front of the loop.

    for ... {                          %b = mul %x, %y
      %b = mul %x, %y           →      for ... {
      ...                                ...

Loads stay: the loop may not run, and what another program writes meanwhile must be seen. What a
target makes from almost nothing (`Full`, `Arange`, changes of shape) stays too, since a tile that
lives across the loop costs more, unless something that moves needs it.
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, rewrite, with_fields
from tilewright.ir.core import Block, Effect, Function, Op, Value
from tilewright.ops import (
    Arange,
    Broadcast,
    ExpandDims,
    For,
    Full,
    Hint,
    Permute,
    Reshape,
    While,
)

__all__ = ["hoist_invariants"]

_CHEAP = (Arange, Broadcast, ExpandDims, Full, Hint, Permute, Reshape)


def hoist_invariants(function: Function) -> Function:
    """Move what does not change out of loops, the innermost first."""
    return rewrite(function, _hoist_from_loop)


def _hoist_from_loop(op: Op, emit: Emit) -> tuple[Value, ...] | None:
    if not isinstance(op, For | While) or (isinstance(op, For) and op.disable_licm):
        return None
    blocks = {}
    for name in op.region_fields:
        block = getattr(op, name)
        hoisted = _invariant(block)
        if hoisted:
            for moved in hoisted:
                emit(moved)
            blocks[name] = Block(
                block.params, [o for o in block.ops if o not in hoisted], block.yields
            )
    return emit(with_fields(op, **blocks)).results if blocks else None


def _invariant(block: Block) -> dict[Op, None]:
    """Return the ops to move, in order."""
    staying: set[Value] = set(block.params)
    cheap: set[Value] = set()
    hoisted: dict[Op, None] = {}

    def hoist(op: Op) -> None:
        for value in _uses(op):
            if isinstance(value, Op) and value in cheap and value not in hoisted:
                hoist(value)
        hoisted[op] = None

    for op in block.ops:
        if not staying.isdisjoint(_uses(op)) or op.effects is not Effect.NONE:
            staying.update(op.results)
        elif isinstance(op, _CHEAP):
            cheap.add(op)
        else:
            hoist(op)
    return hoisted


def _uses(op: Op) -> list[Value]:
    """Return the operands of the op and of everything in its regions."""
    uses = list(op.operands)
    for region in op.regions:
        for inner in region.ops:
            uses += _uses(inner)
        uses += region.yields
    return uses
