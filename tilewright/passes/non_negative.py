"""Whether a number is surely not negative, from what it is computed with."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ops import (
    Add,
    And,
    Arange,
    Broadcast,
    Cast,
    Div,
    ExpandDims,
    Full,
    Hint,
    Maximum,
    Minimum,
    Mul,
    NumPrograms,
    Or,
    Permute,
    ProgramId,
    Rem,
    Reshape,
    Select,
    ShiftRight,
    Xor,
)
from tilewright.passes.axis_lattice import Facts

__all__ = ["is_non_negative"]


def is_non_negative(value: Value, facts: Facts) -> bool:
    """Return whether no element is below 0; sums and products are taken not to wrap."""
    if value not in facts.non_negative:
        facts.non_negative[value] = _computed(value, facts)
    return facts.non_negative[value]


def _computed(value: Value, facts: Facts) -> bool:
    if value.type.element.is_int_unsigned():
        return True
    match value:
        case Full(c):
            return c >= 0
        case Arange(start):
            return start >= 0
        case ProgramId() | NumPrograms():
            return True
        case (
            Broadcast(x)
            | ExpandDims(x)
            | Reshape(x)
            | Permute(x)
            | Hint(x)
            | Rem(x)  # has the sign of x
            | ShiftRight(x)
        ):
            return is_non_negative(x, facts)
        case Cast(x, to):
            bits = x.type.element.primitive_bitwidth
            room = to.primitive_bitwidth - bits + x.type.element.is_int_signed()
            return x.type.element.is_int() and room > 0 and is_non_negative(x, facts)
        case (
            Add(x, y)
            | Mul(x, y)
            | Div(x, y)
            | Or(x, y)
            | Xor(x, y)
            | Minimum(x, y)
            | Select(_, x, y)
        ):
            return is_non_negative(x, facts) and is_non_negative(y, facts)
        case And(x, y) | Maximum(x, y):
            return is_non_negative(x, facts) or is_non_negative(y, facts)
    return False
