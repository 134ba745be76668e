"""`x * y + z` with one rounding, on arrays of fp32 and fp64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tilewright.ops.numerics import Array

__all__ = ["fma"]

# Products of numbers up to here neither overflow, nor lose bits where they are small.
_LARGEST, _SMALLEST = 2.0**900, 2.0**-900


def fma(x: Array, y: Array, z: Array) -> Array:
    """Return `x * y + z`, rounded once.

    >>> float(fma(np.float64(1 + 2.0**-30), np.float64(1 - 2.0**-30), np.float64(-1))) == -(
    ...     2.0**-60
    ... )
    True
    """
    return _of_float32(x, y, z) if x.dtype == np.float32 else _of_float64(x, y, z)


def _of_float32(x: Array, y: Array, z: Array) -> Array:
    """The product is exact in fp64; the sum is rounded to odd so that fp32 rounds only once."""
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    return _sum_to_odd(product, addend).astype(np.float32)


def _of_float64(x: Array, y: Array, z: Array) -> Array:
    """S. Boldo, G. Melquiond: Emulation of a FMA and correctly rounded sums (IEEE TC 57, 2008)."""
    x, y, z = np.broadcast_arrays(x, y, z)
    product = np.abs(x * y)
    fits = (product > _SMALLEST) & (product < _LARGEST)
    for number in (x, y, z):
        fits &= np.abs(number) < _LARGEST
    a, b, c = (np.where(fits, number, 1.0) for number in (x, y, z))
    high, low = _exact_product(a, b)
    middle, last = _exact_sum(c, low)
    total, rest = _exact_sum(high, middle)
    result = np.asarray(total + _sum_to_odd(last, rest))
    others = ~fits
    if others.any():
        exact = np.vectorize(_by_fractions, otypes=[np.float64])
        result[others] = exact(x[others], y[others], z[others])
    return result


def _sum_to_odd(x: Array, y: Array) -> Array:
    """The sum of two fp64 numbers; where it is not exact, the neighbour whose last bit is 1."""
    total, error = _exact_sum(x, y)
    bits = np.asarray(total).view(np.int64)
    inexact = (error != 0) & np.isfinite(total)
    away = inexact & ((error < 0) == (total > 0))  # the exact sum is nearer to zero than `total`
    bits = np.where(inexact, (bits - away) | 1, bits)
    return np.asarray(bits).view(np.float64)


def _exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum, and what is missing (Knuth)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def _exact_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product, and what is missing (Dekker)."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, rest


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _by_fractions(x: float, y: float, z: float) -> float:
    """For what is very large, very small, infinite or NaN."""
    if not (np.isfinite(x) and np.isfinite(y)) or x == 0 or y == 0:
        return x * y + z
    if not np.isfinite(z):
        return z  # whatever the product, which may be too large for fp64
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return float(np.copysign(np.inf, 1.0 if exact > 0 else -1.0))
