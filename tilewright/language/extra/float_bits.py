"""Functions of floats by their bits: exponents, neighbours, signs, whole numbers."""

from __future__ import annotations

from math import inf, nan

from tilewright.language.extra.declare import of_floats
from tilewright.ops import Ceil, Floor, Rem
from tilewright.passes.exponent import layout_of, with_flipped_sign, with_sign_of
from tilewright.passes.expression import Expression, choose

__all__ = [
    "copysign", "fdim", "finitef", "fmod", "ilogb", "isfinited", "isinf", "isnan", "ldexp",
    "llrint", "llround", "logb", "nearbyint", "neighbour", "nextafter", "normalized", "remainder",
    "rint", "round", "rounded_down", "rounded_up", "saturatef", "scalbn", "scaled", "signbit",
    "trunc",
]  # fmt: skip

NO_EXPONENT, INFINITE_EXPONENT = -(2**31), 2**31 - 1  # what C's ilogb says of 0 and infinity


def normalized(x: Expression) -> tuple[Expression, Expression]:
    """Return m and an integer e with `x = m 2^e` and 1 <= |m| < 2; 0, infinity and NaN stay m."""
    layout = layout_of(x)
    mantissa_bits, bias = layout.mantissa_bits, layout.bias
    is_subnormal = abs(x) < 2.0 ** (1 - bias)
    lifted = choose(is_subnormal, x * 2.0 ** (mantissa_bits + 1), x)
    bits = lifted.bitcast(layout.integer)
    field = bits >> mantissa_bits & (2 * bias + 1)
    e = field - choose(is_subnormal, bias + mantissa_bits + 1, field.constant(bias))
    m = (bits - ((field - bias) << mantissa_bits)).bitcast(x.dtype.short_name)
    is_special = x.equals(0.0) | ~(abs(x) < inf)
    return choose(is_special, x, m), choose(is_special, 0, e)


def scaled(x: Expression, n: Expression) -> Expression:
    """Return `x * 2^n` for an integer n below 2^16, rounded once."""
    m, e = normalized(x)
    limit = 2 * (layout_of(x).bias - 1)  # half of it is the exponent of a normal number
    return m.ldexp((e + n).at_most(limit).at_least(-limit).cast(x.dtype.short_name))


def neighbour(x: Expression, *, upward: bool) -> Expression:
    """Return the next number above or below."""
    bits = x.bitcast(layout_of(x).integer)
    step = choose((bits < 0) if upward else (bits >= 0), -1, bits.constant(1))
    smallest = 1 if upward else -(1 << x.dtype.primitive_bitwidth - 1) + 1
    return choose(x.equals(0.0), smallest, bits + step).bitcast(x.dtype.short_name)


@of_floats
def ldexp(x: Expression, n: Expression) -> Expression:
    """Return `x` times 2 to the power of the integer `n`, rounded once where it is subnormal.

    >>> tl.extra.libdevice.ldexp(tl.full((), 0.75, tl.float32), 4)
    12.0
    """
    return _scale(x, n)


@of_floats
def scalbn(x: Expression, n: Expression) -> Expression:
    """Return `x` times 2 to the power of the integer `n`: another name of `ldexp`."""
    return _scale(x, n)


def _scale(x: Expression, n: Expression) -> Expression:
    return scaled(x, n.at_most(5000.0).at_least(-5000.0).cast(layout_of(x).integer))


@of_floats
def ilogb(x: Expression) -> Expression:
    """Return the exponent of `x`, the int32 e with 1 <= |`x`| / 2^e < 2.

    It is -2^31 for 0 and NaN and 2^31 - 1 for infinities.
    """
    _, e = normalized(x)
    e = e.cast("i32") if e.dtype.short_name != "i32" else e
    e = choose(abs(x).equals(inf), INFINITE_EXPONENT, e)
    return choose(x.equals(0.0) | x.differs(x), NO_EXPONENT, e)


@of_floats
def logb(x: Expression) -> Expression:
    """Return the exponent of `x` as a float; -inf for 0, infinity for infinities."""
    _, e = normalized(x)
    result = choose(abs(x) < inf, e.cast(x.dtype.short_name), x * x)
    return choose(x.equals(0.0), -inf, result)


@of_floats
def nextafter(x: Expression, y: Expression) -> Expression:
    """Return the number after `x` in the direction of `y`; `y` where they are equal.

    >>> tl.extra.libdevice.nextafter(tl.zeros((), tl.float32), 1.0)
    1e-45
    """
    step = choose(x < y, neighbour(x, upward=True), neighbour(x, upward=False))
    return choose(x.equals(y), y, choose((x < y) | (x > y), step, x + y))


@of_floats
def copysign(x: Expression, y: Expression) -> Expression:
    """Return the magnitude of `x` with the sign of `y`."""
    return with_sign_of(abs(x), y)


