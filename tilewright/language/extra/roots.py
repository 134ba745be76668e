"""Cube roots and lengths, in fp64."""

from __future__ import annotations

from functools import reduce
from math import inf, nan

from tilewright.language.extra.declare import of_reals
from tilewright.passes.exponent import with_sign_of
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, two_product, two_sum

__all__ = ["cbrt", "hypot", "norm3d", "norm4d", "rcbrt", "rhypot", "rnorm3d", "rnorm4d"]

# The cube root between 1 and 8, to 2^-9 (interpolation at Chebyshev nodes)
CBRT = (
    0.6084349186865862, 0.48881233581505845, -0.11212010655657866, 0.018251656689589422,
    -0.001596887337316374, 5.655254894221102e-05,
)  # fmt: skip


@of_reals
def cbrt(x: Expression) -> Expression:
    """Return the cube root, within 1 ULP; of negative numbers, too.

    >>> tl.extra.libdevice.cbrt(tl.full((), -27.0, tl.float32))
    -3.0
    """
    root, shift = _cube_root(abs(x))
    result = _with_exponent(root.rounded, shift)
    return choose(x.equals(0.0) | (abs(x) >= inf), x, with_sign_of(result, x) + x * 0.0)


@of_reals
def rcbrt(x: Expression) -> Expression:
    """Return 1 over the cube root, within 1 ULP; infinite at 0."""
    root, shift = _cube_root(abs(x))
    inverse = Pair(x.constant(1.0), x.constant(0.0)) / root
    result = _with_exponent(inverse.rounded, -shift)
    result = choose(x.equals(0.0), inf, choose(abs(x).equals(inf), 0.0, result + x * 0.0))
    return with_sign_of(result, x)


def _cube_root(x: Expression) -> tuple[Pair, Expression]:
    """Return r and k (i64) with `cbrt(x) = r 2^k`, for a finite x > 0."""
    is_subnormal = x < 2.0**-1022
    bits = choose(is_subnormal, x * 2.0**54, x).bitcast("i64")
    # A third of the exponent, rounded down, by a product: exponents are below 2^12.
    third = (((bits >> 52) + (1200 - 1023)) * 21846 >> 16) - 400
    m = (bits - ((third * 3) << 52)).bitcast("fp64")  # between 1 and 8
    estimate = horner(m, CBRT)
    cube = estimate * estimate * estimate
    estimate = estimate * ((cube + (m + m)) / (cube + cube + m))  # Halley: to 2^-29
    square = two_product(estimate, estimate)
    exact = two_product(square.high, estimate)
    rest = (m - exact.high) - square.low.fma(estimate, exact.low)
    root = Pair(estimate, rest / (square.high * 3.0))  # Newton
    return root, choose(is_subnormal, third - 18, third)


def _with_exponent(x: Expression, shift: Expression) -> Expression:
    return (x.bitcast("i64") + (shift << 52)).bitcast("fp64")


@of_reals
def hypot(x: Expression, y: Expression) -> Expression:
    """Return the length of the vector (`x`, `y`), within 1 ULP, without overflow on the way.

    It is infinite where one is infinite, even if another is NaN.

    >>> tl.extra.libdevice.hypot(tl.full((), 3.0, tl.float32), 4.0)
    5.0
    """
    return _length(x, y)


@of_reals
def norm3d(x: Expression, y: Expression, z: Expression) -> Expression:
    """Return the length of a vector of three, within 1 ULP, as `hypot` does."""
    return _length(x, y, z)


@of_reals
def norm4d(x: Expression, y: Expression, z: Expression, w: Expression) -> Expression:
    """Return the length of a vector of four, within 1 ULP, as `hypot` does."""
    return _length(x, y, z, w)


@of_reals
def rhypot(x: Expression, y: Expression) -> Expression:
    """Return 1 over the length of the vector (`x`, `y`), within 1 ULP; infinite at 0."""
    return _inverse_length(x, y)


@of_reals
def rnorm3d(x: Expression, y: Expression, z: Expression) -> Expression:
    """Return 1 over the length of a vector of three, within 1 ULP; infinite at 0."""
    return _inverse_length(x, y, z)


@of_reals
def rnorm4d(x: Expression, y: Expression, z: Expression, w: Expression) -> Expression:
    """Return 1 over the length of a vector of four, within 1 ULP; infinite at 0."""
    return _inverse_length(x, y, z, w)


def _length(*parts: Expression) -> Expression:
    root, factor, largest = _scaled_length(*parts)
    length = root.rounded / factor
    return choose(largest.equals(inf), inf, choose(largest.equals(0.0), largest, length))


def _inverse_length(*parts: Expression) -> Expression:
    root, factor, largest = _scaled_length(*parts)
    inverse = (Pair(factor.constant(1.0), factor.constant(0.0)) / root).rounded * factor
    return choose(largest.equals(inf), 0.0, choose(largest.equals(0.0), inf, inverse))


def _scaled_length(*parts: Expression) -> tuple[Pair, Expression, Expression]:
    """Return the length times a power of two, that power, and the largest magnitude.

    The largest is NaN where one is NaN and none infinite.
    """
    magnitudes = [abs(x) for x in parts]
    largest = reduce(lambda x, y: choose(x > y, x, y), magnitudes)
    is_nan = reduce(lambda x, y: x | y, (x.differs(x) for x in magnitudes))
    is_infinite = reduce(lambda x, y: x | y, (x.equals(inf) for x in magnitudes))
    largest = choose(is_infinite, inf, choose(is_nan, nan, largest))
    one = largest.constant(1.0)
    factor = choose(largest > 2.0**500, 2.0**-600, choose(largest < 2.0**-400, 2.0**600, one))
    total, low = one * 0.0, one * 0.0
    for magnitude in magnitudes:
        scaled = magnitude * factor
        square = two_product(scaled, scaled)
        partial = two_sum(total, square.high)
        total, low = partial.high, low + (square.low + partial.low)
    root = total.square_root()
    rest = ((-root).fma(root, total) + low) / (root + root)
    return Pair(root, rest), factor, largest
