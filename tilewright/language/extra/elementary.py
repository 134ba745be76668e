"""Exponentials, logarithms and hyperbolic functions, in fp64.

Where a sum would cancel, or the error of a function would count several times, numbers are carried
as pairs, so that close to one rounding is left. The odd series are near-minimax polynomials
(interpolation at Chebyshev nodes in 60 digits, rounded to fp64).
"""

from __future__ import annotations

from math import inf, nan

from tilewright.language.extra.declare import of_reals
from tilewright.passes.expand_exponential import exp_pair, exp_parts
from tilewright.passes.expand_logarithm import expand_log, with_special_cases
from tilewright.passes.expand_power import exp2_pair, log2_pair
from tilewright.passes.exponent import scale, with_sign_of
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, constant_pair, two_product, two_sum

__all__ = ["acosh", "asinh", "atanh", "cosh", "exp10", "expm1", "log1p", "log10", "sinh"]

LN2 = 0.6931471805599453
LOG2_10 = (3.321928094887362, 1.661617516973592e-16)
LOG10_2 = (0.30102999566398120, -2.8037281277851704e-18)

# f(x) = x + x^3 P(x^2): atanh and asinh up to 1/2, sinh up to 1
ATANH = (
    0.3333333333333333, 0.20000000000000864, 0.14285714285490106, 0.11111111133938968,
    0.09090907881509189, 0.07692345940270638, 0.06665886352701884, 0.05893099692590042,
    0.05160769881147162, 0.05441915418234587, 0.012292448728540531, 0.13557903913692299,
    -0.14450491183414468, 0.21098097885975797,
)  # fmt: skip
ASINH = (
    -0.16666666666666666, 0.0749999999999992, -0.044642857142677225, 0.030381944428513684,
    -0.022372158355736263, 0.0173527441556904, -0.013964483323351326, 0.011547475926257406,
    -0.009725716144151688, 0.00818236764637779, -0.0064746008466359025, 0.00413835813140252,
    -0.0014988358499957474,
)  # fmt: skip
SINH = (
    0.16666666666666666, 0.008333333333333333, 0.00019841269841269773, 2.755731922404034e-06,
    2.505210836405804e-08, 1.6059048396350562e-10, 7.646625361656657e-13, 2.8445264169895285e-15,
)  # fmt: skip

LARGE = 2.0**28  # beyond, x^2 + 1 rounds to x^2


@of_reals
def exp10(x: Expression) -> Expression:
    """Return 10 to the power of `x`, within 1 ULP.

    >>> tl.extra.libdevice.exp10(tl.arange(0, 3))
    tensor([  1.,  10., 100.], fp32[3])
    """
    x = x.at_most(400.0).at_least(-400.0)
    high, low = LOG2_10
    product = x * high
    power, n = exp2_pair(Pair(product, x.fma(high, -product) + x * low))
    return scale(power, n)


@of_reals
def expm1(x: Expression) -> Expression:
    """Return `exp(x) - 1` without cancellation, within 1 ULP.

    >>> tl.extra.libdevice.expm1(tl.full((), 1e-8, tl.float32))
    1e-08
    """
    bounded = x.at_most(710.0).at_least(-40.0)
    return choose(x.equals(0.0), x, _expm1(bounded))


def _expm1(x: Expression) -> Expression:
    """2^n ((1 - 2^-n) + r + rest), where e^r = 1 + r + rest and x = n ln 2 + r."""
    r, rest, n = exp_parts(x)
    inverse = choose(n.value > 60.0, 0.0, _inverse_power(n.value))
    total = two_sum(1.0 - inverse, r)
    return scale(total.high + (total.low + rest), n)


def _inverse_power(n: Expression) -> Expression:
    return n.constant(1.0).ldexp((-n).at_most(60.0).at_least(-60.0))


@of_reals
def sinh(x: Expression) -> Expression:
    """Return the hyperbolic sine, within 1 ULP."""
    magnitude = abs(x)
    square = x * x
    near_zero = (square * magnitude).fma(horner(square, SINH), magnitude)
    far = _half_sum(magnitude, sign=-1.0)
    return with_sign_of(choose(magnitude < 1.0, near_zero, far), x)


