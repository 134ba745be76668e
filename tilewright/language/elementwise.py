"""Arithmetic with names, selection, and the matrix product."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic import (
    PropagateNan,
    arithmetic,
    comparison,
    products,
    scaled_products,
)
from tilewright.frontend.semantic.values import as_tensor, is_number, to_flag
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.language.dtypes import float32

__all__ = [
    "add", "clamp", "dot", "dot_scaled", "logical_and", "logical_or", "maximum", "minimum", "mul",
    "sub", "where",
]  # fmt: skip


def _one_tensor(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Of two numbers, make the first a tensor, so that an op has something to work on."""
    return (as_tensor(x, name), y) if is_number(x) and is_number(y) else (x, y)


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x + y`, broadcast and in the common type; a pointer `x` moves by elements.

    With `sanitize_overflow`, int32 that wraps is an error in eager mode and in kernels compiled for
    debugging.

    >>> tl.add(tl.arange(0, 3), 0.5)
    tensor([0.5, 1.5, 2.5], fp32[3])
    """
    checked = to_flag(sanitize_overflow, "add: sanitize_overflow")
    return arithmetic.add(*_one_tensor("add", x, y), checked=checked)


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x - y`, broadcast and in the common type; `sanitize_overflow` is as in `add`.

    >>> tl.sub(tl.arange(0, 3), 1)
    tensor([-1,  0,  1], i32[3])
    """
    checked = to_flag(sanitize_overflow, "sub: sanitize_overflow")
    return arithmetic.subtract(*_one_tensor("sub", x, y), checked=checked)


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x * y`, broadcast and in the common type; `sanitize_overflow` is as in `add`.

    >>> tl.mul(tl.arange(0, 3), tl.arange(1, 4))
    tensor([0, 2, 6], i32[3])
    """
    checked = to_flag(sanitize_overflow, "mul: sanitize_overflow")
    return arithmetic.multiply(*_one_tensor("mul", x, y), checked=checked)


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the smaller of each pair; -0.0 counts as smaller than 0.0.

    A NaN loses against a number or, with `propagate_nan=tl.PropagateNan.ALL`, wins.

    >>> tl.minimum(tl.arange(0, 4), 2)
    tensor([0, 1, 2, 2], i32[4])
    """
    return comparison.minimum(x, y, propagate_nan)


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the larger of each pair; 0.0 counts as larger than -0.0.

    A NaN loses against a number or, with `propagate_nan=tl.PropagateNan.ALL`, wins.

    >>> tl.maximum(tl.arange(0, 4), 2)
    tensor([2, 2, 2, 3], i32[4])
    """
    return comparison.maximum(x, y, propagate_nan)


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return `x` limited to `min` from below and `max` from above.

    A NaN in `x` becomes `min` or, with `propagate_nan=tl.PropagateNan.ALL`, stays.

    >>> tl.clamp(tl.arange(0, 4).to(tl.float32), 0.5, 2.0)
    tensor([0.5, 1. , 2. , 2. ], fp32[4])
    """
    return comparison.clamp(x, min, max, propagate_nan)


@builtin
def where(condition: Any, x: Any, y: Any) -> Tensor:
    """Return `x` where `condition` (bools) holds, else `y`; both are computed everywhere.

    The three are broadcast against each other. A literal takes the type of the other side; pointers
    may be chosen between, too.

    >>> tl.where(tl.arange(0, 4) < 2, 1.0, -1.0)
    tensor([ 1.,  1., -1., -1.], fp32[4])
    """
    return comparison.where(condition, x, y)


@tensor_member
@builtin
def logical_and(x: Any, y: Any) -> Tensor:
    """Return whether both are true (not 0), element by element: what `and` does with tiles.

    >>> tl.logical_and(tl.arange(0, 3) > 0, tl.arange(0, 3) < 2)
    tensor([False,  True, False], i1[3])
    """
    return comparison.logical_and(x, y)


@tensor_member
@builtin
def logical_or(x: Any, y: Any) -> Tensor:
    """Return whether one is true (not 0), element by element: what `or` does with tiles.

    >>> tl.logical_or(tl.arange(0, 3) < 1, tl.arange(0, 3) > 1)
    tensor([ True, False,  True], i1[3])
    """
    return comparison.logical_or(x, y)


@builtin
def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: str | None = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
) -> Tensor:
    """Return the matrix product `input @ other + acc` over the last two axes, of any sizes.

    `input` is (..., m, k), `other` (..., k, n), `acc` and the result (..., m, n). Both operands
    have one type (or are both fp8). Floats accumulate in fp32, fp64 in fp64, int8 and uint8 in
    int32; fp16 and fp8 also in fp16 when `acc` or `out_dtype` says so. `input_precision` (`tf32`,
    the default, `tf32x3`, `ieee`, `bf16x3`, `bf16x6`) says how much of fp32 operands a tensor core
    may drop; where there is none, products are exact in fp32. `allow_tf32=False` is an older way to
    say `ieee`, and `max_num_imprecise_acc` bounds how many fp8 products a tensor core adds up with
    fewer bits.

    >>> ones = tl.full((2, 3), 1.0, tl.float32)
    >>> tl.dot(ones, ones.T)
    tensor([[3., 3.],
            [3., 3.]], fp32[2, 2])
    """
    return products.dot(
        input, other, acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype
    )


@builtin
def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: str,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: str,
    acc: Any = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: Any = float32,
) -> Tensor:
    """Return the matrix product `lhs @ rhs + acc` of numbers that share scales in groups along k.

    `lhs` is (..., m, k), `rhs` (..., k, n). A format is `e4m3` or `e5m2` (fp8, also as uint8),
    `bf16` or `fp16` (also as uint16), or `e2m1`: uint8 with two numbers in each byte, the lower
    bits first, which are neighbours in k or, with `lhs_k_pack=False` (`rhs_k_pack=False`), in m
    (n). `lhs_scale` is (..., m, groups), `rhs_scale` (..., n, groups), where `groups` divides k:
    exponents in uint8 (2^(x - 127), NaN for 255), or float8e4nv; None stands for 1. An operand
    times its scale is rounded to bf16, or to fp16 if one of the formats is; sums are fp32, and
    rounded to `out_dtype`, the type of `acc`. `fast_math` allows targets to ignore that a scale is
    NaN; none does.

    >>> ones = tl.full((2, 16), 0x22, tl.uint8)  # each byte is two numbers 1.0
    >>> scale = tl.full((2, 1), 128, tl.uint8)  # 2.0
    >>> tl.dot_scaled(ones, scale, "e2m1", ones.T, scale, "e2m1")
    tensor([[128., 128.],
            [128., 128.]], fp32[2, 2])
    """
    to_flag(fast_math, "dot_scaled: fast_math")
    left = scaled_products.ScaledOperand("lhs", lhs, lhs_scale, lhs_format, lhs_k_pack)
    right = scaled_products.ScaledOperand("rhs", rhs, rhs_scale, rhs_format, rhs_k_pack)
    return scaled_products.dot_scaled(left, right, acc, out_dtype)
