"""Rules on sums, products and their like. Every equation holds for every bit pattern of its types.

Integers wrap, so their sums and products may be regrouped. Floats may not; what holds for them,
holds with -0.0, infinities and NaN (of which arithmetic keeps neither sign nor payload).
"""

from __future__ import annotations

import math

from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType
from tilewright.ops import (
    Abs,
    Add,
    Cast,
    Div,
    Full,
    Maximum,
    Minimum,
    Mul,
    Neg,
    PointerAdd,
    Rem,
    ShiftLeft,
    ShiftRight,
    Sub,
)
from tilewright.passes.constants import is_exact_float, is_integer, is_unsaturated, splat
from tilewright.passes.rules import Make
from tilewright.passes.rules_types import represents

__all__ = [
    "absolute", "add", "div", "minimum_or_maximum", "mul", "neg", "pointer_add", "rem", "shift",
    "sub",
]  # fmt: skip


def _is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def add(op: Op, make: Make) -> Value | None:
    """Simplify a sum."""
    integers = is_integer(op)
    match op:
        case Add(Full() as c, x) if not isinstance(x, Full):  # c + x → x + c
            return make(Add(x, c))
        case Add(x, Full(0)) if integers:  # x + 0 → x
            return x
        case Add(x, Full(c)) if _is_negative_zero(c) and is_exact_float(op):  # x + -0.0 → x
            return x
        case Add(Add(x, Full() as c), Full() as d) if integers:  # (x + c) + d → x + (c + d)
            return make(Add(x, make(Add(c, d))))
        case Add(x, Neg(y)) if is_unsaturated(op):  # x + -y → x - y
            return make(Sub(x, y))
        case Add(Neg(x), y) if is_unsaturated(op):  # -x + y → y - x
            return make(Sub(y, x))
        case Add(Sub(x, y), z) if integers and y is z:  # (x - y) + y → x
            return x
    return None


def sub(op: Op, make: Make) -> Value | None:
    """Simplify a difference."""
    integers = is_integer(op)
    match op:
        case Sub(x, y) if integers and x is y:  # x - x → 0
            return make(splat(0, op))
        case Sub(x, Full(0)) if integers:  # x - 0 → x
            return x
        case Sub(x, Full(0 as c)) if not _is_negative_zero(c) and is_exact_float(op):  # x - 0.0 → x
            return x
        case Sub(x, Full() as c) if integers and op.type.element.is_int_signed():  # x - c → x + -c
            return make(Add(x, make(Neg(c))))
        case Sub(Full(0), x) if integers:  # 0 - x → -x
            return make(Neg(x))
        case Sub(x, Neg(y)) if is_unsaturated(op):  # x - -y → x + y
            return make(Add(x, y))
        case Sub(Add(x, y), z) if integers and x is z:  # (x + y) - x → y
            return y
        case Sub(Add(x, y), z) if integers and y is z:  # (x + y) - y → x
            return x
    return None


def mul(op: Op, make: Make) -> Value | None:
    """Simplify a product."""
    integers = is_integer(op)
    match op:
        case Mul(Full() as c, x) if not isinstance(x, Full):  # c * x → x * c
            return make(Mul(x, c, op.is_rounded))
        case Mul(x, Full(1)) if is_unsaturated(op):  # x * 1 → x
            return x
        case Mul(x, Full(-1)) if is_unsaturated(op):  # x * -1 → -x
            return make(Neg(x))
        case Mul(_, Full(0) as zero) if integers:  # x * 0 → 0
            return zero
        case Mul(Mul(x, Full() as c), Full() as d) if integers:  # (x * c) * d → x * (c * d)
            return make(Mul(x, make(Mul(c, d))))
    return None


def div(op: Op, make: Make) -> Value | None:
    """Simplify a quotient."""
    match op:
        case Div(x, Full(1)) if is_unsaturated(op):  # x / 1 → x
            return x
        case Div(Full(0) as zero, _) | Div(_, Full(0) as zero) if is_integer(op):
            return zero  # 0 / x → 0, x / 0 → 0
        case Div(x, Full(c)) if is_exact_float(op) and _has_exact_reciprocal(c, op.type.element):
            return make(Mul(x, make(splat(1 / c, op))))  # x / 2^k → x * 2^-k
    return None


def _has_exact_reciprocal(c: float, element: object) -> bool:
    """Whether c is a power of two and 1 / c a normal number."""
    if not isinstance(element, DType) or c == 0 or not math.isfinite(c):
        return False
    fraction, exponent = math.frexp(c)
    return abs(fraction) == 0.5 and 2 - element.exponent_bias <= exponent < element.exponent_bias


def rem(op: Op, make: Make) -> Value | None:
    """Simplify a remainder."""
    match op:
        case Rem(_, Full(1 | -1)) if is_integer(op):  # x % 1 → 0
            return make(splat(0, op))
        case Rem(Full(0) as zero, _) | Rem(_, Full(0) as zero) if is_integer(op):
            return zero  # 0 % x → 0, x % 0 → 0
        case Rem(Rem(_, y) as x, z) if is_integer(op) and y is z:  # (x % y) % y → x % y
            return x
    return None


def shift(op: Op, make: Make) -> Value | None:
    """Simplify a shift."""
    match op:
        case ShiftLeft(x, Full(0)) | ShiftRight(x, Full(0)):  # x << 0 → x, x >> 0 → x
            return x
        case ShiftLeft(Full(0) as zero, _) | ShiftRight(Full(0) as zero, _):  # 0 << x → 0
            return zero
    return None


def minimum_or_maximum(op: Op, make: Make) -> Value | None:
    """Simplify a minimum or maximum."""
    match op:
        case Minimum(x, y) | Maximum(x, y) if x is y and is_unsaturated(op):  # min(x, x) → x
            return x
        case Minimum(Full() as c, x, nan) if not isinstance(x, Full):  # min(c, x) → min(x, c)
            return make(Minimum(x, c, nan))
        case Maximum(Full() as c, x, nan) if not isinstance(x, Full):  # max(c, x) → max(x, c)
            return make(Maximum(x, c, nan))
    return None


def neg(op: Op, make: Make) -> Value | None:
    """Simplify a negation."""
    match op:
        case Neg(Neg(x)) if is_unsaturated(op):  # - -x → x
            return x
        case Neg(Sub(x, y)) if is_integer(op):  # -(x - y) → y - x
            return make(Sub(y, x))
    return None


def absolute(op: Op, make: Make) -> Value | None:
    """Simplify a magnitude."""
    match op:
        case Abs(Abs() as x) if is_unsaturated(op):  # ||x|| → |x|
            return x
        case Abs(Neg(x)) if is_unsaturated(op) and not op.type.element.is_int_unsigned():
            return make(Abs(x))  # |-x| → |x| (for unsigned types -x is 2^n - x)
    return None


def pointer_add(op: Op, make: Make) -> Value | None:
    """Simplify an address."""
    match op:
        case PointerAdd(p, Full(0)):  # p + 0 → p
            return p
        case PointerAdd(PointerAdd(p, Full(c)), Full(d) as last) if _fits(c + d, last):
            # (p + c) + d → p + (c + d), where the sum does not wrap: offsets are extended first
            return make(PointerAdd(p, make(splat(c + d, last))))
        case PointerAdd(p, Cast(x, to)) if represents(x.type.element, to):  # p + wide(x) → p + x
            return make(PointerAdd(p, x))
    return None


def _fits(value: float, like: Value) -> bool:
    element = like.type.element
    assert isinstance(element, DType)
    low, high = element.integer_range
    return low <= value <= high
