"""The complementary error function, the normal distribution, and their inverses, in fp64.

erfc(x) = e^(-x^2) erfcx(x), and (1 + 2 x) erfcx(x) is nearly constant for x >= 0: a polynomial in
(x - 4) / (x + 4) (M. M. Shepherd and J. G. Laframboise, 1981; interpolated at Chebyshev nodes in 60
digits). The square and both factors are carried as pairs. The inverses begin with a fitted
estimate, good to 2^-17, and a step of Halley's method, near 0 on erf and further out on log(erfc).
"""

from __future__ import annotations

from math import inf, nan, pi, sqrt

from tilewright.language.extra.declare import of_reals
from tilewright.passes.expand_exponential import exp_pair, expand_exp
from tilewright.passes.expand_logarithm import expand_log
from tilewright.passes.expand_sigmoid import ERF, expand_erf
from tilewright.passes.exponent import with_sign_of
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, ordered_sum, two_product, two_sum

__all__ = ["erfc", "erfcinv", "erfcx", "erfinv", "normcdf", "normcdfinv"]

ERFCX = (
    1.2329951186255526, -0.13962111684056228, 0.015379652102619974, 0.06809705425466839,
    -0.10103906603631811, 0.09373283499911264, -0.06633036581186058, 0.037167515526338006,
    -0.01619773406293477, 0.005031970069102256, -0.0007577732435942576, -0.0001992571524726518,
    0.00015062142608651945, -2.4397731143023292e-05, -1.1221135665965907e-05, 5.70657829924074e-06,
    2.9173425573089733e-07, -8.210647933297337e-07, 7.771943241086912e-08, 1.0631817593818149e-07,
    -2.0725802488181963e-08, -1.2338731403798444e-08, 3.2323973445082033e-09, 9.297625263709659e-10,
    -2.764120233734578e-10,
)  # fmt: skip
# erfinv(x) / x by x^2 up to 0.75; and sqrt(-log(q)) below 0.25 times erfcinv(q), by its inverse
ERFINV = (
    0.8862269213041812, 0.23201513773050503, 0.1274710056582047, 0.0884422007791242,
    0.04395999352417659, 0.18325790004902043, -0.4452747183370004, 1.1094319925351,
    -1.27908447605499, 0.7426209324446215,
)  # fmt: skip
ERFCINV = (
    1.0003184060000574, -0.029215349821660894, -1.51900663957091, 4.238917774333677,
    -10.596688985898558, 21.19965487810739, -29.39582916764349, 25.987600161205656,
    -13.122135738471014, 2.8744074689051717,
)  # fmt: skip
SQRT_HALF = (0.7071067811865476, -4.833646656726457e-17)
NEAR_ZERO = 0.5  # below, erfc(x) is 1 - erf(x)
TAIL = 0.25  # below this value of erfc, its inverse is found from its logarithm


@of_reals
def erfc(x: Expression) -> Expression:
    """Return `1 - erf(x)` without cancellation, within 2 ULP."""
    return _erfc(Pair(x, x.constant(0.0)))


@of_reals
def normcdf(x: Expression) -> Expression:
    """Return the probability that a standard normal number is at most `x`, within 2 ULP.

    >>> tl.extra.libdevice.normcdf(tl.zeros((), tl.float32))
    0.5
    """
    bounded = x.at_most(40.0).at_least(-40.0)
    product = two_product(bounded, x.constant(-SQRT_HALF[0]))
    return _erfc(Pair(product.high, bounded.fma(-SQRT_HALF[1], product.low)), shift=-1.0)


def _erfc(x: Pair, shift: float = 0.0) -> Expression:
    """erfc(x) 2^shift."""
    near_zero = x.high.fma(horner(x.high * x.high, ERF["fp64"]), x.low)
    one_less = two_sum(x.high.constant(1.0), -x.high)
    near_zero = one_less.high + (one_less.low - near_zero)
    sign = choose(x.high < 0.0, -1.0, x.high.constant(1.0))
    magnitude = Pair((x.high * sign).at_most(28.0), x.low * sign)
    power, n = exp_pair(_square(magnitude, negated=True))
    product = (power * _erfcx(magnitude)).rounded
    factor = 2.0**shift
    negative = (2.0 - product.ldexp(n.value)) * factor
    far = choose(x.high < 0.0, negative, product.ldexp(n.value + shift))
    return choose(abs(x.high) < NEAR_ZERO, near_zero * factor, far)


