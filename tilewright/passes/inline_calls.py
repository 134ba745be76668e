"""Calls become the bodies of the functions they call, inside regions too.

    %y = call [%x] {callee=@double}    →    %y = add %x, %x

Leaves no `Call`, or only those of `noinline` functions where the target can call.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import Location
from tilewright.ir.builder import Emit, clone_op, rewrite, with_fields
from tilewright.ir.core import Function, Op, Value
from tilewright.ops import Call

__all__ = ["inline_calls"]


def inline_calls(function: Function, *, keep_noinline: bool = False) -> Function:
    """Inline every call; with `keep_noinline`, functions marked so stay calls."""
    return _Inliner(keep_noinline=keep_noinline).function(function)


class _Inliner:
    def __init__(self, *, keep_noinline: bool) -> None:
        self.keep_noinline = keep_noinline
        self.done: dict[Function, Function] = {}

    def function(self, function: Function) -> Function:
        """Return the function without calls inside; each is worked on once."""
        if function not in self.done:
            self.done[function] = rewrite(function, self.rule)
        return self.done[function]

    def rule(self, op: Op, emit: Emit) -> tuple[Value, ...] | None:
        if not isinstance(op, Call):
            return None
        callee = self.function(op.callee)
        if not (callee.noinline and self.keep_noinline):
            return _inlined(op, callee, emit)
        if callee is op.callee:
            return None
        return emit(with_fields(op, callee=callee)).results


def _inlined(call: Call, callee: Function, emit: Emit) -> tuple[Value, ...]:
    known: dict[Value, Value] = dict(zip(callee.params, call.arguments, strict=True))
    for old in callee.body.ops:
        new = clone_op(old, known)
        for before, after in zip(old.results, new.results, strict=True):
            known[before] = after
            after.name = before.name
        new.location = _called_from(new.location, call.location)
        for region in new.regions:
            for inner in region.walk():
                inner.location = _called_from(inner.location, call.location)
        emit(new)
    return tuple(known[v] for v in callee.body.yields)


def _called_from(location: Location | None, call: Location | None) -> Location | None:
    """Return `location` with `call` at the far end of its chain of callers."""
    if location is None or call is None:
        return location or call
    return replace(location, caller=_called_from(location.caller, call))
