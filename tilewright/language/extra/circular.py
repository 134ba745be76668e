"""Circular functions and their inverses, in fp64.

The reduced argument and the parts of a quotient are carried as pairs. Series are near-minimax
polynomials (interpolation at Chebyshev nodes in 60 digits, rounded to fp64).
"""

from __future__ import annotations

from math import inf, nan

from tilewright.language.extra.declare import of_reals
from tilewright.passes.expand_trigonometric import COS_FP64, SIN_FP64, reduce_fp64
from tilewright.passes.exponent import with_flipped_sign, with_sign_of
from tilewright.passes.expression import Expression, choose, horner
from tilewright.passes.pairs import Pair, ordered_sum, two_product, two_sum

__all__ = ["acos", "asin", "atan", "atan2", "cospi", "sinpi", "sinpi_of", "tan"]

PI = (3.141592653589793, 1.2246467991473532e-16)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)

# asin(x) = x + x^3 P(x^2) up to 1/2, atan up to 7/16
ASIN = (
    0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247,
    0.02237217294214989, 0.017352392720869973, 0.013971212973552933, 0.011479177415184906,
    0.01032281435018578, 0.005457506718640358, 0.01740087944269402, -0.014851887071247204,
    0.028757851367421566,
)  # fmt: skip
ATAN = (
    -0.33333333333333326, 0.1999999999998777, -0.1428571428314864, 0.11111110900560475,
    -0.09090900195560148, 0.07692087348767168, -0.06663239299107136, 0.05847724720645106,
    -0.05033942776485848, 0.03782521866106712, -0.017547235157290005,
)  # fmt: skip
# sin(pi x) = pi x + x^3 P(x^2), cos(pi x) = 1 + x^2 P(x^2) up to 1/4
SINPI = (
    -5.16771278004997, 2.550164039877345, -0.5992645293206478, 0.08214588659727676,
    -0.0073704303122948235, 0.0004662879326147481, -2.1742067342478005e-05,
)  # fmt: skip
COSPI = (
    -4.934802200544679, 4.058712126416765, -1.3352627688538095, 0.23533063028399223,
    -0.025806887964701878, 0.001929493874894941, -0.00010370082971594627,
)  # fmt: skip
# Where the argument of atan is reduced by another angle, and that angle in two parts: for c the
# angle is atan(c), with atan(x) = atan(c) + atan((x - c) / (1 + c x)).
ATAN_STEPS = (
    (7 / 16, 0.5, (0.4636476090008061, 2.2698777452961687e-17)),
    (11 / 16, 1.0, (0.7853981633974483, 3.061616997868383e-17)),
    (19 / 16, 1.5, (0.982793723247329, 1.3903311031230998e-17)),
)
ATAN_LAST = 39 / 16  # beyond, c is infinite


@of_reals
def tan(x: Expression) -> Expression:
    """Return the tangent of `x` in radians, for arguments of any size, within 1 ULP."""
    quarters, high, low = reduce_fp64(abs(x))
    square = high * high
    sine = ordered_sum(
        high, (square * high).fma(horner(square, SIN_FP64), low.fma(square * -0.5, low))
    )
    half = square * 0.5
    near_one = 1.0 - half
    rest = (square * square).fma(horner(square, COS_FP64), -(high * low))
    cosine = ordered_sum(near_one, ((1.0 - near_one) - half) + rest)
    is_odd = (quarters & 1).differs(0)
    above, below = _choose(is_odd, cosine, sine), _choose(is_odd, sine, cosine)
    quotient = (above / below).rounded
    return with_flipped_sign(with_flipped_sign(quotient, quarters << 63), x)


def _choose(condition: Expression, x: Pair, y: Pair) -> Pair:
    return Pair(choose(condition, x.high, y.high), choose(condition, x.low, y.low))


@of_reals
def sinpi(x: Expression) -> Expression:
    """Return `sin(pi x)`, within 1 ULP; exact at whole and half numbers."""
    return sinpi_of(x)


def sinpi_of(x: Expression) -> Expression:
    """sin(pi x), as a formula."""
    result = _sine_of_turns(x, quarter_turns=0)
    return choose(result.equals(0.0), with_sign_of(x.constant(0.0), x), result)


@of_reals
def cospi(x: Expression) -> Expression:
    """Return `cos(pi x)`, within 1 ULP; exact at whole and half numbers."""
    result = _sine_of_turns(x, quarter_turns=1)
    return choose(result.equals(0.0), 0.0, result)