@of_reals
def cosh(x: Expression) -> Expression:
    """Return the hyperbolic cosine, within 1 ULP."""
    return _half_sum(abs(x), sign=1.0)


def _half_sum(x: Expression, sign: float) -> Expression:
    """(e^x + sign e^-x) / 2 for x >= 0."""
    x = x.at_most(712.0)
    power, n = exp_pair(Pair(x, x.constant(0.0)))
    inverse = _inverse_power(n.value)
    total = two_sum(power.high, (inverse * inverse) / (power.rounded * sign))
    return (total.high + (total.low + power.low)).ldexp(n.value - 1.0)


@of_reals
def log1p(x: Expression) -> Expression:
    """Return `log(1 + x)` without cancellation, within 2 ULP; -inf at -1, NaN below.

    >>> tl.extra.libdevice.log1p(tl.full((), 1e-8, tl.float32))
    1e-08
    """
    total = two_sum(x.constant(1.0), x)
    result = _log(total)
    result = choose(x.equals(-1.0), -inf, choose(x < inf, result, x))
    return choose(x.equals(0.0), x, result)


def _log(x: Pair) -> Expression:
    return expand_log(x.high) + x.low / x.high


@of_reals
def log10(x: Expression) -> Expression:
    """Return the logarithm to base 10, within 1 ULP; -inf at 0, NaN below.

    >>> tl.extra.libdevice.log10(tl.full((), 1000.0, tl.float32))
    3.0
    """
    result = log2_pair(x) * constant_pair(x, LOG10_2)
    return with_special_cases(x, result.rounded)


@of_reals
def asinh(x: Expression) -> Expression:
    """Return the inverse hyperbolic sine, within 2 ULP."""
    magnitude = abs(x)
    square = x * x
    near_zero = (square * magnitude).fma(horner(square, ASINH), magnitude)
    exact = two_product(magnitude, magnitude)
    total = two_sum(exact.high, x.constant(1.0))
    far = _log_with_root(magnitude, magnitude, Pair(total.high, total.low + exact.low))
    return with_sign_of(choose(magnitude < 0.5, near_zero, far), x)


@of_reals
def acosh(x: Expression) -> Expression:
    """Return the inverse hyperbolic cosine, within 2 ULP; NaN below 1."""
    # With t = x - 1, which is exact where it is small: log1p(t + sqrt(2 t + t^2)).
    t = two_sum(x, x.constant(-1.0))
    square = t * t
    total = two_sum(t.high + t.high, square.high)
    root = _square_root(Pair(total.high, total.low + (square.low + t.low * 2.0)))
    first = two_sum(t.high, root.high)
    one_more = two_sum(first.high, x.constant(1.0))
    low = one_more.low + (first.low + (root.low + t.low))
    near_one = _log(Pair(one_more.high, low))
    result = choose(x < LARGE, near_one, expand_log(x) + LN2)
    return choose(x < 1.0, nan, choose(x.equals(1.0), 0.0, result))


def _log_with_root(x: Expression, term: Expression, square: Pair) -> Expression:
    """log(term + sqrt(square)), or log(2 x) for a large x."""
    root = _square_root(square)
    total = two_sum(term, root.high)
    near = _log(Pair(total.high, total.low + root.low))
    return choose(x < LARGE, near, expand_log(x) + LN2)


def _square_root(x: Pair) -> Pair:
    root = x.high.square_root()
    return Pair(root, ((-root).fma(root, x.high) + x.low) / (root + root))


@of_reals
def atanh(x: Expression) -> Expression:
    """Return the inverse hyperbolic tangent, within 2 ULP; infinite at -1 and 1, NaN beyond."""
    magnitude = abs(x)
    square = x * x
    near_zero = (square * magnitude).fma(horner(square, ATANH), magnitude)
    one = x.constant(1.0)
    ratio = two_sum(one, magnitude) / Pair(one - magnitude, x.constant(0.0))
    far = _log(ratio) * 0.5
    result = choose(magnitude < 0.5, near_zero, choose(magnitude.equals(1.0), inf, far))
    return choose(magnitude > 1.0, nan, with_sign_of(result, x))
