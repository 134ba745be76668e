"""Arithmetic, bits, comparison and selection, element by element.

Narrow floats (fp16, bf16, fp8) are computed in fp32 and rounded once. Integers wrap.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import numpy as np

from tilewright.ir.core import Op, Value, require
from tilewright.ir.types import DTYPES, DType, ElementType, TileType
from tilewright.ops.fused import fma
from tilewright.ops.numerics import Array, is_narrow_float, widen, with_dtype

__all__ = [
    "Abs", "Add", "And", "Compare", "Div", "Elementwise", "Fma", "Invert", "Maximum", "Minimum",
    "Mul", "MulHigh", "Neg", "Or", "Predicate", "Rem", "Select", "ShiftLeft", "ShiftRight", "Sub",
    "Xor", "has_narrow_operand", "larger", "smaller",
]  # fmt: skip

BOOL = DTYPES["i1"]


class Elementwise(Op, abstract=True):
    """Operands of one type, result of the same type; `compute` sees narrow floats as fp32."""

    accepts: ClassVar[str] = "any"

    def infer(self) -> TileType:
        first, *rest = self.operands
        for other in rest:
            require(
                other.type == first.type,
                f"{self.op_name}: operand types differ: {first.type} and {other.type}",
            )
        require(
            _accepted(first.type.element, self.accepts),
            f"{self.op_name}: expected {self.accepts} elements, got {first.type}",
            hint="convert it: x.to(tl.float32), x.to(tl.int32) or x != 0",
        )
        return first.type

    def evaluate(self, *operands: Array) -> Array:
        dtype, result_dtype = self.operands[0].type.element, self.type.element
        assert isinstance(dtype, DType)  # infer has checked it
        assert isinstance(result_dtype, DType)
        return with_dtype(self.compute(*(widen(x, dtype) for x in operands)), result_dtype)

    def compute(self, *operands: Any) -> Any:
        """Return the result from operands that NumPy computes with natively."""
        raise NotImplementedError


def _accepted(element: ElementType, accepts: str) -> bool:
    if not isinstance(element, DType):
        return False
    return accepts == "any" or (accepts == "float") == element.is_floating()


class Neg(Elementwise):
    """Minus `x`; the most negative integer stays itself."""

    x: Value

    def compute(self, x: Array) -> Array:
        return -x if x.dtype != np.bool_ else x


class Abs(Elementwise):
    """Magnitude of `x`; the most negative integer stays itself, NaN loses its sign."""

    x: Value

    def compute(self, x: Array) -> Array:
        return np.abs(x)


class Invert(Elementwise):
    """All bits of `x` flipped (logical not of a bool)."""

    accepts: ClassVar[str] = "integer"
    x: Value

    def compute(self, x: Array) -> Array:
        return ~x


class Add(Elementwise):
    """`x + y`; bools add modulo 2."""

    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x ^ y if x.dtype == np.bool_ else x + y


class Sub(Elementwise):
    """`x - y`; bools subtract modulo 2."""

    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x ^ y if x.dtype == np.bool_ else x - y


class Mul(Elementwise):
    """`x * y`.

    Where it goes into a sum, a GPU may round once for both, unless the product `is_rounded` itself.
    """

    x: Value
    y: Value
    is_rounded: bool = False

    def compute(self, x: Array, y: Array) -> Array:
        return x & y if x.dtype == np.bool_ else x * y


class Div(Elementwise):
    """Quotient: IEEE for floats; for integers truncated toward zero, and 0 where `y` is 0.

    An fp32 quotient that is not said to be `exact` may be off by 2 ULP on a GPU.
    """

    x: Value
    y: Value
    exact: bool = False

    def compute(self, x: Array, y: Array) -> Array:
        if x.dtype.kind == "f":
            return x / y
        if x.dtype == np.bool_:
            return x & y
        quotient = np.floor_divide(x, y)
        is_below = (x % y != 0) & ((x < 0) != (y < 0))
        return np.asarray(quotient + is_below.astype(x.dtype))


class Rem(Elementwise):
    """Remainder with the sign of `x` (C `fmod`, `%`); for integers 0 where `y` is 0."""

    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return np.zeros_like(x) if x.dtype == np.bool_ else np.fmod(x, y)


class And(Elementwise):
    """Bitwise and."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x & y


