"""Arithmetic on IR values with Python's operators, so that rules read like maths.

An `Expression` is a value and the way to append ops; every operator appends one op. Plain numbers
become constants of the other operand's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Emit
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops.convert import Bitcast, Cast
from tilewright.ops.elementwise import (
    Abs,
    Add,
    And,
    Compare,
    Div,
    Fma,
    Invert,
    Mul,
    MulHigh,
    Neg,
    Or,
    Predicate,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
)
from tilewright.ops.math import Ldexp, Rint, Sqrt, Trunc
from tilewright.ops.shape import Full

__all__ = ["Expression", "Number", "choose", "horner"]

Number = int | float


class Expression:
    """A value of the IR whose operators append ops through `emit`."""

    __slots__ = ("constants", "emit", "value")

    def __init__(
        self,
        value: Value,
        emit: Emit,
        constants: dict[tuple[str, object], Value] | None = None,
    ) -> None:
        self.value = value
        self.emit = emit
        self.constants = {} if constants is None else constants

    @property
    def dtype(self) -> DType:
        """The element type."""
        element = self.value.type.element
        assert isinstance(element, DType)
        return element

    def append(self, op: Op) -> Expression:
        """Append an op and return its result."""
        return Expression(self.emit(op), self.emit, self.constants)

    def constant(self, number: Number) -> Expression:
        """Return a tile of this type filled with `number`; each is made once."""
        key = (repr(number), self.value.type)
        if key not in self.constants:
            self.constants[key] = self.emit(Full(number, self.value.type))
        return Expression(self.constants[key], self.emit, self.constants)

    def operand(self, other: Expression | Number) -> Value:
        """Return the value to write beside this one as an operand."""
        return other.value if isinstance(other, Expression) else self.constant(other).value

    def __add__(self, other: Expression | Number) -> Expression:
        return self.append(Add(self.value, self.operand(other)))

    def __radd__(self, other: Number) -> Expression:
        return self.constant(other) + self

    def __sub__(self, other: Expression | Number) -> Expression:
        return self.append(Sub(self.value, self.operand(other)))

    def __rsub__(self, other: Number) -> Expression:
        return self.constant(other) - self

    def __mul__(self, other: Expression | Number) -> Expression:
        return self.append(Mul(self.value, self.operand(other)))

    def __rmul__(self, other: Number) -> Expression:
        return self * other

    def __truediv__(self, other: Expression | Number) -> Expression:
        return self.append(Div(self.value, self.operand(other), exact=True))

    def __rtruediv__(self, other: Number) -> Expression:
        return self.constant(other) / self

    def __and__(self, other: Expression | Number) -> Expression:
        return self.append(And(self.value, self.operand(other)))

    def __or__(self, other: Expression | Number) -> Expression:
        return self.append(Or(self.value, self.operand(other)))

    def __xor__(self, other: Expression | Number) -> Expression:
        return self.append(Xor(self.value, self.operand(other)))

    def __lshift__(self, other: Expression | Number) -> Expression:
        return self.append(ShiftLeft(self.value, self.operand(other)))

    def __rshift__(self, other: Expression | Number) -> Expression:
        return self.append(ShiftRight(self.value, self.operand(other)))

    def __lt__(self, other: Expression | Number) -> Expression:
        return self._compare(Predicate.LT, other)

    def __le__(self, other: Expression | Number) -> Expression:
        return self._compare(Predicate.LE, other)

    def __gt__(self, other: Expression | Number) -> Expression:
        return self._compare(Predicate.GT, other)

    def __ge__(self, other: Expression | Number) -> Expression:
        return self._compare(Predicate.GE, other)

    def equals(self, other: Expression | Number) -> Expression:
        """Return `self == other`, element by element."""
        return self._compare(Predicate.EQ, other)

    def differs(self, other: Expression | Number) -> Expression:
        """Return `self != other`, element by element; true where one is NaN."""
        return self._compare(Predicate.NE, other)

    def _compare(self, predicate: Predicate, other: Expression | Number) -> Expression:
        return self.append(Compare(predicate, self.value, self.operand(other)))

    def __neg__(self) -> Expression:
        return self.append(Neg(self.value))

    def __abs__(self) -> Expression:
        return self.append(Abs(self.value))

    def __invert__(self) -> Expression:
        return self.append(Invert(self.value))

    def near_quotient(self, other: Expression | Number) -> Expression:
        """Return `self / other`, which a GPU may round otherwise."""
        return self.append(Div(self.value, self.operand(other)))

    def fma(self, factor: Expression | Number, addend: Expression | Number) -> Expression:
        """Return `self * factor + addend`, rounded once."""
        return self.append(Fma(self.value, self.operand(factor), self.operand(addend)))

    def ldexp(self, exponent: Expression) -> Expression:
        """Return `self * 2^exponent` for a whole number held as a float."""
        return self.append(Ldexp(self.value, exponent.value))

    def upper_product(self, other: Expression) -> Expression:
        """Return the upper half of the double-width product of integers."""
        return self.append(MulHigh(self.value, other.value))

    def at_most(self, bound: Number) -> Expression:
        """Return `self` or the bound where it is above; NaN stays, as in `minps` of x86."""
        limit = self.constant(bound)
        return choose(limit < self, limit, self)

    def at_least(self, bound: Number) -> Expression:
        """Return `self` or the bound where it is below; NaN stays."""
        limit = self.constant(bound)
        return choose(limit > self, limit, self)

    def rounded(self) -> Expression:
        """Return the nearest whole number."""
        return self.append(Rint(self.value))

    def truncated(self) -> Expression:
        """Return the whole part."""
        return self.append(Trunc(self.value))

    def square_root(self) -> Expression:
        """Return the square root, rounded once."""
        return self.append(Sqrt(self.value))

    def cast(self, to: str, rounding: str = "rtne") -> Expression:
        """Convert by value to the type named `to`."""
        return self.append(Cast(self.value, DTYPES[to], rounding))

    def bitcast(self, to: str) -> Expression:
        """Reinterpret the bits as the type named `to`."""
        return self.append(Bitcast(self.value, DTYPES[to]))


def choose(condition: Expression, x: Expression | Number, y: Expression | Number) -> Expression:
    """Return `x` where the condition holds, else `y`; at least one of them is an expression."""
    typed = x if isinstance(x, Expression) else y
    assert isinstance(typed, Expression)
    return typed.append(Select(condition.value, typed.operand(x), typed.operand(y)))


def horner(x: Expression, coefficients: Sequence[Number]) -> Expression:
    """Return the polynomial of `x` with these coefficients, lowest power first, by fma."""
    *rest, last = coefficients
    result = x.fma(last, rest.pop())
    for coefficient in reversed(rest):
        result = result.fma(x, coefficient)
    return result
