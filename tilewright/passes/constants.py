"""What rules ask about constants, and folding: a pure op on constants is evaluated.

A constant is a `Full`, scalar or tile; no other tile is ever written out as a constant.
"""

from __future__ import annotations

import numpy as np

from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType, TileType
from tilewright.ops import Bitcast, Cast, Elementwise, Full, PointerAdd, Select
from tilewright.ops.numerics import Array, widen

__all__ = [
    "all_ones", "fold", "is_elementwise", "is_exact_float", "is_integer", "is_unsaturated", "splat",
]  # fmt: skip

_ELEMENTWISE = (Elementwise, Select, Cast, Bitcast, PointerAdd)


def is_elementwise(op: Op) -> bool:
    """Whether each element of the result depends on the operands' elements at the same place."""
    return isinstance(op, _ELEMENTWISE)


def is_integer(value: Value) -> bool:
    """Whether the elements are integers or bools."""
    element = value.type.element
    return isinstance(element, DType) and element.is_int()


def is_unsaturated(value: Value) -> bool:
    """Whether arithmetic hands every element through; fp8 results saturate: infinity is lost."""
    return not value.type.element.is_fp8()


def is_exact_float(value: Value) -> bool:
    """Whether the elements are floats that arithmetic hands through."""
    return value.type.element.is_floating() and is_unsaturated(value)


def all_ones(type_: TileType) -> int:
    """Return the integer of an integer type whose bits are all set."""
    element = type_.element
    assert isinstance(element, DType)
    return -1 if element.is_int_signed() else element.integer_range[1]


def splat(value: float, like: Value) -> Full:
    """Return the constant of the type of `like` (not appended yet)."""
    element = like.type.element
    if element.is_bool():
        value = bool(value)
    return Full(float(value) if element.is_floating() else value, like.type)


def fold(op: Op) -> Full | None:
    """Return the constant that an elementwise op on constants computes, if it is exactly one."""
    element = op.type.element if len(op.results) == 1 else None
    if not isinstance(element, DType) or not is_elementwise(op):
        return None
    elements = []
    for operand in op.operands:
        if not isinstance(operand, Full) or not isinstance(operand.of.element, DType):
            return None
        elements.append(Full(operand.value, TileType(operand.of.element)).evaluate())
    result = np.asarray(op.evaluate(*elements), element.numpy)
    constant = Full(_number(result, element), op.type)
    again = Full(constant.value, TileType(element)).evaluate()
    # NaN payloads and the spare codes of fp8 are not numbers: such a result stays computed.
    return constant if again.tobytes() == result.tobytes() else None


def _number(x: Array, element: DType) -> float:
    if element.is_bool():
        return bool(x)
    return int(x) if element.is_int() else float(widen(x, element))