def _sine_of_turns(x: Expression, quarter_turns: int) -> Expression:
    half_turn = (x * 0.5).rounded().fma(-2.0, x)  # in [-1, 1]
    quarters = (half_turn + half_turn).rounded()
    f = quarters.fma(-0.5, half_turn)
    square = f * f
    product = two_product(f, f.constant(PI[0]))
    tail = f.fma(PI[1], product.low)
    sine = product.high + (square * f).fma(horner(square, SINPI), tail)
    cosine = square.fma(horner(square, COSPI), 1.0)
    quadrant = quarters.cast("i64") + quarter_turns
    return with_flipped_sign(choose((quadrant & 1).differs(0), cosine, sine), quadrant << 62)


@of_reals
def asin(x: Expression) -> Expression:
    """Return the arc sine in radians, within 1 ULP; NaN outside [-1, 1]."""
    magnitude = abs(x)
    near_zero = _near_zero(magnitude)
    double, rest = _twice_asin_of_half(magnitude)
    difference = two_sum(x.constant(HALF_PI[0]), -double)
    far = difference.high + (difference.low + (HALF_PI[1] - rest))
    return with_sign_of(choose(magnitude < 0.5, near_zero, far), x)


@of_reals
def acos(x: Expression) -> Expression:
    """Return the arc cosine in radians, within 1 ULP; NaN outside [-1, 1]."""
    magnitude = abs(x)
    square = x * x
    difference = two_sum(x.constant(HALF_PI[0]), -x)
    tail = (square * x).fma(-horner(square, ASIN), difference.low + HALF_PI[1])
    near_zero = difference.high + tail
    double, rest = _twice_asin_of_half(magnitude)
    difference = two_sum(x.constant(PI[0]), -double)
    negative = difference.high + (difference.low + (PI[1] - rest))
    far = choose(x < 0.0, negative, double + rest)
    return choose(magnitude < 0.5, near_zero, far)


def _near_zero(x: Expression) -> Expression:
    square = x * x
    return (square * x).fma(horner(square, ASIN), x)


def _twice_asin_of_half(magnitude: Expression) -> tuple[Expression, Expression]:
    """Return 2 asin(sqrt((1 - x) / 2)) = acos(x) in two parts, for 1/2 <= x <= 1."""
    half = (1.0 - magnitude) * 0.5
    root = half.square_root()
    error = (-root).fma(root, half) / (root + root).at_least(2.0**-500)
    tail = (half * root).fma(horner(half, ASIN), error)
    return root + root, tail + tail


@of_reals
def atan(x: Expression) -> Expression:
    """Return the arc tangent in radians, within 1 ULP."""
    angle = _angle(abs(x), x.constant(1.0))
    return with_sign_of(angle.rounded, x)


@of_reals
def atan2(y: Expression, x: Expression) -> Expression:
    """Return the angle of the point (`x`, `y`) in radians, in [-pi, pi], within 2 ULP.

    The signs of zeros and infinities count as in C.

    >>> tl.extra.libdevice.atan2(tl.full((), 1.0, tl.float32), -1.0)
    2.3561945
    """
    tall, wide = abs(y), abs(x)
    larger = choose(wide > tall, wide, tall)
    factor = choose(
        larger > 2.0**1000, 2.0**-100, choose(larger < 2.0**-900, 2.0**100, larger.constant(1.0))
    )
    both = tall.equals(inf) & wide.equals(inf)
    factor = choose(both, 0.0, factor)
    angle = _angle(choose(both, 1.0, tall * factor), choose(both, 1.0, wide * factor))
    is_flat = tall.equals(0.0) | (wide.equals(inf) & (tall < inf))
    high, low = choose(is_flat, 0.0, angle.high), choose(is_flat, 0.0, angle.low)
    opposite = two_sum(x.constant(PI[0]), -high)
    left = opposite.high + (opposite.low + (PI[1] - low))
    result = choose(x.bitcast("i64") < 0, left, high + low)
    return choose(x.differs(x) | y.differs(y), nan, with_sign_of(result, y))


def _angle(y: Expression, x: Expression) -> Pair:
    """Return atan(y / x) in two parts, for y, x >= 0."""
    c, high, low = y.constant(0.0), y.constant(0.0), y.constant(0.0)
    for bound, tangent, angle in ATAN_STEPS:
        is_beyond = y >= x * bound
        c = choose(is_beyond, tangent, c)
        high, low = choose(is_beyond, angle[0], high), choose(is_beyond, angle[1], low)
    is_last = y >= x * ATAN_LAST
    high, low = choose(is_last, HALF_PI[0], high), choose(is_last, HALF_PI[1], low)
    above = choose(is_last, -x, c.fma(-x, y))
    below = choose(is_last, y, c.fma(y, x))
    t = above / below
    square = t * t
    total = two_sum(high, t)
    return Pair(total.high, total.low + (square * t).fma(horner(square, ATAN), low))
