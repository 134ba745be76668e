"""Bessel functions of orders 0 and 1, in fp64.

Below 8 they are polynomials of x^2 (the second kind after its logarithm is taken out), between 4
and 8 of x. Beyond, they are an amplitude times a sine: with u = 1 / x, J = sqrt(2 u / pi) (P(u^2)
cos(w) - u Q(u^2) sin(w)), Y = sqrt(2 u / pi) (P(u^2) sin(w) + u Q(u^2) cos(w)), w = x - pi / 4 for
order 0 and x - 3 pi / 4 for order 1 (H. Hankel, 1869). Modified functions are their power series,
and beyond 8 e^x / sqrt(x) times a polynomial of 1 / x. Polynomials interpolate at Chebyshev nodes
(in 60 digits) and are written in a variable from -1 to 1.
"""

from __future__ import annotations

from math import inf, nan, pi

from tilewright.language.extra.bessel_series import (
    I0_FAR,
    I0_NEAR,
    I1_FAR,
    I1_NEAR,
    J0_MIDDLE,
    J0_NEAR,
    J1_MIDDLE,
    J1_NEAR,
    P0,
    P1,
    Q0,
    Q1,
    Y0_MIDDLE,
    Y0_NEAR,
    Y1_MIDDLE,
    Y1_NEAR,
)
from tilewright.language.extra.declare import of_reals
from tilewright.passes.expand_exponential import exp_pair
from tilewright.passes.expand_logarithm import expand_log
from tilewright.passes.expand_trigonometric import expand_cos, expand_sin
from tilewright.passes.exponent import with_flipped_sign
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair

__all__ = ["cyl_bessel_i0", "cyl_bessel_i1", "first_kind", "j0", "j1", "second_kind", "y0", "y1"]

MIDDLE, FAR = 4.0, 8.0


@of_reals
def j0(x: Expression) -> Expression:
    """Return the Bessel function of the first kind of order 0.

    The error is within 8 ULP of the largest of the result, `x` times its derivative and the
    amplitude `sqrt(2 / (pi x))`; so are those of `j1`, `y0`, `y1`.
    """
    return choose(abs(x) < 2.0**-27, 1.0, first_kind(abs(x))[0])


@of_reals
def j1(x: Expression) -> Expression:
    """Return the Bessel function of the first kind of order 1; for its error see `j0`."""
    return with_flipped_sign(first_kind(abs(x))[1], x)


@of_reals
def y0(x: Expression) -> Expression:
    """Return the Bessel function of the second kind of order 0; -inf at 0, NaN below."""
    return second_kind(x)[0]


@of_reals
def y1(x: Expression) -> Expression:
    """Return the Bessel function of the second kind of order 1; -inf at 0, NaN below."""
    return second_kind(x)[1]


def first_kind(x: Expression) -> tuple[Expression, Expression]:
    """Return J0 and J1 of x >= 0."""
    near = _near(x)
    middle = _middle(x)
    pairs = (
        (horner(near, J0_NEAR), horner(middle, J0_MIDDLE), J0),
        (x * horner(near, J1_NEAR), horner(middle, J1_MIDDLE), J1),
    )
    waves = _Waves(x)
    order_0, order_1 = (
        choose(x < MIDDLE, low, choose(x < FAR, between, waves.of(kind)))
        for low, between, kind in pairs
    )
    return order_0, order_1


def second_kind(x: Expression) -> tuple[Expression, Expression]:
    """Return Y0 and Y1 of x > 0, and the limits at 0."""
    near = _near(x)
    middle = _middle(x)
    log = expand_log(x) * (2.0 / pi)
    low_0 = log.fma(horner(near, J0_NEAR), horner(near, Y0_NEAR))
    regular = x * log.fma(horner(near, J1_NEAR), horner(near, Y1_NEAR))
    low_1 = regular - (2.0 / pi) / x
    waves = _Waves(x)
    results = []
    for low, series, kind in ((low_0, Y0_MIDDLE, Y0), (low_1, Y1_MIDDLE, Y1)):
        value = choose(x < FAR, horner(middle, series), waves.of(kind))
        value = choose(x < MIDDLE, low, value)
        results.append(choose(x.equals(0.0), -inf, choose(x < 0.0, nan, value)))
    return results[0], results[1]


def _near(x: Expression) -> Expression:
    return x.at_most(MIDDLE).fma(x.at_most(MIDDLE) * 0.125, -1.0)


def _middle(x: Expression) -> Expression:
    return (x.at_most(FAR) - 6.0) * 0.5


# Which series make the function, and the signs of sine and cosine in the factor of P; that of Q
# follows a quarter turn later.
J0, J1, Y0, Y1 = (P0, Q0, 1, 1), (P1, Q1, 1, -1), (P0, Q0, 1, -1), (P1, Q1, -1, -1)


class _Waves:
    """Sine, cosine and the variable of the series, for x >= 8."""

    def __init__(self, x: Expression) -> None:
        self.sine, self.cosine = expand_sin(x), expand_cos(x)
        self.inverse = 1.0 / x.at_least(FAR)
        self.t = (self.inverse * self.inverse).fma(128.0, -1.0)
        self.amplitude = 1.0 / (x * pi).square_root()
        self.is_infinite = x.equals(inf)

    def of(self, kind: tuple[tuple[float, ...], tuple[float, ...], int, int]) -> Expression:
        """sqrt(1 / (pi x)) (P (s sin + c cos) + Q / x (...))."""
        p, q, s, c = kind
        first = self._mixed(s, c)
        later = self._mixed(-c, s)
        value = horner(self.t, p) * first + (self.inverse * horner(self.t, q)) * later
        return choose(self.is_infinite, 0.0, value * self.amplitude)

    def _mixed(self, s: int, c: int) -> Expression:
        sine = self.sine if s > 0 else -self.sine
        return sine + self.cosine if c > 0 else sine - self.cosine


@of_reals
def cyl_bessel_i0(x: Expression) -> Expression:
    """Return the modified Bessel function of the first kind of order 0, within 4 ULP."""
    magnitude = abs(x)
    small = magnitude.at_most(FAR)
    near = horner(small * small, I0_NEAR)
    return choose(magnitude < FAR, near, _growing(magnitude, I0_FAR))


@of_reals
def cyl_bessel_i1(x: Expression) -> Expression:
    """Return the modified Bessel function of the first kind of order 1, within 4 ULP."""
    magnitude = abs(x)
    small = magnitude.at_most(FAR)
    near = small * horner(small * small, I1_NEAR)
    result = choose(magnitude < FAR, near, _growing(magnitude, I1_FAR))
    return with_flipped_sign(result, x)


def _growing(x: Expression, series: tuple[float, ...]) -> Expression:
    """e^x / sqrt(x) P(16 / x - 1) for x >= 8."""
    x = x.at_most(800.0).at_least(FAR)
    power, n = exp_pair(Pair(x, x * 0.0))
    value = horner((16.0 / x) - 1.0, series) / x.square_root()
    return (power.rounded * value).ldexp(n.value)
