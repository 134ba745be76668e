"""Inline assembly becomes ops, on targets that do not have its instructions.

%y = inline_assembly [%x] {assembly="ex2.approx.f32 $0, $1;", ...}    →    %y = exp2 %x
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, clone_op, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ops import InlineAssembly

__all__ = ["expand_assembly"]


def expand_assembly(function: Function) -> Function:
    """Replace all inline assembly; raise `Unsupported` for what cannot be."""
    return rewrite(function, _rule)


def _rule(op: Op, emit: Emit) -> tuple[Value, ...] | None:
    if not isinstance(op, InlineAssembly):
        return None
    block = op.expansion
    known: dict[Value, Value] = dict(zip(block.params, op.args, strict=True))
    for old in block.ops:
        known.update(zip(old.results, emit(clone_op(old, known)).results, strict=True))
    return tuple(known[value] for value in block.yields)
