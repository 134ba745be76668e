"""Folding of constants and the rules that make ops simpler, each exact to the bit.

Rules are in `rules_*.py`, by theme; this file says which rule sees which op. A rule gets an op
whose operands are already simple, and what it makes is simplified before it is appended, so one
walk is enough, except where control flow changed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright import ops
from tilewright.ir.builder import Emit, Rule, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.passes import rules_arithmetic as arithmetic
from tilewright.passes import rules_control as control
from tilewright.passes import rules_logic as logic
from tilewright.passes import rules_shape as shape
from tilewright.passes import rules_types as types
from tilewright.passes.constants import fold, is_elementwise
from tilewright.passes.rules import ValueRule

__all__ = ["simplify"]

_MAX_ROUNDS = 4

VALUE_RULES: dict[type[Op], ValueRule] = {
    ops.Abs: arithmetic.absolute,
    ops.Add: arithmetic.add,
    ops.And: logic.bitwise,
    ops.Bitcast: types.bitcast,
    ops.Broadcast: shape.broadcast,
    ops.Cast: types.cast,
    ops.Compare: logic.compare,
    ops.Div: arithmetic.div,
    ops.ExpandDims: shape.expand_dims,
    ops.Hint: shape.hint,
    ops.Invert: logic.invert,
    ops.Join: shape.join,
    ops.Maximum: arithmetic.minimum_or_maximum,
    ops.Minimum: arithmetic.minimum_or_maximum,
    ops.Mul: arithmetic.mul,
    ops.Neg: arithmetic.neg,
    ops.Or: logic.bitwise,
    ops.Permute: shape.permute,
    ops.PointerAdd: arithmetic.pointer_add,
    ops.Rem: arithmetic.rem,
    ops.Reshape: shape.reshape,
    ops.Select: logic.select,
    ops.ShiftLeft: arithmetic.shift,
    ops.ShiftRight: arithmetic.shift,
    ops.Sub: arithmetic.sub,
    ops.Xor: logic.bitwise,
}

CONTROL_RULES: dict[type[Op], Rule] = {
    ops.Assert: control.assertion,
    ops.Assume: control.assumption,
    ops.AtomicRmw: control.masked,
    ops.For: control.counted_loop,
    ops.If: control.branch,
    ops.Load: control.masked,
    ops.MapElements: control.mapping,
    ops.Reduce: control.reduction,
    ops.Split: control.split,
    ops.Store: control.masked,
    ops.While: control.loop,
}


def simplify(function: Function) -> Function:
    """Fold constants and apply the rules until control flow no longer changes."""
    with np.errstate(all="ignore"):
        for _ in range(_MAX_ROUNDS):
            simplifier = _Simplifier()
            function = rewrite(function, simplifier.rule)
            if not simplifier.has_restructured:
                break
    return function


class _Simplifier:
    def __init__(self) -> None:
        self.has_restructured = False

    def rule(self, op: Op, emit: Emit) -> Value | tuple[Value, ...] | None:
        control_rule = CONTROL_RULES.get(type(op))
        if control_rule is not None:
            results = control_rule(op, emit)
            self.has_restructured |= results is not None and bool(op.region_fields)
            return results
        made: list[Op] = []

        def emit_new(new: Op) -> Op:
            made.append(new)
            return emit(new)

        value = _simplified(op, _make(emit_new))
        if made and value is made[-1] and not value.name:
            value.name = op.name
        return value


def _make(emit: Emit) -> Callable[[Op], Value]:
    def make(op: Op) -> Value:
        simpler = _simplified(op, make)
        return emit(op) if simpler is None else simpler

    return make


def _simplified(op: Op, make: Callable[[Op], Value]) -> Value | None:
    """Return a simpler value equal to the op, or None."""
    rule = VALUE_RULES.get(type(op))
    if rule is None and not is_elementwise(op):
        return None
    constant = fold(op)
    if constant is not None:
        return make(constant)
    simpler = None if rule is None else rule(op, make)
    return shape.before_broadcast(op, make) if simpler is None else simpler
