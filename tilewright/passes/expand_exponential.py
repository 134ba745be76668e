"""exp and exp2 of fp32 and fp64.

The argument is split into `n ln 2 + r` with a whole n and |r| <= ln(2) / 2 (Cody and Waite: ln 2
in two parts, and fma makes the first product exact), and a polynomial gives e^r. Its coefficients
minimise the largest relative error (weighted least squares on Chebyshev nodes, reweighted after
Lawson); each in turn is rounded to the format and the rest fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.passes.exponent import Whole, nearest_whole, scale
from tilewright.passes.expression import Expression, horner
from tilewright.passes.pairs import Pair, ordered_sum

__all__ = ["exp2_fraction", "exp2_series", "exp_pair", "exp_parts", "expand_exp", "expand_exp2"]

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class _Constants:
    """For one format: ln 2 in two parts, polynomials (lowest power first), and bounds.

    Beyond the bounds the results are 0 and infinite.
    """

    ln2: tuple[float, float]
    exp: tuple[float, ...]  # e^r from r^2 on
    exp2: tuple[float, ...]  # 2^r from r on
    exp_bounds: tuple[float, float]
    exp2_bounds: tuple[float, float]


_CONSTANTS = {
    "fp32": _Constants(
        ln2=(0.693147182464599609375, -1.9046542121259336e-9),
        exp=(
            0.4999999403953552, 0.1666651964187622, 0.04166824743151665, 0.008368839509785175,
            0.0013822611654177308,
        ),
        exp2=(
            0.6931471824645996, 0.24022647738456726, 0.055503591895103455, 0.00961849931627512,
            0.001339118811301887, 0.00015329589950852096,
        ),
        exp_bounds=(-104.0, 89.0),
        exp2_bounds=(-151.0, 128.0),
    ),
    "fp64": _Constants(
        ln2=(0.6931471805599453, 2.3190468138462996e-17),
        exp=(
            0.5000000000000011, 0.16666666666666424, 0.04166666666652628, 0.008333333333487122,
            0.001388888894465129, 0.00019841269522729356, 2.4801492026160885e-05,
            2.755757138938369e-06, 2.7630638535016245e-07, 2.5005045843880786e-08,
        ),
        exp2=(
            0.6931471805599453, 0.2402265069591011, 0.05550410866482171, 0.00961812910760047,
            0.0013333558146548284, 0.00015403530450486838, 1.5252733634000086e-05,
            1.3215438103025477e-06, 1.0178159232010656e-07, 7.073360740987945e-09,
            4.439100183926853e-10,
        ),
        exp_bounds=(-746.0, 710.0),
        exp2_bounds=(-1076.0, 1024.0),
    ),
}  # fmt: skip


def expand_exp(x: Expression) -> Expression:
    """e^x = 2^n e^r."""
    constants = _CONSTANTS[x.dtype.short_name]
    low, high = constants.exp_bounds
    x = x.at_most(high).at_least(low)
    n = nearest_whole(x, LOG2_E)
    r = n.value.fma(-constants.ln2[1], n.value.fma(-constants.ln2[0], x))
    return scale(horner(r, (1.0, 1.0, *constants.exp)), n)


def expand_exp2(x: Expression) -> Expression:
    """2^x = 2^n 2^r."""
    constants = _CONSTANTS[x.dtype.short_name]
    low, high = constants.exp2_bounds
    x = x.at_most(high).at_least(low)
    n = nearest_whole(x)
    return scale(exp2_fraction(x - n.value), n)


def exp_pair(x: Pair) -> tuple[Pair, Whole]:
    """Return m and a whole n with `e^x = m 2^n`, m between sqrt(1/2) and sqrt(2), to 2^-56."""
    r, rest, n = exp_parts(x.high)
    near_one = ordered_sum(r.constant(1.0), r)
    return Pair(near_one.high, near_one.low + x.low.fma(near_one.high + rest, rest)), n


def exp_parts(x: Expression) -> tuple[Expression, Expression, Whole]:
    """Return r, s and a whole n with `e^x = (1 + r + s) 2^n`; r is exact, s of the order of r^2."""
    constants = _CONSTANTS[x.dtype.short_name]
    n = nearest_whole(x, LOG2_E)
    r = n.value.fma(-constants.ln2[0], x)
    below = n.value * -constants.ln2[1]
    series = (r * r) * horner(r, constants.exp)
    return r, below.fma((1.0 + r) + series, series), n


def exp2_fraction(r: Expression) -> Expression:
    """2^r for |r| <= 1/2."""
    return horner(r, (1.0, *exp2_series(r)))


def exp2_series(x: Expression) -> tuple[float, ...]:
    """Return the coefficients of (2^r - 1) / r for the format of `x`."""
    return _CONSTANTS[x.dtype.short_name].exp2
