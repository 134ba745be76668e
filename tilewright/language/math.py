"""Functions of real analysis, element by element: `tl.exp`, also as `tl.math.exp`.

Integers enter as fp32; fp16, bf16 and fp8 are computed in fp32 and rounded back.
"""

from __future__ import annotations

from typing import Any

from tilewright import ops
from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic import arithmetic
from tilewright.frontend.semantic import math as semantic
from tilewright.frontend.semantic.values import as_tensor
from tilewright.frontend.tensor import Tensor, tensor_member

__all__ = [
    "abs", "cdiv", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log",
    "log2", "rsqrt", "sin", "sqrt", "sqrt_rn", "tanh", "umulhi",
]  # fmt: skip


@tensor_member
@builtin
def abs(x: Any) -> Tensor:
    """Return the magnitude; the most negative integer stays itself.

    >>> tl.abs(tl.arange(-2, 2))
    tensor([2, 1, 0, 1], i32[4])
    """
    return arithmetic.absolute(as_tensor(x, "abs"))


@tensor_member
@builtin
def exp(x: Any) -> Tensor:
    """Return e to the power of `x`.

    >>> tl.exp(tl.full((), 1.0, tl.float32))
    2.7182817
    """
    return semantic.apply(ops.Exp, x)


@tensor_member
@builtin
def exp2(x: Any) -> Tensor:
    """Return 2 to the power of `x`.

    >>> tl.exp2(tl.arange(0, 4))
    tensor([1., 2., 4., 8.], fp32[4])
    """
    return semantic.apply(ops.Exp2, x)


@tensor_member
@builtin
def log(x: Any) -> Tensor:
    """Return the natural logarithm; -inf at 0, NaN below."""
    return semantic.apply(ops.Log, x)


@tensor_member
@builtin
def log2(x: Any) -> Tensor:
    """Return the logarithm to base 2; -inf at 0, NaN below.

    >>> tl.log2(tl.full((), 8.0, tl.float32))
    3.0
    """
    return semantic.apply(ops.Log2, x)


@tensor_member
@builtin
def sin(x: Any) -> Tensor:
    """Return the sine of `x` in radians."""
    return semantic.apply(ops.Sin, x)


@tensor_member
@builtin
def cos(x: Any) -> Tensor:
    """Return the cosine of `x` in radians."""
    return semantic.apply(ops.Cos, x)


@builtin
def tanh(x: Any) -> Tensor:
    """Return the hyperbolic tangent."""
    return semantic.apply(ops.Tanh, x)


@tensor_member
@builtin
def erf(x: Any) -> Tensor:
    """Return the Gauss error function."""
    return semantic.apply(ops.Erf, x)


@tensor_member
@builtin
def sqrt(x: Any) -> Tensor:
    """Return the square root, correctly rounded; NaN below 0."""
    return semantic.apply(ops.Sqrt, x)


@tensor_member
@builtin
def sqrt_rn(x: Any) -> Tensor:
    """Return the square root, correctly rounded: the same as `sqrt`, which is exact here."""
    return semantic.apply(ops.Sqrt, x)


@tensor_member
@builtin
def rsqrt(x: Any) -> Tensor:
    """Return 1 over the square root, rounded twice; infinity at 0, NaN below.

    >>> tl.rsqrt(tl.full((), 4.0, tl.float32))
    0.5
    """
    return semantic.apply(ops.Rsqrt, x)


@tensor_member
@builtin
def floor(x: Any) -> Tensor:
    """Return the largest whole number not above `x`, as a float.

    >>> tl.floor(tl.full((), -1.5, tl.float32))
    -2.0
    """
    return semantic.apply(ops.Floor, x)


@tensor_member
@builtin
def ceil(x: Any) -> Tensor:
    """Return the smallest whole number not below `x`, as a float.

    >>> tl.ceil(tl.full((), -1.5, tl.float32))
    -1.0
    """
    return semantic.apply(ops.Ceil, x)


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False) -> Tensor:
    """Return the float quotient, of fp32 within 2 ULP on a GPU unless `ieee_rounding`.

    It is faster than `/`, which is correctly rounded everywhere, as this is with `ieee_rounding`.

    >>> tl.fdiv(tl.arange(1, 3), 2)
    tensor([0.5, 1. ], fp32[2])
    """
    return semantic.quotient("fdiv", x, y, exact=bool(ieee_rounding))


@builtin
def div_rn(x: Any, y: Any) -> Tensor:
    """Return the float quotient, correctly rounded."""
    return semantic.quotient("div_rn", x, y, exact=True)


@builtin
def fma(x: Any, y: Any, z: Any) -> Tensor:
    """Return `x * y + z`, rounded once; of integers, which wrap, too.

    >>> tl.fma(tl.arange(0, 3), 2, 1)
    tensor([1, 3, 5], i32[3])
    """
    return semantic.fused_multiply_add(x, y, z)


@builtin
def umulhi(x: Any, y: Any) -> Tensor:
    """Return the upper half of the product of two 32- or 64-bit integers, read as unsigned.

    >>> tl.umulhi(tl.full((), 2**31, tl.uint32), 6)
    3
    """
    return semantic.multiply_high(x, y)


@tensor_member
@builtin
def cdiv(x: Any, div: Any) -> Any:
    """Return the integer quotient rounded up, also of negative numbers; an int of two ints.

    >>> cdiv(-36, 5)
    -7
    """
    return semantic.ceiling_divide(x, div)
