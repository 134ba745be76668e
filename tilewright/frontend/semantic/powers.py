"""`x ** y`."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.promotion import promote
from tilewright.frontend.semantic.values import fail, full_of, is_number
from tilewright.frontend.tensor import Tensor, constant_array, tensor_operator
from tilewright.ir.types import DType
from tilewright.ops import And, Assert, Compare, Mul, Or, Pow, Predicate, Select

__all__ = ["power"]


@tensor_operator("pow")
def power(x: Any, y: Any) -> Tensor:
    """Return `x ** y`: of integers exactly (wrapping), of anything else as floats."""
    extension("`**` of a runtime value", "x * x, or tl.exp2(y * tl.log2(x))")
    left, right = promote("**", x, y)
    exponent = _known_number(y)
    if left.dtype.is_int():
        if exponent is None:
            return _computed_power(left, right)
        return _integer_power(left, exponent)
    if exponent == 2:
        return emit(Mul, left, left)  # correctly rounded, as pow would be
    return emit(Pow, left, right)


def _known_number(x: Any) -> Any:
    if is_number(x):
        return x
    known = constant_array(x.value)
    return known.item() if known is not None and known.size == 1 else None


def _integer_power(x: Tensor, exponent: Any) -> Tensor:
    if exponent < 0:
        fail(
            f"**: an integer ({x.value.type}) to a negative power",
            "convert the base to a float first: x.to(tl.float32) ** y",
        )
    remaining = int(exponent)
    result, square = full_of(1, x.dtype, x.shape), x
    while remaining:
        if remaining & 1:
            result = emit(Mul, result, square)
        remaining >>= 1
        if remaining:
            square = emit(Mul, square, square)
    return result


def _computed_power(x: Tensor, y: Tensor) -> Tensor:
    """Square and multiply, for each bit that an exponent may have; below 0, truncate."""
    dtype = x.dtype
    assert isinstance(dtype, DType)

    def constant(number: int) -> Tensor:
        return full_of(number, dtype, x.shape)

    bits = dtype.primitive_bitwidth - dtype.is_int_signed()
    result, square = constant(1), x
    for bit in range(bits):
        is_set = emit(Compare, Predicate.NE, emit(And, y, constant(1 << bit)), constant(0))
        result = emit(Select, is_set, emit(Mul, result, square), result)
        if bit + 1 < bits:
            square = emit(Mul, square, square)
    if not dtype.is_int_signed():
        return result
    whole = emit(Compare, Predicate.GE, y, constant(0))
    emit_all(Assert, "**: an integer to a negative power", whole, None)
    for unit in (1, -1):
        whole = emit(Or, whole, emit(Compare, Predicate.EQ, x, constant(unit)))
    return emit(Select, whole, result, constant(0))
