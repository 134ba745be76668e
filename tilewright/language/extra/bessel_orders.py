"""Bessel functions of any whole order, by the recurrence that joins three neighbouring orders."""

# The parameters of functions in the language have the types of their arguments.
# ruff: noqa: ANN001, ANN201, ANN202
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import device_function
from tilewright.frontend.iterators import range
from tilewright.language.creation import to_tensor
from tilewright.language.dtypes import float32, float64, int32
from tilewright.language.elementwise import where
from tilewright.language.extra.bessel import j0, j1, y0, y1
from tilewright.language.math import abs, sqrt
from tilewright.language.reduction import max

__all__ = ["jn", "yn"]

INFINITY = constexpr(float("inf"))
HUGE, SMALL = constexpr(1e200), constexpr(1e-100)


@device_function
def yn(n, x):
    """Return the Bessel function of the second kind of the integer order `n`; -inf at 0.

    The error grows with `n`, by about 2 ULP (as those of `y0`) for each order.
    """
    n = to_tensor(n)
    x = to_tensor(x)
    wide = x.to(float64)
    order = abs(n).to(int32) + (wide * 0).to(int32)
    before = y0(wide)
    current = y1(wide)
    result = where(order == 0, before, current)
    for k in range(1, _largest(order)):
        following = (2.0 * k) / wide * current - before
        before = current
        current = where(current == -INFINITY, current, following)
        result = where(order == k + 1, current, result)
    result = where(wide == 0, -INFINITY, result)
    result = where((n < 0) & (order % 2 == 1), -result, result)
    return _rounded(result, x)


@device_function
def jn(n, x):
    """Return the Bessel function of the first kind of the integer order `n`.

    Up to `n` = |`x|` the recurrence goes up, beyond it down from a high order (J. C. P. Miller,
    1952). The error grows with `n`, by about 2 ULP (as those of `j0`) for each order.
    """
    n = to_tensor(n)
    x = to_tensor(x)
    wide = abs(x.to(float64))
    order = abs(n).to(int32) + (wide * 0).to(int32)
    before = j0(wide)
    current = j1(wide)
    down = _downward(order, where(wide < SMALL, SMALL, wide), before, current)
    result = where(order == 0, before, current)
    for k in range(1, _largest(order)):
        following = (2.0 * k) / wide * current - before
        before = current
        current = following
        result = where(order == k + 1, current, result)
    result = where((order > wide) & (order > 1), down, result)
    tiny = where(order == 2, wide * wide / 8, where(order == 3, wide * wide * wide / 48, 0.0))
    result = where((wide < SMALL) & (order > 1), tiny, result)
    is_odd = order % 2 == 1
    result = where(is_odd & ((n < 0) != (x < 0)), -result, result)
    return _rounded(result, x)


@device_function
def _downward(order, x, first, second):
    """J of an order above x > 0, given J0 and J1."""
    top = _largest(order)
    top = top + 20 + sqrt(40.0 * top).to(int32)
    above = x * 0.0
    current = above + 1.0
    result = above
    for step in range(0, top):
        k = top - step
        below = (2.0 * k) / x * current - above
        above = current
        current = below
        result = where(order == k - 1, current, result)
        factor = where(abs(current) > HUGE, 1 / HUGE, current * 0 + 1)
        above = above * factor
        current = current * factor
        result = result * factor
    by_first = abs(first) > abs(second)
    return result * where(by_first, first / current, second / above)


@device_function
def _largest(order):
    return max(order) if len(order.shape) > 0 else order


@device_function
def _rounded(result, x):
    return result.to(x.dtype if x.dtype.is_floating() else float32)
