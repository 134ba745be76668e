"""The arithmetic and bit operators, on numbers and pointers."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.overflow import emit_checked
from tilewright.frontend.semantic.promotion import promote, promote_integers
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import as_tensor, describe, fail, is_number
from tilewright.frontend.tensor import Tensor, tensor_operator
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.ops import (
    Abs,
    Add,
    And,
    Div,
    Floor,
    Invert,
    Mul,
    Neg,
    Or,
    PointerAdd,
    Rem,
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
)

__all__ = [
    "absolute", "add", "bit_and", "bit_or", "bit_xor", "floor_divide", "invert", "modulo",
    "multiply", "negate", "offset_pointer", "shift_left", "shift_right", "subtract",
    "true_divide",
]  # fmt: skip

FP32, INT64 = DTYPES["fp32"], DTYPES["i64"]


def _is_pointer(x: Any) -> bool:
    return isinstance(x, Tensor) and isinstance(x.dtype, PointerType)


def offset_pointer(name: str, pointer: Tensor, offset: Any, *, backward: bool = False) -> Tensor:
    """Return `pointer` moved by `offset` elements; an unsigned offset is extended with zeros."""
    if _is_pointer(offset):
        fail(
            f"{name}: two pointers, {describe(pointer)} and {describe(offset)}",
            "a pointer takes an integer offset; for addresses as numbers use p.to(tl.int64)",
        )
    moved = as_tensor(-offset if backward and is_number(offset) else offset, name)
    if not moved.dtype.is_int():
        fail(
            f"{name}: a pointer moves by integers, got {describe(offset)}",
            "convert the offset with .to(tl.int64)",
        )
    if backward and not is_number(offset):
        moved = emit(Neg, convert(moved, INT64))
    return emit(PointerAdd, *broadcast_tensors(name, pointer, moved))


@tensor_operator("add")
def add(x: Any, y: Any, *, checked: bool = True) -> Tensor:
    """Return `x + y`; one of them may be a pointer."""
    if _is_pointer(x):
        return offset_pointer("+", x, y)
    if _is_pointer(y):
        return offset_pointer("+", y, x)
    return emit_checked("+", Add, *promote("+", x, y), checked=checked)


@tensor_operator("sub")
def subtract(x: Any, y: Any, *, checked: bool = True) -> Tensor:
    """Return `x - y`; `x` may be a pointer."""
    if _is_pointer(x):
        return offset_pointer("-", x, y, backward=True)
    return emit_checked("-", Sub, *promote("-", x, y), checked=checked)


@tensor_operator("mul")
def multiply(x: Any, y: Any, *, checked: bool = True) -> Tensor:
    """Return `x * y`."""
    return emit_checked("*", Mul, *promote("*", x, y), checked=checked)


@tensor_operator("truediv")
def true_divide(x: Any, y: Any) -> Tensor:
    """Return the quotient as a float: integers divide in fp32, fp16 and bf16 too."""
    left, right = promote("/", x, y)
    if left.dtype.is_int():
        # Each by itself: a type for both may hold no negative numbers.
        sides = (convert(as_tensor(side, "/"), FP32) for side in (x, y))
        left, right = promote("/", *sides)
    return emit(Div, left, right, exact=True)


@tensor_operator("floordiv")
def floor_divide(x: Any, y: Any) -> Tensor:
    """Return the integer quotient truncated toward zero, as in C; of floats, the floor."""
    left, right = promote("//", x, y)
    if not left.dtype.is_floating():
        return emit(Div, left, right)
    quotient = emit(Div, left, right, exact=True)
    extension("`//` of floats", "tl.floor(x / y)")
    return emit(Floor, quotient)


@tensor_operator("mod")
def modulo(x: Any, y: Any) -> Tensor:
    """Return the remainder with the sign of `x`, as in C (`fmod` for floats)."""
    return emit(Rem, *promote("%", x, y))


@tensor_operator("and")
def bit_and(x: Any, y: Any) -> Tensor:
    """Return `x & y` of integers or bools."""
    return emit(And, *promote_integers("&", x, y))


@tensor_operator("or")
def bit_or(x: Any, y: Any) -> Tensor:
    """Return `x | y` of integers or bools."""
    return emit(Or, *promote_integers("|", x, y))


@tensor_operator("xor")
def bit_xor(x: Any, y: Any) -> Tensor:
    """Return `x ^ y` of integers or bools."""
    return emit(Xor, *promote_integers("^", x, y))


@tensor_operator("lshift")
def shift_left(x: Any, y: Any) -> Tensor:
    """Return `x << y` of integers."""
    return emit(ShiftLeft, *promote_integers("<<", x, y))


@tensor_operator("rshift")
def shift_right(x: Any, y: Any) -> Tensor:
    """Return `x >> y` of integers: the sign is kept where the common type is signed."""
    return emit(ShiftRight, *promote_integers(">>", x, y))


@tensor_operator("neg")
def negate(x: Tensor) -> Tensor:
    """Return minus `x`."""
    _require_number("-", x)
    return emit(Neg, x)


@tensor_operator("pos")
def _pos(x: Tensor) -> Tensor:
    """`+x`."""
    _require_number("+", x)
    extension("unary `+` of a runtime value", "leave the `+` out")
    return x


@tensor_operator("invert")
def invert(x: Tensor) -> Tensor:
    """Return `x` with all bits flipped."""
    if not x.dtype.is_int():
        fail(
            f"~: defined for integers and bools, got {describe(x)}",
            hint="x != x is true for NaN; for bits use x.to(tl.int32, bitcast=True)",
        )
    return emit(Invert, x)


@tensor_operator("abs")
def absolute(x: Tensor) -> Tensor:
    """Return the magnitude; unsigned numbers and bools are their own."""
    _require_number("abs", x)
    return x if x.dtype.is_int_unsigned() else emit(Abs, x)


def _require_number(name: str, x: Tensor) -> None:
    if not isinstance(x.dtype, DType):
        fail(
            f"{name}: not defined for a pointer ({describe(x)})",
            hint="pointers take + and - of integers, and comparisons; the rest on x.to(tl.int64)",
        )
