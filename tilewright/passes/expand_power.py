"""pow and 1/sqrt of fp32 and fp64.

|x|^y = 2^(y log2 |x|). The product must be exact to 2^-54 where it is as large as 1074, so fp32 is
computed in fp64, and fp64 with the logarithm as a sum of two fp64 numbers (Dekker's arithmetic,
with fma). Both use log2(m) = 2 atanh(s) / ln 2 with s = (m - 1) / (m + 1). Coefficients are made
as those of `expand_exponential`.
"""

from __future__ import annotations

from math import inf, nan

from tilewright.passes.expand_exponential import exp2_series
from tilewright.passes.exponent import (
    Whole,
    nearest_whole,
    power_of_two,
    scale,
    split_exponent,
    split_normal,
    with_flipped_sign,
)
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, constant_pair, ordered_sum

__all__ = ["exp2_pair", "expand_pow", "expand_rsqrt", "log2_pair"]

# log2(m) = s P(s^2), to 2^-37
LOG2_SERIES = (
    2.885390081790201, 0.9617966732021787, 0.5770836110167179, 0.4116711724482612,
    0.3407586302387084,
)  # fmt: skip
# 2^r for |r| <= 1/2, to 2^-29
EXP2_SERIES = (
    1.0, 0.693147203400787, 0.24022647971522593, 0.05550331509825974, 0.009618429972831416,
    0.00133992267598646, 0.0001535568283394583,
)  # fmt: skip
# atanh(s) = s + s^3 (1/3 + s^2 P(s^2)), to 2^-73
ATANH_SERIES = (
    0.1999999999999999, 0.1428571428572192, 0.11111111108894195, 0.0909090942218376,
    0.07692279194293726, 0.06668133278642405, 0.058378646179379524, 0.059911276618921164,
)  # fmt: skip


def expand_rsqrt(x: Expression) -> Expression:
    """1 / sqrt(x), both rounded once."""
    return 1.0 / x.square_root()


def expand_pow(x: Expression, y: Expression) -> Expression:
    """Power: |x|^y with the sign of x for odd y, and the special cases of IEEE 754."""
    whole = y.truncated().equals(y)
    half = y * 0.5
    is_odd = whole & half.truncated().differs(half)
    magnitude = abs(x)
    bounded = y.at_most(Y_BOUND[y.dtype.short_name]).at_least(-Y_BOUND[y.dtype.short_name])
    power = _POWER[x.dtype.short_name](magnitude, bounded)
    result = choose(is_odd, with_flipped_sign(power, x), power)
    is_undefined = (x < 0.0) & (magnitude < inf) & ~whole
    return choose(x.equals(1.0) | y.equals(0.0), 1.0, choose(is_undefined, nan, result))


# Beyond, y behaves like an infinity: it is even, and y log2 |x| is 0 or too large for any result.
# Finite numbers spare the case 0 * infinity.
Y_BOUND = {"fp32": 2.0**40, "fp64": 2.0**70}


def _power_fp32(x: Expression, y: Expression) -> Expression:
    wide = x.cast("fp64")
    k, mantissa = split_normal(wide)
    f = mantissa - 1.0
    s = f / (f + 2.0)
    log2 = _with_ends(wide, s.fma(horner(s * s, LOG2_SERIES), k))
    product = (y.cast("fp64") * log2).at_most(300.0).at_least(-300.0)
    n = nearest_whole(product)
    return (horner(product - n.value, EXP2_SERIES) * power_of_two(n)).cast("fp32")


def _with_ends(x: Expression, log2: Expression) -> Expression:
    """Give the logarithm of 0, infinity and NaN."""
    return choose(x.equals(0.0), -inf, choose(x < inf, log2, x))


def _power_fp64(x: Expression, y: Expression) -> Expression:
    log2 = log2_pair(x)
    product = y * log2.high
    # Beyond the range of results the rest is of no account, and may be NaN.
    is_far = abs(product) > 1100.0
    rest = choose(is_far, 0.0, y.fma(log2.low, y.fma(log2.high, -product)))
    power, n = exp2_pair(Pair(product.at_most(1100.0).at_least(-1100.0), rest))
    return scale(power, n)


def exp2_pair(x: Pair) -> tuple[Expression, Whole]:
    """Return m and a whole n with `2^x = m 2^n`, m between sqrt(1/2) and sqrt(2)."""
    n = nearest_whole(x.high)
    r = x.high - n.value
    first, *series = exp2_series(r)
    slope = horner(r, (first, *series))
    rest = (x.low * first) * r.fma(slope, 1.0)
    return 1.0 + r.fma(slope, rest), n


def log2_pair(x: Expression) -> Pair:
    """Base-2 logarithm of x >= 0 to about 2^-66 of its size."""
    k, mantissa = split_exponent(x)
    f = mantissa - 1.0
    divisor = f + 2.0
    divisor_error = f - (divisor - 2.0)
    inverse = 1.0 / divisor
    s_high = f * inverse
    remainder = (-s_high).fma(divisor_error, (-s_high).fma(divisor, f))
    s = Pair(s_high, remainder * inverse)
    z = s * s
    third = ordered_sum(x.constant(THIRD[0]), z.high * horner(z.high, ATANH_SERIES))
    cubic = z * Pair(third.high, third.low + THIRD[1])
    factor = ordered_sum(x.constant(1.0), cubic.high)
    log2 = s * Pair(factor.high, factor.low + cubic.low)
    log2 = log2 * constant_pair(x, TWO_OVER_LN2)
    total = ordered_sum(k, log2.high)
    return Pair(_with_ends(x, total.high), total.low + log2.low)


THIRD = (0.3333333333333333, 1.850371707708594e-17)
TWO_OVER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)

_POWER = {"fp32": _power_fp32, "fp64": _power_fp64}
