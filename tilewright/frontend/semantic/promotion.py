"""The common type of two operands, by Triton's rules.

A *scalar* here is a Python number that reaches an operator as it is. It adopts the type of the
other operand if its kind (bool < int < float) is not higher. Arguments of the kernel and loaded
scalars are tensors for this purpose.
"""

from __future__ import annotations

from typing import Any

from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import (
    Number,
    as_tensor,
    describe,
    fail,
    full_of,
    is_number,
    literal_dtype,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType, ElementType, Kind

__all__ = ["common_type", "promote", "promote_integers", "promote_tensors"]

FP16, BF16, FP32, FP64 = (DTYPES[name] for name in ("fp16", "bf16", "fp32", "fp64"))

_RANK_OF_KIND = {Kind.BOOL: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2}


def common_type(
    a: DType, b: DType, *, a_is_scalar: bool = False, b_is_scalar: bool = False, name: str = ""
) -> DType:
    """Return the type in which an operator computes; `name` is `/`, `//` or `%` for a division."""
    if a_is_scalar != b_is_scalar:
        literal, tile = (a, b) if a_is_scalar else (b, a)
        if _RANK_OF_KIND[literal.element_kind] <= _RANK_OF_KIND[tile.element_kind]:
            return FP32 if name in _DIVISIONS and tile in {FP16, BF16} else tile
    if a.is_floating() or b.is_floating():
        return _common_float(a, b, is_division=name in _DIVISIONS)
    if name in {"//", "%"} and a.is_int_signed() != b.is_int_signed():
        fail(
            f"{name}: {a} and {b} differ in signedness, so the result would be ambiguous",
            "convert one of them, for instance x.to(tl.int64)",
        )
    return _common_integer(a, b)


_DIVISIONS = {"/", "//", "%"}


def _common_float(a: DType, b: DType, *, is_division: bool) -> DType:
    pair = {a, b}
    for wide in (FP64, FP32):
        if wide in pair:
            return wide
    if FP16 in pair:  # fp16 with bf16, fp8 or integers stays fp16
        return FP32 if is_division else FP16
    if pair == {BF16}:
        return FP32 if is_division else BF16
    if BF16 in pair or not (a.is_fp8() and b.is_fp8()):
        return FP32
    return a if a is b else FP16


def _common_integer(a: DType, b: DType) -> DType:
    """C's rules without the promotion to int: the wider wins, the unsigned one where widths tie."""
    if a.is_int_signed() == b.is_int_signed():
        return a if a.primitive_bitwidth > b.primitive_bitwidth else b
    unsigned, signed = (b, a) if a.is_int_signed() else (a, b)
    return unsigned if unsigned.primitive_bitwidth >= signed.primitive_bitwidth else signed


def _number_dtype(x: ElementType, name: str, other: Any) -> DType:
    if not isinstance(x, DType):
        fail(
            f"{name}: not defined for a pointer ({x}) and {describe(other)}",
            "pointers take + and - with integers; for addresses as numbers use p.to(tl.int64)",
        )
    return x


def promote(name: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Bring both operands of `name` to their common type and shape; numbers stay *scalars*."""
    x_number, y_number = is_number(x), is_number(y)
    x_dtype = literal_dtype(x) if x_number else as_tensor(x, name).dtype
    y_dtype = literal_dtype(y) if y_number else as_tensor(y, name).dtype
    dtype = common_type(
        _number_dtype(x_dtype, name, y),
        _number_dtype(y_dtype, name, x),
        a_is_scalar=x_number,
        b_is_scalar=y_number,
        name=name,
    )
    left = _literal(name, x, dtype, y) if x_number else convert(x, dtype)
    right = _literal(name, y, dtype, x) if y_number else convert(y, dtype)
    left, right = broadcast_tensors(name, left, right)
    return left, right


def _literal(name: str, value: Number, dtype: DType, other: Any) -> Tensor:
    if dtype.is_int() and not dtype.is_bool():
        low, high = dtype.integer_range
        if not low <= value <= high:
            fail(
                f"{name}: the number {value} is out of range for {dtype}, the type of "
                f"{describe(other)}",
                "convert the other operand to a type that holds it: x.to(tl.int64)",
            )
    return full_of(value, dtype)


def promote_tensors(name: str, *operands: Any) -> tuple[Tensor, ...]:
    """As `promote`, but numbers become tensors first and take part (`x > 0.5`, `tl.maximum`)."""
    tensors = [as_tensor(x, name) for x in operands]
    dtypes = [_number_dtype(t.dtype, name, t) for t in tensors]
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = common_type(dtype, other)
    return broadcast_tensors(name, *(convert(t, dtype) for t in tensors))


def promote_integers(name: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """As `promote`, for operators that are defined on integers and bools only."""
    left, right = promote(name, x, y)
    if not left.dtype.is_int():
        fail(
            f"{name}: defined for integers and bools, got {describe(x)} and {describe(y)}",
            "convert with .to(tl.int32), or reinterpret the bits with bitcast=True",
        )
    return left, right
