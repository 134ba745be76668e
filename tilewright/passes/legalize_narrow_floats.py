"""Arithmetic on fp16, bf16 and fp8 as fp32 arithmetic between casts, one rounding for each op.

No target computes in all of these formats, and the meaning of an op on them is to compute in fp32
and round once (`Elementwise.evaluate`). Afterwards their values only move: through memory, shape
ops, `Select`, control flow, atomics, and into and out of `Dot`, which takes them as they are.

    %z = add %x, %y : bf16[64]   →   %a = cast %x : fp32[64]
                                     %b = cast %y : fp32[64]
                                     %c = add %a, %b : fp32[64]
                                     %z = cast %c : bf16[64]
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops.convert import Cast
from tilewright.ops.elementwise import Elementwise, has_narrow_operand
from tilewright.ops.numerics import is_narrow_float
from tilewright.ops.program import Print
from tilewright.ops.reduce import Sort
from tilewright.passes.expression import Expression
from tilewright.passes.narrow_float_bits import to_fp16

__all__ = ["legalize_narrow_floats"]

WIDE = DTYPES["fp32"]


def legalize_narrow_floats(function: Function) -> Function:
    """Compute on narrow floats in fp32."""
    return rewrite(function, _legalize)


def _legalize(op: Op, emit: Emit) -> Value | tuple[Value, ...] | None:
    if not has_narrow_operand(op):
        return None
    match op:
        case Elementwise():
            return _in_fp32(op, emit)
        case Sort():
            return _sort(op, emit)
        case Print(hex=False):
            return emit(op.rebuild(lambda v: _widen(v, emit))).results
    return None


def _in_fp32(op: Op, emit: Emit) -> Value:
    wide = emit(op.rebuild(lambda v: _widen(v, emit)))
    return _cast_to(op, wide, emit)


# What the sort moves must come back as it was. A cast to fp8 would make the largest number of an
# infinity, so fp8e5 travels as the upper byte of fp16.
def _sort(op: Sort, emit: Emit) -> Value:
    x = Expression(op.x, emit)
    name = x.dtype.short_name
    if name == "fp8e5":
        x = to_fp16(x)
    result = x.append(Sort(x.cast("fp32").value, op.descending))
    if name == "fp8e5":
        upper = result.cast("fp16").bitcast("u16") >> 8
        return upper.cast("u8").bitcast(name).value
    return result.cast(name).value


def _cast_to(op: Op, result: Value, emit: Emit) -> Value:
    """Round `result` to the type of `op`, unless it has that already."""
    element = op.type.element
    assert isinstance(element, DType)
    return result if result.type == op.type else emit(Cast(result, element))


def _widen(x: Value, emit: Emit) -> Value:
    element = x.type.element
    if isinstance(element, DType) and is_narrow_float(element):
        return emit(Cast(x, WIDE))
    return x
