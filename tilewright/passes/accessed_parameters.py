"""Which pointer parameters every program surely accesses: an analysis, it rewrites nothing."""

from __future__ import annotations

from tilewright.errors import Location
from tilewright.ir.core import Function, Op, Param, Value
from tilewright.ops import (
    AtomicCas,
    AtomicRmw,
    Broadcast,
    ExpandDims,
    Hint,
    Load,
    Permute,
    PointerAdd,
    Reshape,
    Store,
)

__all__ = ["accessed_parameters"]


def accessed_parameters(function: Function) -> dict[int, Location | None]:
    """Return the positions of parameters that must not be null, and where they are accessed.

    Only accesses without a mask and outside branches and loops count, at offsets from the parameter
    itself.
    """
    found: dict[int, Location | None] = {}
    positions = {param: i for i, param in enumerate(function.params)}
    for op in function.body.ops:
        if isinstance(op, Load | Store | AtomicRmw | AtomicCas) and _is_unmasked(op):
            base = _base(op.pointer)
            if isinstance(base, Param) and base in positions:
                found.setdefault(positions[base], op.location)
    return found


def _is_unmasked(op: Op) -> bool:
    return getattr(op, "mask", None) is None


def _base(pointer: Value) -> Value:
    """Return what a pointer is an offset from."""
    while True:
        match pointer:
            case PointerAdd():
                pointer = pointer.pointer
            case Broadcast() | ExpandDims() | Hint() | Permute() | Reshape():
                pointer = pointer.operands[0]
            case _:
                return pointer
