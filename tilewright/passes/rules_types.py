"""Rules on conversions."""

from __future__ import annotations

from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType, ElementType
from tilewright.ops import Bitcast, Cast
from tilewright.passes.constants import is_unsaturated
from tilewright.passes.rules import Make

__all__ = ["bitcast", "cast", "represents"]


def represents(source: ElementType, wide: ElementType) -> bool:
    """Whether every value of `source` is a value of `wide` (conversion there loses nothing)."""
    if not isinstance(source, DType) or not isinstance(wide, DType):
        return False
    if source.is_int() and wide.is_int():
        (low, high), (wide_low, wide_high) = source.integer_range, wide.integer_range
        return wide_low <= low and high <= wide_high
    if source.is_int():
        magnitude_bits = source.primitive_bitwidth - source.is_int_signed()
        return not wide.is_fp8() and magnitude_bits <= wide.mantissa_bits + 1
    if wide.is_int() or wide.is_fp8():
        return False
    if source.is_fp8():
        return True  # their exponents and mantissas fit fp16 and bf16
    return source is wide or source.primitive_bitwidth < wide.primitive_bitwidth


def cast(op: Op, make: Make) -> Value | None:
    """Simplify a conversion by value."""
    match op:
        case Cast(x, to) if x.type.element is to and is_unsaturated(x):  # (T) x → x where x: T
            return x
        case Cast(Cast(x, middle), to, rounding) if _passes_through(x, middle, to) and _rounds(
            x, rounding
        ):
            return make(Cast(x, to, rounding))  # (T) (U) x → (T) x
    return None


def _passes_through(x: Value, middle: DType, to: DType) -> bool:
    """Whether going through `middle` changes nothing."""
    source = x.type.element
    if represents(source, middle):
        # Integers wrap on their way to integers, floats saturate.
        saturates = source.is_int() and middle.is_floating() and to.is_int() and not to.is_bool()
        return not saturates or represents(source, to)
    # Integers wrap: the low bits are the same on every way that keeps them.
    return (
        source.is_int()
        and not (middle.is_bool() or to.is_bool())
        and middle.is_int()
        and to.is_int()
        and to.primitive_bitwidth <= middle.primitive_bitwidth
    )


def _rounds(x: Value, rounding: str) -> bool:
    """Whether a conversion of `x` rounds so: only floats are rounded toward zero."""
    return rounding == "rtne" or x.type.element.is_floating()


def bitcast(op: Op, make: Make) -> Value | None:
    """Simplify a conversion of bits."""
    match op:
        case Bitcast(x, to) if x.type.element == to:  # bits as T of x: T → x
            return x
        case Bitcast(Bitcast(x), to) if not _mixes(x.type.element, to):
            return make(Bitcast(x, to))  # bits as T of (bits as U of x) → bits as T of x
    return None


def _mixes(a: ElementType, b: ElementType) -> bool:
    """Whether one is a pointer and the other a float: such bits pass through an integer."""
    return (a.is_ptr() and b.is_floating()) or (a.is_floating() and b.is_ptr())
