"""log and log2 of fp32 and fp64.

x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), so that k = 0 around 1, where the result is
small and only the polynomial counts. In fp32 log(1 + f) is a polynomial in f; in fp64, s = f / (2
+ f) and the odd series of 2 atanh(s) converge faster (as in fdlibm's e_log.c). Coefficients are
made as those of `expand_exponential`.
"""

from __future__ import annotations

from math import inf, nan

from tilewright.passes.exponent import split_exponent
from tilewright.passes.expression import Expression, choose, horner

__all__ = ["expand_log", "expand_log2", "with_special_cases"]

LN2_FP32 = (
    0.6931471824645996  # so near to ln 2 that k times the error is below 0.05 ULP of the result
)
LN2_FP64 = (0.6931471805599453, 2.3190468138462996e-17)
LOG2_E_FP32 = 1.4426950216293335
LOG2_E_FP64 = (1.4426950408889634, 2.0355273740931033e-17)

# log(1 + f) = f + f^2 P(f), and log2(1 + f) = f log2(e) + f^2 P(f)
LOG_FP32 = (
    -0.49999988079071045, 0.33333325386047363, -0.2500159740447998, 0.20001955330371857,
    -0.1660880148410797, 0.14182470738887787, -0.13245834410190582, 0.12899866700172424,
    -0.07608544826507568,
)  # fmt: skip
LOG2_FP32 = (
    -0.7213475108146667, 0.48090222477912903, -0.3606882691383362, 0.28838950395584106,
    -0.2396504133939743, 0.20742429792881012, -0.19348005950450897, 0.171370729804039,
    -0.08745931088924408,
)  # fmt: skip
# 2 atanh(s) = 2 s + s z P(z) with z = s^2
ATANH_FP64 = (
    0.6666666666666735, 0.3999999999940987, 0.28571428743489047, 0.22222198455927716,
    0.18183570663263696, 0.1531388192705878, 0.14797702915863,
)  # fmt: skip


def expand_log(x: Expression) -> Expression:
    """Natural logarithm: k ln 2 + ln(1 + f)."""
    k, mantissa = split_exponent(x)
    f = mantissa - 1.0
    if x.dtype.short_name == "fp32":
        square = f * f
        return with_special_cases(x, k.fma(LN2_FP32, square.fma(horner(f, LOG_FP32), f)))
    half_square, correction = _log1p_parts(f)
    high, low = LN2_FP64
    tail = half_square - k.fma(low, correction)
    return with_special_cases(x, k.fma(high, f - tail))


def expand_log2(x: Expression) -> Expression:
    """log2 x = k + log2(1 + f); exact for powers of two."""
    k, mantissa = split_exponent(x)
    f = mantissa - 1.0
    if x.dtype.short_name == "fp32":
        rest = (f * f) * horner(f, LOG2_FP32)
        return with_special_cases(x, k + f.fma(LOG2_E_FP32, rest))
    # ln(1 + f) in two parts, times log2(e) in two parts, plus k in two parts.
    half_square, correction = _log1p_parts(f)
    high = f - half_square
    low = (f - high) - half_square + correction
    log2_e, log2_e_low = LOG2_E_FP64
    product = high * log2_e
    error = high.fma(log2_e, -product) + high.fma(log2_e_low, low * log2_e)
    total = k + product
    return with_special_cases(x, total + (((k - total) + product) + error))


def _log1p_parts(f: Expression) -> tuple[Expression, Expression]:
    """Return f^2 / 2 and c with `ln(1 + f) = f - f^2 / 2 + c`, c of the order of f^3."""
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return half_square, s * (z.fma(horner(z, ATANH_FP64), half_square))


def with_special_cases(x: Expression, result: Expression) -> Expression:
    """Infinity and NaN stay, below 0 is NaN, and both zeros give -infinity."""
    result = choose(x < inf, result, x)
    result = choose(x < 0.0, nan, result)
    return choose(x.equals(0.0), -inf, result)