def _square(x: Pair, *, negated: bool = False) -> Pair:
    square = two_product(x.high, -x.high if negated else x.high)
    double = x.low * (-2.0 if negated else 2.0)
    return Pair(square.high, x.high.fma(double, square.low))


def _erfcx(x: Pair) -> Pair:
    """Erfcx of x >= 0."""
    first, *series = ERFCX
    t = (x.high - 4.0) / (x.high + 4.0)
    numerator = ordered_sum(x.high.constant(first), t * horner(t, series))
    double = x.high + x.high
    divisor = two_sum(double, x.high.constant(1.0))
    return numerator / Pair(divisor.high, x.low.fma(2.0, divisor.low))


@of_reals
def erfcx(x: Expression) -> Expression:
    """Return `exp(x^2) erfc(x)`, within 4 ULP.

    It falls as 1 / x for large `x`, where `erfc(x)` itself is 0, and is infinite below -26.6.
    """
    magnitude = abs(x)
    bounded = magnitude.at_most(2.0**1020)
    value = _erfcx(Pair(bounded, x.constant(0.0))).rounded
    small = Pair(magnitude.at_most(28.0), x.constant(0.0))
    power, n = exp_pair(_square(small))
    negative = power.rounded.ldexp(n.value + 1.0) - value
    value = choose(magnitude > 2.0**60, (1.0 / sqrt(pi)) / magnitude, value)
    return choose(x < 0.0, negative, value)


@of_reals
def erfinv(x: Expression) -> Expression:
    """Return the number whose `erf` is `x`, within 2 ULP; infinite at -1 and 1, NaN beyond.

    >>> tl.extra.libdevice.erfinv(tl.full((), 0.5, tl.float32))
    0.47693628
    """
    magnitude = abs(x)
    result = _inverse(magnitude, 1.0 - magnitude)
    return choose(magnitude > 1.0, nan, choose(x.equals(0.0), x, with_sign_of(result, x)))


@of_reals
def erfcinv(x: Expression) -> Expression:
    """Return the number whose `erfc` is `x`, within 4 ULP of the larger of it and 1/2.

    It is infinite at 0 and -infinite at 2, NaN outside.
    """
    return _erfcinv(x)


@of_reals
def normcdfinv(x: Expression) -> Expression:
    """Return the number whose `normcdf` is `x`, within 4 ULP of the larger of it and 1/2.

    It is -infinite at 0 and infinite at 1, NaN outside.
    """
    result = _erfcinv(x + x) * -sqrt(2.0)
    return choose(x.equals(0.5), 0.0, result)


def _erfcinv(x: Expression) -> Expression:
    complement = 1.0 - x
    result = _inverse(abs(complement), choose(x > 1.0, 2.0 - x, x))
    signed = with_sign_of(result, complement)
    return choose((x < 0.0) | (x > 2.0), nan, signed)


def _inverse(x: Expression, complement: Expression) -> Expression:
    """Return y >= 0 with erf(y) = x and erfc(y) = complement."""
    square = x * x
    near = x * horner(square, ERFINV)
    step = (expand_erf(near) - x) * expand_exp(near * near) * (sqrt(pi) / 2)
    near = near - step / near.fma(step, 1.0)

    log_q = expand_log(complement)
    root = (-log_q).at_least(1.0).square_root()
    far = horner(1.0 / root, ERFCINV) * root
    value = _erfcx(Pair(far, far * 0.0)).rounded
    # The logarithm of erfc has the derivative -2 / (sqrt(pi) erfcx(y)).
    slope = (-2.0 / sqrt(pi)) / value
    step = (far.fma(far, log_q) - expand_log(value)) / slope
    far = far + step / (step * -0.5).fma(far.fma(2.0, slope), 1.0)
    far = choose(complement.equals(0.0), inf, far)
    return choose(complement < TAIL, far, near)
