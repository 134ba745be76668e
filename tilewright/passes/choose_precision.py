"""Products that do not say how precise they are get the precision of the launch.

%c = dot %a, %b, %acc {input_precision="default"}
→
%c = dot %a, %b, %acc {input_precision="tf32"}
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ops import Dot, InputPrecision

__all__ = ["choose_precision"]


def choose_precision(
    function: Function, precision: InputPrecision = InputPrecision.TF32
) -> Function:
    """Let products whose precision is the default have this one."""

    def rule(op: Op, emit: Emit) -> Value | None:
        match op:
            case Dot(a, b, acc, InputPrecision.DEFAULT, imprecise):
                return emit(Dot(a, b, acc, precision, imprecise))
        return None

    return rewrite(function, rule)
