"""Functions of real analysis on fp32 and fp64 (narrow floats are computed in fp32 and rounded).

`evaluate` rounds a result computed in higher precision; a target may differ by `max_ulp` units in
the last place, a GPU by `gpu_max_ulp`: bounds that the tests check. Rounding functions and `Sqrt`
are exact.
"""

from __future__ import annotations

from math import erf
from typing import Any, ClassVar

import numpy as np

from tilewright.ir.core import Value
from tilewright.ops.elementwise import Elementwise
from tilewright.ops.numerics import Array

__all__ = [
    "Ceil", "Cos", "Erf", "Exp", "Exp2", "Floor", "Ldexp", "Log", "Log2", "MathFunction", "Pow",
    "Rint", "Rsqrt", "Sin", "Sqrt", "Tanh", "Trunc",
]  # fmt: skip


class MathFunction(Elementwise, abstract=True):
    """A function on floats, within `max_ulp` of the exact value on every target.

    Where a GPU has faster instructions that are not as exact, `gpu_max_ulp` holds there for fp32.
    """

    accepts: ClassVar[str] = "float"
    max_ulp: ClassVar[float] = 2.0
    gpu_max_ulp: ClassVar[float | None] = None

    def compute(self, *operands: Any) -> Any:
        # fp32 through fp64; fp64 through the widest type of the host (80 bits on x86).
        wide = np.float64 if operands[0].dtype == np.float32 else np.longdouble
        return np.asarray(self.exact(*(x.astype(wide) for x in operands))).astype(operands[0].dtype)

    def exact(self, *operands: Any) -> Any:
        """Return the function in higher precision."""
        raise NotImplementedError


class Exp(MathFunction):
    """e to the power of `x`.

    On GPUs a power of 2 whose exponent is rounded: off by 2 + 1.2 |x| ULP, and 0 where it would be
    subnormal.
    """

    gpu_max_ulp: ClassVar[float | None] = 108.0
    x: Value

    def exact(self, x: Array) -> Array:
        return np.exp(x)


class Exp2(MathFunction):
    """2 to the power of `x`; on GPUs 0 where it would be subnormal."""

    x: Value

    def exact(self, x: Array) -> Array:
        return np.exp2(x)


class Log(MathFunction):
    """Natural logarithm; -inf at 0, NaN below."""

    x: Value

    def exact(self, x: Array) -> Array:
        return np.log(x)


class Log2(MathFunction):
    """Logarithm to base 2; -inf at 0, NaN below."""

    x: Value

    def exact(self, x: Array) -> Array:
        return np.log2(x)


class Sin(MathFunction):
    """Sine of `x` in radians, for arguments of any size."""

    x: Value

    def exact(self, x: Array) -> Array:
        return np.sin(x)


class Cos(MathFunction):
    """Cosine of `x` in radians, for arguments of any size."""

    x: Value

    def exact(self, x: Array) -> Array:
        return np.cos(x)


class Tanh(MathFunction):
    """Hyperbolic tangent."""

    gpu_max_ulp: ClassVar[float | None] = 4.0
    x: Value

    def exact(self, x: Array) -> Array:
        return np.tanh(x)


class Erf(MathFunction):
    """Gauss error function."""

    gpu_max_ulp: ClassVar[float | None] = 4.0
    x: Value

    def exact(self, x: Array) -> Array:
        # NumPy has none; the C library's is within 1 ULP.
        return np.asarray(np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64)))


class Pow(MathFunction):
    """`x` to the power of `y`, with the special cases of IEEE 754 `pow`."""

    max_ulp: ClassVar[float] = 2.0
    x: Value
    y: Value

    def exact(self, x: Array, y: Array) -> Array:
        return np.power(x, y)


class Ldexp(MathFunction):
    """`x * 2^n` rounded once, for a whole number `n` of the type of `x` and 1/2 <= |x| <= 2."""

    max_ulp: ClassVar[float] = 0.0
    x: Value
    n: Value

    def compute(self, x: Array, n: Array) -> Array:
        return np.ldexp(x, np.where(np.isnan(n), 0, n).astype(np.int32))


class Rsqrt(MathFunction):
    """1 over the square root of `x`."""

    x: Value

    def exact(self, x: Array) -> Array:
        return 1 / np.sqrt(x)


class Sqrt(MathFunction):
    """Square root, correctly rounded."""

    max_ulp: ClassVar[float] = 0.0
    x: Value

    def compute(self, x: Array) -> Array:
        return np.sqrt(x)


class Floor(MathFunction):
    """The largest whole number not above `x`."""

    max_ulp: ClassVar[float] = 0.0
    x: Value

    def compute(self, x: Array) -> Array:
        return np.floor(x)


class Ceil(MathFunction):
    """The smallest whole number not below `x`."""

    max_ulp: ClassVar[float] = 0.0
    x: Value

    def compute(self, x: Array) -> Array:
        return np.ceil(x)


class Trunc(MathFunction):
    """`x` without its fraction."""

    max_ulp: ClassVar[float] = 0.0
    x: Value

    def compute(self, x: Array) -> Array:
        return np.trunc(x)


class Rint(MathFunction):
    """The nearest whole number, halves to even."""

    max_ulp: ClassVar[float] = 0.0
    x: Value

    def compute(self, x: Array) -> Array:
        return np.rint(x)
