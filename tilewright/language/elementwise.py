"""Arithmetic with names, selection, and the matrix product."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic import PropagateNan, arithmetic, comparison, products
from tilewright.frontend.semantic.values import as_tensor, is_number, to_flag
from tilewright.frontend.tensor import Tensor, tensor_member

__all__ = [
    "add", "clamp", "dot", "logical_and", "logical_or", "maximum", "minimum", "mul", "sub",
    "where",
]  # fmt: skip


def _one_tensor(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Of two numbers, make the first a tensor, so that an op has something to work on."""
    return (as_tensor(x, name), y) if is_number(x) and is_number(y) else (x, y)


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x + y`; int32 may wrap unnoticed in debug mode, too, if not `sanitize_overflow`."""
    checked = to_flag(sanitize_overflow, "add: sanitize_overflow")
    return arithmetic.add(*_one_tensor("add", x, y), checked=checked)


@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x - y`; int32 may wrap unnoticed in debug mode, too, if not `sanitize_overflow`."""
    checked = to_flag(sanitize_overflow, "sub: sanitize_overflow")
    return arithmetic.subtract(*_one_tensor("sub", x, y), checked=checked)


@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> Tensor:
    """Return `x * y`; int32 may wrap unnoticed in debug mode, too, if not `sanitize_overflow`."""
    checked = to_flag(sanitize_overflow, "mul: sanitize_overflow")
    return arithmetic.multiply(*_one_tensor("mul", x, y), checked=checked)


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the smaller of each pair; NaN loses, or wins with `PropagateNan.ALL`."""
    return comparison.minimum(x, y, propagate_nan)


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the larger of each pair; NaN loses, or wins with `PropagateNan.ALL`."""
    return comparison.maximum(x, y, propagate_nan)


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return `x` limited to `min` and `max`."""
    return comparison.clamp(x, min, max, propagate_nan)


@builtin
def where(condition: Any, x: Any, y: Any) -> Tensor:
    """Return `x` where `condition` (bools) holds, else `y`; both are computed everywhere.

    A literal takes the type of the other side; pointers may be chosen between, too.
    """
    return comparison.where(condition, x, y)


@tensor_member
@builtin
def logical_and(x: Any, y: Any) -> Tensor:
    """Return whether both are true, element by element."""
    return comparison.logical_and(x, y)


@tensor_member
@builtin
def logical_or(x: Any, y: Any) -> Tensor:
    """Return whether one is true, element by element."""
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

    Both operands have one type (or are both fp8). Floats accumulate in fp32, fp64 in fp64, int8 and
    uint8 in int32; fp16 and fp8 also in fp16 when `acc` or `out_dtype` says so. `input_precision`
    (`tf32`, the default, `tf32x3`, `ieee`, `bf16x3`, `bf16x6`) says how much of fp32 operands a
    tensor core may drop; where there is none, products are exact in fp32.
    """
    return products.dot(
        input, other, acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype
    )