@of_floats
def signbit(x: Expression) -> Expression:
    """Return 1 where the sign bit is set, also that of -0.0 and NaN, else 0 (int32)."""
    return (x.bitcast(layout_of(x).integer) < 0).cast("i32")


@of_floats
def isnan(x: Expression) -> Expression:
    """Return whether `x` is NaN."""
    return x.differs(x)


@of_floats
def isinf(x: Expression) -> Expression:
    """Return whether `x` is infinite."""
    return abs(x).equals(inf)


@of_floats
def finitef(x: Expression) -> Expression:
    """Return whether `x` is neither infinite nor NaN."""
    return abs(x) < inf


@of_floats
def isfinited(x: Expression) -> Expression:
    """Return whether `x` is neither infinite nor NaN: another name of `finitef`."""
    return abs(x) < inf


@of_floats
def saturatef(x: Expression) -> Expression:
    """Return `x` limited to [0, 1]; NaN becomes 0.

    >>> tl.extra.libdevice.saturatef(tl.arange(-1, 3).to(tl.float32) * 0.5)
    tensor([0. , 0. , 0.5, 1. ], fp32[4])
    """
    return choose(x > 0.0, x.at_most(1.0), 0.0)


@of_floats
def fdim(x: Expression, y: Expression) -> Expression:
    """Return `x - y` where that is positive, else 0; NaN where one is NaN."""
    return choose(x <= y, 0.0, x - y)


@of_floats
def fmod(x: Expression, y: Expression) -> Expression:
    """Return the exact remainder of `x / y` truncated, with the sign of `x`: the same as `%`."""
    return x.append(Rem(x.value, y.value))


@of_floats
def remainder(x: Expression, y: Expression) -> Expression:
    """Return the exact remainder of `x / y` rounded to the nearest whole number, halves to even.

    >>> tl.extra.libdevice.remainder(tl.full((), 5.0, tl.float32), 3.0)
    -1.0
    """
    divisor, magnitude = abs(y), abs(x)
    largest = 2.0 ** layout_of(x).bias
    double = choose(divisor < largest, divisor + divisor, divisor)
    rest = choose(
        divisor < largest, magnitude.append(Rem(magnitude.value, double.value)), magnitude
    )
    # Halves are exact where they are not subnormal, doubles where they are not large.
    is_small = divisor < 2.0 ** (3 - layout_of(x).bias)
    half = divisor * 0.5
    is_above = choose(is_small, rest + rest, rest) > choose(is_small, divisor, half)
    rest = choose(is_above, rest - divisor, rest)
    is_reached = choose(is_small, rest + rest, rest) >= choose(is_small, divisor, half)
    rest = choose(is_above & is_reached, rest - divisor, rest)
    result = with_flipped_sign(rest, x)
    result = choose(divisor.equals(inf) & (magnitude < inf), x, result)
    is_undefined = divisor.equals(0.0) | magnitude.equals(inf) | x.differs(x) | y.differs(y)
    return choose(is_undefined, nan, result)


@of_floats
def rint(x: Expression) -> Expression:
    """Return the nearest whole number, halves to even, as a float.

    >>> tl.extra.libdevice.rint(tl.arange(0, 4).to(tl.float32) + 0.5)
    tensor([0., 2., 2., 4.], fp32[4])
    """
    return x.rounded()


@of_floats
def nearbyint(x: Expression) -> Expression:
    """Return the nearest whole number, halves to even: another name of `rint`."""
    return x.rounded()


@of_floats
def round(x: Expression) -> Expression:
    """Return the nearest whole number, halves away from 0, as a float.

    >>> tl.extra.libdevice.round(tl.arange(0, 4).to(tl.float32) + 0.5)
    tensor([1., 2., 3., 4.], fp32[4])
    """
    return _rounded_away(x)


def _rounded_away(x: Expression) -> Expression:
    magnitude = abs(x)
    whole = magnitude.truncated()
    result = choose(magnitude - whole >= 0.5, whole + 1.0, whole)
    return choose(magnitude < inf, with_sign_of(result, x), x)


@of_floats
def trunc(x: Expression) -> Expression:
    """Return `x` without its fraction, as a float."""
    return x.truncated()


@of_floats
def llrint(x: Expression) -> Expression:
    """Return the nearest int64, halves to even, saturated; NaN becomes 0."""
    return x.rounded().cast("i64")


@of_floats
def llround(x: Expression) -> Expression:
    """Return the nearest int64, halves away from 0, saturated; NaN becomes 0."""
    return _rounded_away(x).cast("i64")


def rounded_down(x: Expression) -> Expression:
    """Return the largest whole number not above."""
    return x.append(Floor(x.value))


def rounded_up(x: Expression) -> Expression:
    """Return the smallest whole number not below."""
    return x.append(Ceil(x.value))
