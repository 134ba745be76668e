"""Functions of real analysis, fused and high products, and exact division."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.casts import cast, convert
from tilewright.frontend.semantic.promotion import promote, promote_tensors
from tilewright.frontend.semantic.values import as_tensor, fail
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Add, Div, Fma, MathFunction, Mul, MulHigh

__all__ = ["apply", "ceiling_divide", "fused_multiply_add", "multiply_high", "quotient"]

FP32 = DTYPES["fp32"]


def _floating(name: str, x: Any) -> Tensor:
    """Integers enter a function on reals as fp32."""
    tensor = as_tensor(x, name)
    if not isinstance(tensor.dtype, DType):
        fail(
            f"{name}: expected numbers, got {tensor.value.type}",
            hint="convert a pointer first: x.to(tl.int64)",
        )
    if tensor.dtype.primitive_bitwidth < 32 or not tensor.dtype.is_floating():
        extension(f"{name} of {tensor.value.type}", f"tl.{name}(x.to(tl.float32))")
    return tensor if tensor.dtype.is_floating() else convert(tensor, FP32)


def apply(function: type[MathFunction], x: Any) -> Tensor:
    """Apply a function of one argument; narrow floats are computed in fp32 and rounded back."""
    return emit(function, _floating(function.op_name, x))


def quotient(name: str, x: Any, y: Any, *, exact: bool) -> Tensor:
    """Return the quotient in the common type of two floats."""
    return emit(Div, *promote_tensors(name, _floating(name, x), _floating(name, y)), exact=exact)


def fused_multiply_add(x: Any, y: Any, z: Any) -> Tensor:
    """Return `x * y + z`: rounded once for floats, wrapping for integers."""
    a, b, c = promote_tensors("fma", x, y, z)
    if a.dtype.is_int():
        return emit(Add, emit(Mul, a, b), c)
    return emit(Fma, a, b, c)


def multiply_high(x: Any, y: Any) -> Tensor:
    """Return the upper half of the unsigned product of two 32- or 64-bit integers."""
    a, b = promote_tensors("umulhi", x, y)
    element = a.dtype
    if not (isinstance(element, DType) and element.is_int() and element.primitive_bitwidth >= 32):
        fail(
            f"umulhi: expected integers of 32 or 64 bits, got {a.value.type}",
            hint="convert it: x.to(tl.uint32)",
        )
    unsigned = DTYPES[f"u{element.primitive_bitwidth}"]
    high = emit(MulHigh, cast(a, unsigned, bitcast=True), cast(b, unsigned, bitcast=True))
    return cast(high, element, bitcast=True)


def ceiling_divide(x: Any, y: Any) -> Any:
    """Return the quotient rounded up; of two compile-time numbers, at compile time."""
    if isinstance(x, int) and isinstance(y, int):
        if y == 0:
            fail("cdiv: division by zero", hint="divide by a positive block size")
        return -(-x // y)
    x, y = promote("cdiv", x, y)
    truncated = x // y
    remainder = x % y
    is_short = (remainder != 0) & ((remainder < 0) == (y < 0))
    return truncated + cast(is_short, truncated.dtype)
