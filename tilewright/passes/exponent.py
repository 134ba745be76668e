"""Floats by their bits: taking off the exponent, putting powers of two and signs together."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.passes.expression import Expression, choose

__all__ = [
    "Layout", "Whole", "layout_of", "nearest_whole", "power_of_two", "scale", "sign_bit",
    "split_exponent", "split_normal", "with_flipped_sign", "with_sign_of",
]  # fmt: skip

_SQUARE_ROOT_OF_HALF = {"fp32": 0x3F3504F3, "fp64": 0x3FE6A09E667F3BCD}


@dataclass(frozen=True)
class Layout:
    """Where the fields of a float lie; `integer` names the signed type of its width."""

    integer: str
    mantissa_bits: int
    bias: int

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa_bits

    @property
    def round_magic(self) -> float:
        """A number so large that adding it rounds to a whole one, found in the lowest bits."""
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def round_magic_bits(self) -> int:
        """The bits of `round_magic`."""
        return self.one + (self.mantissa_bits << self.mantissa_bits) + (1 << self.mantissa_bits - 1)


_LAYOUTS = {"fp32": Layout("i32", 23, 127), "fp64": Layout("i64", 52, 1023)}


def layout_of(x: Expression) -> Layout:
    """Return the layout of the elements of `x`, which are fp32 or fp64."""
    return _LAYOUTS[x.dtype.short_name]


@dataclass(frozen=True)
class Whole:
    """A small whole number as a float, and the bits of it plus `round_magic`."""

    value: Expression
    bits: Expression


def nearest_whole(x: Expression, factor: float = 1.0) -> Whole:
    """Return `x * factor` rounded to a whole number, which must be below 2^(mantissa_bits - 2)."""
    layout = layout_of(x)
    magic = layout.round_magic
    shifted = x + magic if factor == 1.0 else x.fma(factor, magic)
    return Whole(shifted - magic, shifted.bitcast(layout.integer))


def power_of_two(n: Whole) -> Expression:
    """Return 2^n for an n whose power is a normal number."""
    layout = layout_of(n.value)
    # The shift drops all but the sign and exponent bits, so of `round_magic` nothing is left.
    return ((n.bits << layout.mantissa_bits) + layout.one).bitcast(n.value.dtype.short_name)


def scale(x: Expression, n: Whole) -> Expression:
    """Return `x * 2^n`, x near 1: rounded once where subnormal, infinite above the largest."""
    return x.ldexp(n.value)


def split_exponent(x: Expression) -> tuple[Expression, Expression]:
    """Return k and m with `x = 2^k m` and sqrt(1/2) <= m < sqrt(2), for finite x > 0."""
    layout = layout_of(x)
    lift = layout.mantissa_bits + 1
    is_subnormal = x < 2.0 ** (1 - layout.bias)
    magic = layout.round_magic
    offset = choose(is_subnormal, x.constant(magic + lift), magic)
    return _split(choose(is_subnormal, x * 2.0**lift, x), offset)


def split_normal(x: Expression) -> tuple[Expression, Expression]:
    """Split as `split_exponent` does, for an x known not to be subnormal."""
    return _split(x, x.constant(layout_of(x).round_magic))


def _split(x: Expression, offset: Expression) -> tuple[Expression, Expression]:
    layout, name = layout_of(x), x.dtype.short_name
    bits = x.bitcast(layout.integer)
    exponent = (bits - _SQUARE_ROOT_OF_HALF[name]) >> layout.mantissa_bits
    mantissa = (bits - (exponent << layout.mantissa_bits)).bitcast(name)
    # The exponent becomes a float as the lowest bits of `round_magic`: 64-bit integers have no fast
    # conversion everywhere.
    return (exponent + layout.round_magic_bits).bitcast(name) - offset, mantissa


def with_sign_of(magnitude: Expression, x: Expression) -> Expression:
    """Return `magnitude`, whose sign is clear, with the sign of `x`."""
    layout = layout_of(x)
    return (magnitude.bitcast(layout.integer) | sign_bit(x)).bitcast(x.dtype.short_name)


def with_flipped_sign(x: Expression, flip: Expression) -> Expression:
    """Return `x` with its sign flipped where the sign bit of `flip` is set."""
    return (x.bitcast(layout_of(x).integer) ^ sign_bit(flip)).bitcast(x.dtype.short_name)


def sign_bit(x: Expression) -> Expression:
    """Return the sign bit of a float or signed integer in place, as a signed integer."""
    integer = "i32" if x.dtype.primitive_bitwidth == 32 else "i64"
    bits = x if x.dtype.short_name == integer else x.bitcast(integer)
    return bits & -(1 << x.dtype.primitive_bitwidth - 1)
