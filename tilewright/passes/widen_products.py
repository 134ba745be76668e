"""Products of narrow floats become those that a target computes.

    %c = dot %a, %b, %acc    →    %x = cast %a {to=fp16}
                                  %y = cast %b {to=fp16}
                                  %c = dot %x, %y, %acc

fp8 that the target does not multiply is widened to fp16, exactly; then an fp16 accumulator becomes
an fp32 one, and the sum is rounded once, except where the target sums up products of fp16 in fp16.
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Cast, Dot

__all__ = ["widen_products"]

_FP16, _FP32 = DTYPES["fp16"], DTYPES["fp32"]


def widen_products(function: Function, types: frozenset[str] = frozenset()) -> Function:
    """Widen products except those of `types`, the names of what the target multiplies as it is."""

    def rule(op: Op, emit: Emit) -> Value | None:
        return _widened(op, emit, types) if isinstance(op, Dot) else None

    return rewrite(function, rule)


def _widened(op: Dot, emit: Emit, types: frozenset[str]) -> Value | None:
    a, b, acc = op.a, op.b, op.acc
    if not {name for x in (a, b) if (name := _fp8_name(x))} <= types:
        a, b = emit(Cast(a, _FP16)), emit(Cast(b, _FP16))
    if acc.type.element is _FP16 and not (a.type.element is _FP16 and "fp16" in types):
        acc = emit(Cast(acc, _FP32))
    if (a, b, acc) == (op.a, op.b, op.acc):
        return None
    dot = emit(Dot(a, b, acc, op.input_precision, op.max_num_imprecise_acc))
    return dot if acc is op.acc else emit(Cast(dot, _FP16))


def _fp8_name(x: Value) -> str:
    element = x.type.element
    return element.short_name if isinstance(element, DType) and element.is_fp8() else ""
