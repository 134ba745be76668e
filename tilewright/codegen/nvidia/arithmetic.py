"""Elementwise ops that PTX has instructions of its own for, in place of the common rules."""

from __future__ import annotations

from collections.abc import Callable
from math import e, log2

from tilewright import ops
from tilewright.codegen.arithmetic import RULES, Operands
from tilewright.ir.core import Op
from tilewright.ir.types import DTYPES

__all__ = ["PTX_RULES"]


def _exp(o: Operands, op: Op) -> str:
    scaled = o.binary("fmul", o.texts[0], o.constant(log2(e)))
    return o.code.call("float", "llvm.nvvm.ex2.approx.ftz.f", f"float {scaled}", o.level)


def _exp2(o: Operands, op: Op) -> str:
    return o.code.call("float", "llvm.nvvm.ex2.approx.ftz.f", f"float {o.texts[0]}", o.level)


def _rsqrt(o: Operands, op: Op) -> str:
    return o.code.call("float", "llvm.nvvm.rsqrt.approx.f", f"float {o.texts[0]}", o.level)


def _div(o: Operands, op: ops.Div) -> str:
    if op.exact or o.element.name != "fp32":
        return RULES[ops.Div](o, op)
    x, y = o.texts
    return o.code.call("float", "llvm.nvvm.div.full", f"float {x}, float {y}", o.level)


def _cast(o: Operands, op: ops.Cast) -> str:
    """bf16 is rounded from fp32; what becomes bf16 at once is exact in fp32."""
    if op.to.name != "bf16":
        return RULES[ops.Cast](o, op)
    wide = RULES[ops.Cast](o, ops.Cast(op.x, DTYPES["fp32"]))
    rounded = o.convert("fptrunc", wide, "float", "bfloat")
    return o.convert("bitcast", rounded, "bfloat", "i16")


PTX_RULES: dict[type[Op], Callable[..., str]] = {
    ops.Cast: _cast,
    ops.Div: _div,
    ops.Exp: _exp,
    ops.Exp2: _exp2,
    ops.Rsqrt: _rsqrt,
}
