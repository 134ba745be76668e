"""Arithmetic in the four directions of rounding: nearest, down, up, toward zero.

The result rounded to nearest is corrected by the sign of its error, which fma and Dekker's
arithmetic give exactly; where parts of it would underflow or overflow, the operands are scaled. In
fp32 products, quotients and roots are computed in fp64 instead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tilewright.language.extra.declare import Formula, Function, named, of_floats
from tilewright.language.extra.float_bits import neighbour, normalized, scaled
from tilewright.passes.exponent import layout_of, with_flipped_sign, with_sign_of
from tilewright.passes.expression import Expression, choose
from tilewright.passes.pairs import two_product, two_sum

__all__ = [
    "DIRECTIONS",
    "add_rd",
    "add_rn",
    "add_ru",
    "add_rz",
    "directed",
    "div_rd",
    "div_rn",
    "div_ru",
    "div_rz",
    "exact_sum",
    "fma_rd",
    "fma_rn",
    "fma_ru",
    "fma_rz",
    "mul_rd",
    "mul_rn",
    "mul_ru",
    "mul_rz",
    "narrowed",
    "rcp_rd",
    "rcp_rn",
    "rcp_ru",
    "rcp_rz",
    "rsqrt_rn",
    "sqrt_rd",
    "sqrt_rn",
    "sqrt_ru",
    "sqrt_rz",
    "sub_rd",
    "sub_rn",
    "sub_ru",
    "sub_rz",
    "sum_of",
    "to_odd",
]  # fmt: skip

DIRECTIONS = {"rn": "to nearest", "rd": "down", "ru": "up", "rz": "toward zero"}


def directed(nearest: Expression, error: Expression, direction: str) -> Expression:
    """Round in a direction, given the result to nearest and a number of the sign of its error.

    The error is the exact result minus the rounded one: beside an infinity that is only rounded, an
    infinity of the other sign.
    """
    if direction == "rn":
        return nearest
    upward, downward = error > 0.0, error < 0.0
    if direction == "ru":
        return choose(upward, neighbour(nearest, upward=True), nearest)
    if direction == "rd":
        return choose(downward, neighbour(nearest, upward=False), nearest)
    negative = nearest.bitcast(layout_of(nearest).integer) < 0
    is_beyond = (negative & upward) | (~negative & downward)
    return choose(is_beyond, _toward_zero(nearest), nearest)


def _toward_zero(x: Expression) -> Expression:
    integer = layout_of(x).integer
    return (x.bitcast(integer) - 1).bitcast(x.dtype.short_name)


def narrowed(x: Expression, direction: str) -> Expression:
    """Round fp64 to fp32 in a direction."""
    nearest = x.cast("fp32")
    return directed(nearest, x - nearest.cast("fp64"), direction)


def sum_of(x: Expression, y: Expression, direction: str) -> Expression:
    """X + y."""
    total, error = exact_sum(x, y)
    return _with_zero(directed(total, error, direction), x, y, direction)


def exact_sum(x: Expression, y: Expression) -> tuple[Expression, Expression]:
    """Return `x + y` and its error; beside an infinity that is only rounded, an infinite one."""
    total = x + y
    is_larger = abs(x) >= abs(y)
    larger, smaller = choose(is_larger, x, y), choose(is_larger, y, x)
    return total, smaller - (total - larger)


def _with_zero(result: Expression, x: Expression, y: Expression, direction: str) -> Expression:
    """Rounded down, a sum x + y that is exactly 0 is -0, unless both are +0."""
    if direction != "rd":
        return result
    integer = layout_of(x).integer
    signs = x.bitcast(integer) | y.bitcast(integer)
    return choose((x + y).equals(0.0) & (signs < 0), -0.0, result)


def _difference(x: Expression, y: Expression, direction: str) -> Expression:
    return sum_of(x, -y, direction)


def _product(x: Expression, y: Expression, direction: str) -> Expression:
    product = x * y
    if direction == "rn":
        return product
    if x.dtype.short_name == "fp32":
        return narrowed(x.cast("fp64") * y.cast("fp64"), direction)
    is_larger = abs(x) >= abs(y)
    larger, smaller = choose(is_larger, x, y), choose(is_larger, y, x)
    # The parts of a tiny product may underflow: scale it.
    is_tiny = abs(product) < 2.0**-900
    lift_smaller = choose(is_tiny, 2.0**600, x.constant(1.0))
    lift_larger = choose(is_tiny & (abs(larger) < 1.0), 2.0**600, x.constant(1.0))
    lifted = product * lift_smaller * lift_larger
    error = (smaller * lift_smaller).fma(larger * lift_larger, -lifted)
    error = choose(abs(product) < inf, error, choose(abs(larger) < inf, -product, 0.0))
    return directed(product, error, direction)


def _quotient(x: Expression, y: Expression, direction: str) -> Expression:
    quotient = x / y
    if direction == "rn":
        return quotient
    if x.dtype.short_name == "fp32":
        return narrowed(x.cast("fp64") / y.cast("fp64"), direction)
    (m, e), (n, f) = normalized(x), normalized(y)
    rest = (-scaled(quotient, f - e)).fma(n, m)
    error = choose(n < 0.0, -rest, rest)
    is_regular = (abs(x) < inf) & (abs(y) < inf) & y.differs(0.0)
    return directed(quotient, choose(is_regular, error, 0.0), direction)


def _reciprocal(x: Expression, direction: str) -> Expression:
    return _quotient(x.constant(1.0), x, direction)


def _root(x: Expression, direction: str) -> Expression:
    root = x.square_root()
    if direction == "rn":
        return root
    if x.dtype.short_name == "fp32":
        return narrowed(x.cast("fp64").square_root(), direction)
    is_tiny = x < 2.0**-900
    lifted = choose(is_tiny, root * 2.0**100, root)
    error = (-lifted).fma(lifted, choose(is_tiny, x * 2.0**200, x))
    return directed(root, error, direction)


def _fused(x: Expression, y: Expression, z: Expression, direction: str) -> Expression:
    nearest = x.fma(y, z)
    if direction == "rn":
        return nearest
    if x.dtype.short_name == "fp32":
        product, wide = x.cast("fp64") * y.cast("fp64"), z.cast("fp64")
        total, error = exact_sum(product, wide)
        return _with_zero(narrowed(to_odd(total, error), direction), product, wide, direction)
    result = directed(nearest, _error_of_fma(x, y, z, nearest), direction)
    one = x.constant(1.0)
    sign = with_flipped_sign(with_sign_of(one, x), y)
    is_zero = nearest.equals(0.0) & result.equals(0.0)
    cancels = with_sign_of(one, z).differs(sign) if direction == "rd" else is_zero & ~is_zero
    return choose(is_zero & cancels, -0.0, result)


def to_odd(total: Expression, error: Expression) -> Expression:
    """Return, of the fp64 numbers around a sum, the one with an odd last bit; or the exact sum.

    So a second rounding to fp32 cannot go wrong.
    """
    is_even = (total.bitcast("i64") & 1).equals(0)
    total = choose(is_even & (error > 0.0), neighbour(total, upward=True), total)
    return choose(is_even & (error < 0.0), neighbour(total, upward=False), total)


def _error_of_fma(x: Expression, y: Expression, z: Expression, r: Expression) -> Expression:
    """Return a number of the sign of x y + z - r, in fp64."""
    (a, e), (b, f), (c, g) = normalized(x), normalized(y), normalized(z)
    product = two_product(a, b)
    shift = g - (e + f)
    # A term that is far smaller than the other counts by its sign only.
    bounded = shift.at_most(300).at_least(-300)
    c = c.ldexp(bounded.cast("fp64"))
    rounded = choose((shift > 300) & z.differs(0.0), c, scaled(r, -(e + f)))
    total = two_sum(product.high, c)
    small = two_sum(total.low, product.low)
    rest = two_sum(total.high - rounded, small.high)
    error = rest.high + (rest.low + small.low)
    is_regular = (abs(x) < inf) & (abs(y) < inf) & (abs(z) < inf)
    is_regular = is_regular & x.differs(0.0) & y.differs(0.0)
    # Beside an overflow the rest is NaN.
    error = choose(abs(r).equals(inf), -r, error)
    return choose(is_regular, error, 0.0)


def _family(
    name: str, arity: int, compute: Callable[..., Expression], text: str
) -> tuple[Function, ...]:
    """Make the functions of all four directions."""
    return tuple(_member(name, arity, compute, text, direction) for direction in DIRECTIONS)


def _member(
    name: str, arity: int, compute: Callable[..., Expression], text: str, direction: str
) -> Function:
    formula: Formula
    if arity == 1:

        def formula(x: Expression) -> Expression:
            return compute(x, direction)
    elif arity == 2:

        def formula(x: Expression, y: Expression) -> Expression:
            return compute(x, y, direction)
    else:

        def formula(x: Expression, y: Expression, z: Expression) -> Expression:
            return compute(x, y, z, direction)

    return named(formula, f"{name}_{direction}", f"Return {text}, rounded {DIRECTIONS[direction]}.")


add_rn, add_rd, add_ru, add_rz = _family("add", 2, sum_of, "`x + y`")
sub_rn, sub_rd, sub_ru, sub_rz = _family("sub", 2, _difference, "`x - y`")
mul_rn, mul_rd, mul_ru, mul_rz = _family("mul", 2, _product, "`x * y`")
div_rn, div_rd, div_ru, div_rz = _family("div", 2, _quotient, "`x / y`")
fma_rn, fma_rd, fma_ru, fma_rz = _family("fma", 3, _fused, "`x * y + z`")
rcp_rn, rcp_rd, rcp_ru, rcp_rz = _family("rcp", 1, _reciprocal, "`1 / x`")
sqrt_rn, sqrt_rd, sqrt_ru, sqrt_rz = _family("sqrt", 1, _root, "the square root")


@of_floats
def rsqrt_rn(x: Expression) -> Expression:
    """Return 1 over the square root of an fp32 number, rounded once to nearest."""
    if x.dtype.short_name == "fp64":
        return 1.0 / x.square_root()
    wide = x.cast("fp64")
    nearest = (1.0 / wide.square_root()).cast("fp32")
    # Compare with the midpoints beside it, whose squares are exact in fp64: x m^2 against 1.
    for upward in (True, False):
        beside = neighbour(nearest, upward=upward)
        middle = (nearest.cast("fp64") + beside.cast("fp64")) * 0.5
        product = two_product(middle * middle, wide)
        error = (product.high - 1.0) + product.low
        is_beyond = error < 0.0 if upward else error > 0.0
        nearest = choose(is_beyond & (wide < inf), beside, nearest)
    return nearest
