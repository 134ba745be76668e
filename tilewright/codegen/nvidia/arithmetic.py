"""Elementwise ops that PTX has instructions of its own for, in place of the common rules."""

from __future__ import annotations

from collections.abc import Callable
from math import e, log2

from tilewright import ops
from tilewright.codegen.arithmetic import RULES, Operands
from tilewright.codegen.code import constant_text, dtype
from tilewright.ir.core import Op
from tilewright.ir.types import DTYPES

__all__ = ["PTX_RULES"]

_FP8_FORMATS = {"fp8e4nv": "e4m3x2", "fp8e5": "e5m2x2"}


def _exp(o: Operands, op: Op) -> str:
    scaled = o.binary("fmul", o.texts[0], o.constant(log2(e)))
    return o.code.call("float", "llvm.nvvm.ex2.approx.ftz.f", f"float {scaled}", o.level)


def _exp2(o: Operands, op: Op) -> str:
    return o.code.call("float", "llvm.nvvm.ex2.approx.ftz.f", f"float {o.texts[0]}", o.level)


def _rsqrt(o: Operands, op: Op) -> str:
    return o.code.call("float", "llvm.nvvm.rsqrt.approx.f", f"float {o.texts[0]}", o.level)


def _div(o: Operands, op: ops.Div) -> str:
    if op.exact or o.element.short_name != "fp32":
        return RULES[ops.Div](o, op)
    x, y = o.texts
    if isinstance(op.x, ops.Full) and op.x.value == 1:
        inverse = f'asm "rcp.approx.f32 $0, $1;", "=f,f"(float {y}) nounwind memory(none)'
        return o.code.assign(f"call float {inverse}", o.level)
    if isinstance(op.y, ops.Broadcast):
        return _by_reciprocal(o, x, y)
    return o.code.call("float", "llvm.nvvm.div.full", f"float {x}, float {y}", o.level)


def _by_reciprocal(o: Operands, x: str, y: str) -> str:
    """Divide by what other elements are divided by too: only two products are their own.

    Where the reciprocal would be infinite or subnormal both sides are scaled first.
    """
    magnitude = o.intrinsic("fabs", y)
    is_large = o.compare("ogt", magnitude, o.constant(2.0**126))
    is_small = o.compare("olt", magnitude, o.constant(2.0**-126))
    scale = o.select(is_large, o.constant(0.25), o.constant(1.0))
    scale = o.select(is_small, o.constant(2.0**24), scale)
    divisor = o.binary("fmul", y, scale)
    inverse = o.code.call("float", "llvm.nvvm.rcp.approx.ftz.f", f"float {divisor}", o.level)
    return o.binary("fmul", o.binary("fmul", x, scale), inverse)


def _cast(o: Operands, op: ops.Cast) -> str:
    """Narrow formats are rounded from fp32: what becomes one at once is exact there."""
    if dtype(o.element).short_name in _FP8_FORMATS:
        return _from_fp8(o, op)
    if op.to.short_name not in {"bf16", *_FP8_FORMATS}:
        return RULES[ops.Cast](o, op)
    wide = RULES[ops.Cast](o, ops.Cast(op.x, DTYPES["fp32"]))
    if op.to.short_name == "bf16":
        rounded = o.convert("fptrunc", wide, "float", "bfloat")
        return o.convert("bitcast", rounded, "bfloat", "i16")
    name = f"llvm.nvvm.ff.to.{_FP8_FORMATS[op.to.short_name]}.rn"
    zero = constant_text(0.0, DTYPES["fp32"])
    pair = o.code.call("i16", name, f"float {zero}, float {wide}", o.level)
    return o.convert("trunc", pair, "i16", "i8")


def _from_fp8(o: Operands, op: ops.Cast) -> str:
    """By way of fp16, where all of fp8 is exact."""
    pair = o.convert("zext", o.texts[0], "i8", "i16")
    name = f"llvm.nvvm.{_FP8_FORMATS[dtype(o.element).short_name]}.to.f16x2.rn"
    halves = o.code.call("<2 x half>", name, f"i16 {pair}", o.level)
    half = o.code.assign(f"extractelement <2 x half> {halves}, i32 0", o.level)
    rest = ops.Cast(ops.Cast(op.x, DTYPES["fp16"]), op.to)
    return _cast(Operands(o.code, rest, [half], o.lanes, o.level), rest)


PTX_RULES: dict[type[Op], Callable[..., str]] = {
    ops.Cast: _cast,
    ops.Div: _div,
    ops.Exp: _exp,
    ops.Exp2: _exp2,
    ops.Rsqrt: _rsqrt,
}
