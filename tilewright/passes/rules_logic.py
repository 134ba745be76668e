"""Rules on bits, comparisons and selections."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType
from tilewright.ops import And, Broadcast, Cast, Compare, Full, Invert, Or, Predicate, Select, Xor
from tilewright.passes.constants import all_ones, is_integer, splat
from tilewright.passes.rules import Make

__all__ = ["bitwise", "compare", "invert", "select"]

_SWAPPED = {
    Predicate.EQ: Predicate.EQ,
    Predicate.NE: Predicate.NE,
    Predicate.LT: Predicate.GT,
    Predicate.LE: Predicate.GE,
    Predicate.GT: Predicate.LT,
    Predicate.GE: Predicate.LE,
}

_NEGATED = {
    Predicate.EQ: Predicate.NE,
    Predicate.NE: Predicate.EQ,
    Predicate.LT: Predicate.GE,
    Predicate.LE: Predicate.GT,
    Predicate.GT: Predicate.LE,
    Predicate.GE: Predicate.LT,
}


def bitwise(op: Op, make: Make) -> Value | None:
    """Simplify an and, or, exclusive or."""
    ones = all_ones(op.type)
    match op:
        case And(Full() as c, x) | Or(Full() as c, x) | Xor(Full() as c, x) if not isinstance(
            x, Full
        ):
            return make(type(op)(x, c))  # c & x → x & c
        case And(x, y) | Or(x, y) if x is y:  # x & x → x
            return x
        case Xor(x, y) if x is y:  # x ^ x → 0
            return make(splat(0, op))
        case And(_, Full(0) as zero):  # x & 0 → 0
            return zero
        case Or(x, Full(0)) | Xor(x, Full(0)):  # x | 0 → x, x ^ 0 → x
            return x
        case And(x, Full(c)) if c == ones:  # x & -1 → x
            return x
        case Or(_, Full(c) as full) if c == ones:  # x | -1 → -1
            return full
        case Xor(x, Full(c)) if c == ones:  # x ^ -1 → ~x
            return make(Invert(x))
        case (
            And(And(x, Full() as c), Full() as d)
            | Or(Or(x, Full() as c), Full() as d)
            | Xor(Xor(x, Full() as c), Full() as d)
        ):
            return make(type(op)(x, make(type(op)(c, d))))  # (x & c) & d → x & (c & d)
        case And(And() as inner, outer) | Or(Or() as inner, outer) | Xor(Xor() as inner, outer):
            return _scalars_first(op, inner.operands, outer, make)
    return None


def _scalars_first(op: Op, inner: Sequence[Value], outer: Value, make: Make) -> Value | None:
    """(x & repeat(a)) & repeat(b) → x & repeat(a & b) for scalars a and b."""
    for x, repeated in (inner, inner[::-1]):
        match repeated, outer:
            case Broadcast(a), Broadcast(b) if a.type.is_scalar and b.type.is_scalar:
                return make(type(op)(x, make(Broadcast(make(type(op)(a, b)), op.shape))))
    return None


def invert(op: Op, make: Make) -> Value | None:
    """Simplify a complement."""
    match op:
        case Invert(Invert(x)):  # ~~x → x
            return x
        case Invert(Compare(predicate, x, y)) if is_integer(x) or predicate in {"eq", "ne"}:
            return make(Compare(_NEGATED[Predicate(predicate)], x, y))  # ~(x < y) → x >= y
    return None


def compare(op: Op, make: Make) -> Value | None:
    """Simplify a comparison."""
    match op:
        case Compare(predicate, Full() as c, x) if not isinstance(x, Full):  # c < x → x > c
            return make(Compare(_SWAPPED[Predicate(predicate)], x, c))
        case Compare(predicate, x, y) if x is y and is_integer(x):  # x < x → false, x <= x → true
            return make(splat(predicate in {"eq", "le", "ge"}, op))
        case Compare("ne", Cast(b), Full(0)) if b.type.element.is_bool():  # int(b) != 0 → b
            return b
        case Compare("eq", Cast(b), Full(0)) if b.type.element.is_bool():  # int(b) == 0 → ~b
            return make(Invert(b))
        case Compare("eq" | "ne" as predicate, b, Full(c)) if b.type.element.is_bool():
            return b if (predicate == "eq") == c else make(Invert(b))  # b == true → b
        case Compare(predicate, x, Full(c)):
            answer = _at_the_end(predicate, c, x)  # unsigned: x < 0 → false, x >= 0 → true
            return None if answer is None else make(splat(answer, op))
    return None


def _at_the_end(predicate: str, c: float, x: Value) -> bool | None:
    """Return the answer where no value of the integer type of x lies beyond c."""
    element = x.type.element
    if not isinstance(element, DType) or not element.is_int():
        return None
    low, high = element.integer_range
    if (predicate == "lt" and c == low) or (predicate == "gt" and c == high):
        return False
    if (predicate == "ge" and c == low) or (predicate == "le" and c == high):
        return True
    return None


def select(op: Op, make: Make) -> Value | None:
    """Simplify a selection."""
    match op:
        case Select(_, x, y) if x is y:  # c ? x : x → x
            return x
        case Select(Full(c), x, y):  # true ? x : y → x
            return x if c else y
        case Select(Invert(c), x, y):  # ~c ? x : y → c ? y : x
            return make(Select(c, y, x))
        case Select(c, Full(1), Full(0)) if op.type.element.is_bool():  # c ? true : false → c
            return c
        case Select(c, Full(0), Full(1)) if op.type.element.is_bool():  # c ? false : true → ~c
            return make(Invert(c))
        case Select(c, Select(d, x, _), y) if c is d:  # c ? (c ? x : z) : y → c ? x : y
            return make(Select(c, x, y))
        case Select(c, x, Select(d, _, y)) if c is d:  # c ? x : (c ? z : y) → c ? x : y
            return make(Select(c, x, y))
    return None
