"""Matrix products."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit
from tilewright.frontend.semantic.values import (
    as_dtype,
    as_tensor,
    describe,
    fail,
    full_of,
    to_constant,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Dot, InputPrecision
from tilewright.ops.matmul import PRECISIONS

__all__ = ["dot"]

FP16, FP32, FP64 = DTYPES["fp16"], DTYPES["fp32"], DTYPES["fp64"]


def dot(
    a: Any,
    b: Any,
    acc: Any = None,
    input_precision: str | None = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
) -> Tensor:
    """Return `a @ b + acc`; the accumulator's type decides the result's."""
    left, right = as_tensor(a, "dot: the first operand"), as_tensor(b, "dot: the second operand")
    x, y = left.dtype, right.dtype
    if not (isinstance(x, DType) and isinstance(y, DType)):
        fail(
            f"dot: expected numbers, got {describe(left)} and {describe(right)}",
            hint="load what pointers point to first",
        )
    if x is not y and not (x.is_fp8() and y.is_fp8()):
        fail(
            f"dot: the operands have different types, {describe(left)} and {describe(right)}",
            f"convert one of them: b.to(tl.{x.long_name})",
        )
    if min(len(left.shape), len(right.shape)) < 2:
        fail(
            f"dot: both operands need at least 2 axes, got {describe(left)} and {describe(right)}",
            "add an axis with x[:, None] or x[None, :]",
        )
    element = _result_dtype(x, acc, out_dtype)
    if acc is None:
        acc = full_of(0, element, (*left.shape[:-1], right.shape[-1]))
    elif acc.dtype is not element:
        fail(
            f"dot: the accumulator is {describe(acc)}, products of {x} accumulate in {element}",
            f"make it with dtype tl.{element.long_name}, or pass out_dtype",
        )
    imprecise = 0
    if max_num_imprecise_acc is not None:
        imprecise = to_constant(max_num_imprecise_acc, "dot: max_num_imprecise_acc")
    return emit(Dot, left, right, acc, _precision(input_precision, allow_tf32), imprecise)


def _result_dtype(operand: DType, acc: Any, out_dtype: Any) -> DType:
    if operand.is_int():
        return DTYPES["i32"]
    if operand is FP64:
        return FP64
    if operand is FP32 or operand is DTYPES["bf16"]:
        return FP32
    if acc is not None and not isinstance(acc, Tensor):
        fail(
            f"dot: the accumulator must be a tile, got {acc!r}",
            hint="start from tl.zeros((M, N), tl.float32)",
        )
    wanted = acc.dtype if out_dtype is None and acc is not None else out_dtype
    chosen = FP32 if wanted is None else as_dtype(wanted, "dot: out_dtype")
    if not isinstance(chosen, DType) or chosen not in {FP16, FP32}:
        fail(
            f"dot: products of {operand} accumulate in fp16 or fp32, not in {chosen}",
            hint="convert the result: tl.dot(a, b).to(dtype)",
        )
    return chosen


def _precision(input_precision: str | None, allow_tf32: Any) -> InputPrecision:
    if input_precision is not None and allow_tf32 is not None:
        fail(
            "dot: pass input_precision or allow_tf32, not both",
            hint="allow_tf32=False is input_precision='ieee'",
        )
    if input_precision is None:
        if allow_tf32 is None:
            return InputPrecision.DEFAULT
        return InputPrecision.TF32 if allow_tf32 else InputPrecision.IEEE
    name = str(input_precision).lower()
    if name not in PRECISIONS:
        allowed = ", ".join(map(repr, PRECISIONS))
        fail(f"dot: input_precision must be one of {allowed}, got {input_precision!r}")
    return InputPrecision(name)