class Or(Elementwise):
    """Bitwise or."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x | y


class Xor(Elementwise):
    """Bitwise exclusive or."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x ^ y


class ShiftLeft(Elementwise):
    """`x << y`; 0 where `y`, read as unsigned, is not below the width."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x & ~y if x.dtype == np.bool_ else x << y


class ShiftRight(Elementwise):
    """`x >> y`, arithmetic for signed types; a count outside the width shifts everything out."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        return x & ~y if x.dtype == np.bool_ else x >> y


class MulHigh(Elementwise):
    """The upper half of the double-width product of two integers."""

    accepts: ClassVar[str] = "integer"
    x: Value
    y: Value

    def compute(self, x: Array, y: Array) -> Array:
        wide = x.astype(object) * y.astype(object)
        bits = 8 * x.dtype.itemsize
        return np.asarray(wide >> bits).astype(x.dtype)


class Minimum(Elementwise):
    """The smaller of two; -0.0 is below +0.0. A NaN loses unless `propagate_nan`."""

    x: Value
    y: Value
    propagate_nan: bool = False

    def compute(self, x: Array, y: Array) -> Array:
        return smaller(x, y, propagate_nan=self.propagate_nan)


class Maximum(Elementwise):
    """The larger of two; +0.0 is above -0.0. A NaN loses unless `propagate_nan`."""

    x: Value
    y: Value
    propagate_nan: bool = False

    def compute(self, x: Array, y: Array) -> Array:
        return larger(x, y, propagate_nan=self.propagate_nan)


def smaller(x: Array, y: Array, *, propagate_nan: bool = False) -> Array:
    """Return the minimum of each pair by the rules of `Minimum`."""
    return _choose(x, y, x < y, propagate_nan=propagate_nan, prefer_negative=True)


def larger(x: Array, y: Array, *, propagate_nan: bool = False) -> Array:
    """Return the maximum of each pair by the rules of `Maximum`."""
    return _choose(x, y, x > y, propagate_nan=propagate_nan, prefer_negative=False)


def _choose(
    x: Array, y: Array, first: Array, *, propagate_nan: bool, prefer_negative: bool
) -> Array:
    result = np.where(first, x, y)
    if x.dtype.kind != "f":
        return result
    zeros = (x == 0) & (y == 0) & (np.signbit(x) == prefer_negative)
    result = np.where(zeros, x, result)
    if propagate_nan:
        return np.where(np.isnan(x), x, np.where(np.isnan(y), y, result))
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, result))


class Predicate(enum.StrEnum):
    """How two elements are compared; all but `NE` are false where one is NaN."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


_COMPARISONS = {
    Predicate.EQ: np.equal,
    Predicate.NE: np.not_equal,
    Predicate.LT: np.less,
    Predicate.LE: np.less_equal,
    Predicate.GT: np.greater,
    Predicate.GE: np.greater_equal,
}


class Compare(Elementwise):
    """Whether `x` and `y` stand in the relation `predicate` (a bool)."""

    predicate: Predicate
    x: Value
    y: Value

    def infer(self) -> TileType:
        return super().infer().with_element(BOOL)

    def compute(self, x: Array, y: Array) -> Array:
        return _COMPARISONS[Predicate(self.predicate)](x, y)


class Fma(Elementwise):
    """`x * y + z`, rounded once."""

    accepts: ClassVar[str] = "float"
    x: Value
    y: Value
    z: Value

    def compute(self, x: Array, y: Array, z: Array) -> Array:
        return fma(x, y, z)


class Select(Op):
    """`x` where `condition` holds, else `y`; both are computed everywhere."""

    condition: Value
    x: Value
    y: Value

    def infer(self) -> TileType:
        require(
            self.condition.type.element is BOOL,
            f"select: the condition must be a bool, got {self.condition.type}",
        )
        require(
            self.x.type == self.y.type and self.condition.shape == self.x.shape,
            f"select: types differ: {self.condition.type}, {self.x.type} and {self.y.type}",
        )
        return self.x.type

    def evaluate(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)


def has_narrow_operand(op: Op) -> bool:
    """Whether the op computes on narrow floats (and is therefore done in fp32 and rounded)."""
    return any(
        isinstance(v.type.element, DType) and is_narrow_float(v.type.element) for v in op.operands
    )
