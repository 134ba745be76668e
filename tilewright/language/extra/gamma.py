"""The gamma function and its logarithm, in fp64.

C. Lanczos, 1964: gamma(z) = ((z + g - 1/2) / e)^(z - 1/2) S(z) for z > 0, where S is a quotient of
polynomials; its coefficients, all positive, make it exact at 1, ..., 13 (solved in 120 digits), and
nowhere off by more than 2^-54. Powers are taken of pairs. Below 0 Euler's reflection is used, and
lgamma around its roots 1 and 2 is a polynomial of its own.
"""

from __future__ import annotations

from math import inf, nan, pi

from tilewright.language.extra.circular import sinpi_of
from tilewright.language.extra.declare import of_reals
from tilewright.passes.expand_logarithm import expand_log
from tilewright.passes.expand_power import exp2_pair, log2_pair
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, constant_pair, two_sum

__all__ = ["lgamma", "tgamma"]

G_MINUS_HALF = 5.524680040776729583740234375
NUMERATOR = (
    56906521.913471565, 103794043.11634454, 86363131.2881386, 43338889.32467614, 14605578.087685067,
    3481712.154980646, 601859.6171681099, 75999.29304014542, 6955.999602515376, 449.9445569063168,
    19.519927882476175, 0.5098416655656676, 0.006061842346248907,
)  # fmt: skip
# z (z + 1) ... (z + 11)
DENOMINATOR = (
    0.0, 39916800.0, 120543840.0, 150917976.0, 105258076.0, 45995730.0, 13339535.0, 2637558.0,
    357423.0, 32670.0, 1925.0, 66.0, 1.0,
)  # fmt: skip
# lgamma(z) / ((z - 1) (z - 2)) by (z - 1.625) / 0.625 between 1 and 2.25
SERIES = (
    0.46580963736232694, -0.0822368695542712, 0.02053883836735717, -0.005906844831714063,
    0.001829821160421909, -0.0005927515424250825, 0.00019772475136645108, -6.73183808744242e-05,
    2.3266130344169435e-05, -8.133786748264127e-06, 2.8694132368402945e-06, -1.019722619211501e-06,
    3.6457232885837336e-07, -1.3102706888302812e-07, 4.7371798359427655e-08,
    -1.7167884890406912e-08, 6.129839111917162e-09, -2.2350384857293052e-09, 9.35423662849198e-10,
    -3.434194119058307e-10, 4.7913104856975355e-11, -1.7442573679217652e-11, 3.6244423452089595e-11,
    -1.3425383885169828e-11,
)  # fmt: skip
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
TINY = 2.0**-60  # below, gamma(z) is 1 / z


@of_reals
def tgamma(x: Expression) -> Expression:
    """Return the gamma function, within 8 ULP.

    It is NaN at negative whole numbers and infinite, with the sign of `x`, at zeros.

    >>> tl.extra.libdevice.tgamma(tl.full((), 5.0, tl.float32))
    24.0
    """
    magnitude = abs(x)
    z = magnitude.at_most(200.0)
    power, n = exp2_pair(_power(z, constant_pair(z, LOG2_E), LN2_OF_TWO))
    value = _quotient(z) * power
    positive = value.ldexp(n.value)
    sine = sinpi_of(x)
    negative = (-pi / ((sine * value) * z.constant(1.0) * -z)).ldexp(-n.value)
    result = choose(x < 0.0, negative, positive)
    result = choose(magnitude < TINY, 1.0 / x, result)
    is_pole = (x < 0.0) & (sine.equals(0.0) | (magnitude >= inf))
    return choose(is_pole, nan, result)


@of_reals
def lgamma(x: Expression) -> Expression:
    """Return the logarithm of the magnitude of the gamma function.

    The error is within 8 ULP of the larger of the result and `x` times its derivative; infinite at
    0 and at negative whole numbers.
    """
    magnitude = abs(x)
    z = magnitude
    power = _power(z, constant_pair(z, (1.0, 0.0)), LN2)
    log_quotient = expand_log(_quotient(z.at_most(1e20)))
    total = two_sum(power.high, log_quotient)
    positive = choose(power.high < inf, total.high + (total.low + power.low), power.high)
    positive = choose((z >= 0.25) & (z <= 2.25), _near_roots(z), positive)
    product = abs(sinpi_of(x)) * magnitude
    negative = expand_log(pi / product) - positive
    result = choose(x < 0.0, negative, positive)
    result = choose(magnitude < TINY, -expand_log(magnitude), result)
    return choose(magnitude.equals(inf), inf, result)


LN2_OF_TWO = (1.0, 0.0)


def _power(z: Expression, one: Pair, unit: tuple[float, float]) -> Pair:
    """Return (z - 1/2) (log(z + g - 1/2) - 1), in a base whose logarithm of 2 is `unit`."""
    base = two_sum(z, z.constant(G_MINUS_HALF))
    logarithm = log2_pair(base.high) * constant_pair(z, unit)
    difference = two_sum(logarithm.high, -one.high)
    low = difference.low + (logarithm.low - one.low) + (base.low / base.high) * one.high
    return two_sum(z, z.constant(-0.5)) * two_sum(difference.high, low)


def _near_roots(z: Expression) -> Expression:
    """lgamma(z) between 1/4 and 9/4; below 1 it is lgamma(z + 1) - log(z)."""
    is_below = z < 1.0
    above = choose(is_below, z + 1.0, z)
    series = horner((above - 1.625) * 1.6, SERIES)
    factor = (above - 1.0) * (above - 2.0)
    value = choose(factor.equals(0.0), 0.0, factor * series)
    return choose(is_below, value - expand_log(z), value)


def _quotient(z: Expression) -> Expression:
    return horner(z, NUMERATOR) / horner(z, DENOMINATOR)
