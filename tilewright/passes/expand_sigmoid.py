"""erf and tanh of fp32 and fp64.

Near 0 both are odd polynomials, x + x P(x^2). Further out both are 1 minus something small, a
power of two: erf(x) = 1 - 2^Q(x), where Q approximates log2(erfc(x)), and tanh(x) = 1 - 2 e / (1 +
e) with e = e^-2x. Its error counts less and less, so that one polynomial reaches to where the
result rounds to 1. Both forms are computed everywhere. Coefficients are made as those of
`expand_exponential`, for the error of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

from tilewright.passes.expand_exponential import exp2_fraction
from tilewright.passes.exponent import nearest_whole, power_of_two, with_sign_of
from tilewright.passes.expression import Expression, choose, horner

__all__ = ["expand_erf", "expand_tanh"]

ERF_FP32 = (
    0.12837912142276764, -0.37612324953079224, 0.11280178278684616, -0.026711352169513702,
    0.004917651880532503, -0.000563194917049259,
)  # fmt: skip
LOG2_ERFC_FP32 = (
    -0.0004327168280724436, -1.626283049583435, -0.9202656745910645, -0.14907445013523102,
    0.031655650585889816, -0.004288930911570787, 0.00027247954858466983,
)  # fmt: skip
ERF_FP64 = (
    0.12837916709551256, -0.3761263890318339, 0.11283791670939997, -0.026866170642560756,
    0.005223977602253198, -0.0008548325766737574, 0.00012055289232107312, -1.4924636682519834e-05,
    1.6446277055393778e-06, -1.620026771106881e-07, 1.3686644551542484e-08, -7.736940037815655e-10,
)  # fmt: skip
LOG2_ERFC_FP64 = (
    -6.329579340529531e-07, -1.627900568633528, -0.9184788448294018, -0.14817981595010202,
    0.02741566758236953, 0.0005671677088427041, -0.0027381812847312816, 0.0010911546424263597,
    -0.00018194918461832295, -3.558073359770617e-05, 3.5386684592430673e-05,
    -1.3252543608088461e-05, 3.2573993732720074e-06, -5.700292446877167e-07, 7.108622938220373e-08,
    -6.04663556770744e-09, 3.1560878318570844e-10, -7.640554510684392e-12,
)  # fmt: skip
# tanh(x) = x + x^3 P(x^2)
TANH_FP32 = (
    -0.33332890272140503, 0.13319405913352966, -0.0525861531496048, 0.016272813081741333,
)  # fmt: skip
TANH_FP64 = (
    -0.3333333333333328, 0.133333333333238, -0.053968253962126525, 0.021869488339025033,
    -0.008863231831540181, 0.003592084218394501, -0.001455492289106068, 0.0005882353929785957,
    -0.00023284679955241905, 8.254617197446084e-05, -1.9016954350007646e-05,
)  # fmt: skip

ERF = {"fp32": ERF_FP32, "fp64": ERF_FP64}
LOG2_ERFC = {"fp32": LOG2_ERFC_FP32, "fp64": LOG2_ERFC_FP64}
TANH = {"fp32": TANH_FP32, "fp64": TANH_FP64}

# Where the polynomial near 0 ends, and beyond which the result rounds to 1.
ERF_NEAR_ZERO, TANH_NEAR_ZERO = 1.0, 0.55
ERF_BOUND = {"fp32": 4.0, "fp64": 6.0}
TANH_BOUND = {"fp32": 10.0, "fp64": 20.0}


def _exp2(x: Expression) -> Expression:
    """2^x where that is a normal number."""
    n = nearest_whole(x)
    return power_of_two(n) * exp2_fraction(x - n.value)


def expand_erf(x: Expression, exp2: Callable[[Expression], Expression] = _exp2) -> Expression:
    """Error function; `exp2` gives powers of two that are normal numbers."""
    magnitude = abs(x)
    near_zero = horner(x * x, ERF[x.dtype.short_name]).fma(magnitude, magnitude)
    bounded = magnitude.at_most(ERF_BOUND[x.dtype.short_name])
    far = 1.0 - exp2(horner(bounded, LOG2_ERFC[x.dtype.short_name]))
    return with_sign_of(choose(magnitude < ERF_NEAR_ZERO, near_zero, far), x)


def expand_tanh(x: Expression, exp2: Callable[[Expression], Expression] = _exp2) -> Expression:
    """Hyperbolic tangent; `exp2` gives powers of two that are normal numbers."""
    magnitude, square = abs(x), x * x
    near_zero = (square * magnitude).fma(horner(square, TANH[x.dtype.short_name]), magnitude)
    power = exp2(magnitude.at_most(TANH_BOUND[x.dtype.short_name]) * (-2.0 / log(2.0)))
    far = power.near_quotient(power + 1.0).fma(-2.0, 1.0)
    return with_sign_of(choose(magnitude < TANH_NEAR_ZERO, near_zero, far), x)
