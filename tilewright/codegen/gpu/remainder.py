"""The remainder of floats, exactly: LLVM's expansion for GPUs rounds the quotient."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type

__all__ = ["remainder"]


def remainder(code: Code, op: ops.Rem, x: Element, y: Element) -> Element:
    """Write `fmod(x, y)`; the sign is that of `x`."""
    kind = llvm_type(op.type.element)
    name = f"@remainder.{kind}"
    if name not in code.definitions:
        code.definitions[name] = _definition(name, kind)
        for intrinsic in ("fabs", "copysign"):
            full = f"llvm.{intrinsic}.{'f32' if kind == 'float' else 'f64'}"
            count = 1 if intrinsic == "fabs" else 2
            code.declarations[full] = f"declare {kind} @{full}({', '.join([kind] * count)})"
    level = max(x.level, y.level)
    text = code.assign(f"call {kind} {name}({kind} {x.text}, {kind} {y.text})", level)
    return Element(text, 1, level)


def _definition(name: str, kind: str) -> str:
    """Double y as often as it fits into x, then subtract and halve: every step is exact.

    Doubling may overflow to infinity, which does not fit either. Nor does a y that is infinite.
    """
    suffix = "f32" if kind == "float" else "f64"
    return f"""
define internal {kind} {name}({kind} %x, {kind} %y) alwaysinline nounwind {{
entry:
  %a = call {kind} @llvm.fabs.{suffix}({kind} %x)
  %b = call {kind} @llvm.fabs.{suffix}({kind} %y)
  %finite = fcmp olt {kind} %a, 0x7FF0000000000000
  %positive = fcmp ogt {kind} %b, 0.0
  %fine = and i1 %finite, %positive
  br i1 %fine, label %defined, label %undefined
defined:
  %fits_once = fcmp ole {kind} %b, %a
  br i1 %fits_once, label %double, label %exit
double:
  %multiple = phi {kind} [ %b, %defined ], [ %twice, %double ]
  %twice = fadd {kind} %multiple, %multiple
  %fits = fcmp ole {kind} %twice, %a
  br i1 %fits, label %double, label %subtract
subtract:
  %left = phi {kind} [ %a, %double ], [ %rest, %subtract ]
  %part = phi {kind} [ %multiple, %double ], [ %half, %subtract ]
  %enough = fcmp oge {kind} %left, %part
  %less = fsub {kind} %left, %part
  %rest = select i1 %enough, {kind} %less, {kind} %left
  %half = fmul {kind} %part, 0.5
  %more = fcmp oge {kind} %half, %b
  br i1 %more, label %subtract, label %exit
exit:
  %whole = phi {kind} [ %a, %defined ], [ %rest, %subtract ]
  %result = call {kind} @llvm.copysign.{suffix}({kind} %whole, {kind} %x)
  ret {kind} %result
undefined:
  %known = fcmp ord {kind} %x, %y
  %sum = fadd {kind} %x, %y
  %nan = select i1 %known, {kind} 0x7FF8000000000000, {kind} %sum
  ret {kind} %nan
}}
"""
