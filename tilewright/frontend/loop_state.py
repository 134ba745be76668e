"""What a loop hands from one iteration to the next, and out."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tilewright.errors import CompileError, Location
from tilewright.frontend.branches import UNASSIGNED, placeholder
from tilewright.frontend.frame import BOOL, BREAK, RESULT, RETURN, Arm, Frame
from tilewright.frontend.liveness import assigned_names
from tilewright.frontend.structure import (
    Unusable,
    decay,
    describe,
    fits,
    leaves,
    rebuild,
    rename,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Block, Param, Value
from tilewright.ops import And, Full, If, Invert

__all__ = ["Carried", "FirstBound", "Leaving", "Loop"]

Loop = ast.For | ast.While


def decayed_in(frame: Frame, arm: Arm, value: Any) -> Any:
    """Turn the compile-time numbers in a value into tensors, at the end of an arm."""
    with frame.builder.inside(arm.block):
        return decay(value)


class Carried:
    """The variables that a loop hands from one iteration to the next."""

    def __init__(self, frame: Frame, node: Loop, names: Sequence[str]) -> None:
        self.frame = frame
        self.node = node
        self.edges = frame.edges_of(node, names)
        self.first_bound: Sequence[str] = ()
        self.before = {name: decay(frame.names[name]) for name in names}
        self.bound_at = {name: frame.bound_at.get(name) for name in names}
        self.inits = [leaf.value for value in self.before.values() for leaf in leaves(value)]

    def certainly_runs(self) -> None:
        """Hand out, too, the names that an iteration binds first and that are read later."""
        read_later = self.frame.syntax.liveness.after[self.node]
        names = [n for n in assigned_names([self.node]) if n in read_later]
        self.first_bound = [n for n in names if n not in self.before]
        self.edges = self.frame.edges_of(self.node, [*self.before, *self.first_bound])

    def params(self) -> tuple[Param, ...]:
        params = []
        for name, value in self.before.items():
            found = [Param(leaf.value.type) for leaf in leaves(value)]
            rename(rebuild(value, iter(found)), name)
            params += found
        return tuple(params)

    def bind(self, values: Sequence[Value]) -> None:
        """Give the names their values: parameters inside, results after the loop."""
        remaining = iter(values)
        for name, template in self.before.items():
            self.frame.names[name] = value = rebuild(template, remaining)
            rename(value, name)

    def yields(self, arm: Arm, params: Sequence[Value]) -> list[Value]:
        """Return what an iteration ends with, checked against what it began with."""
        result: list[Value] = []
        for name, template in self.before.items():
            if not arm.needs(name, None, self.edges):
                count = sum(1 for _ in leaves(template))
                result += params[len(result) : len(result) + count]
                continue
            value = decayed_in(self.frame, arm, arm.names[name])
            if not fits(value, template):
                self._fail(name, template, arm.names[name])
            result += [leaf.value for leaf in leaves(value)]
        return result

    def _fail(self, name: str, before: Any, after: Any) -> None:
        if isinstance(after, Unusable):
            raise CompileError(after.reason_for(name), hint=after.hint_for(name))
        place = self.frame.bound_at.get(name)
        hint = f"give `{name}` the type that the loop computes before it starts"
        types = list(leaves(after))
        if isinstance(before, Tensor) and len(types) == 1 and isinstance(after, Tensor):
            hint = _initial_value_hint(name, before, after)
        raise CompileError(
            f"`{name}` changes its type in the loop: it is {describe(before)} before it"
            f"{_line(self.bound_at[name])} and {describe(after)} after one iteration{_line(place)}",
            location=place,
            hint=hint,
        )


def _line(place: Location | None) -> str:
    return "" if place is None else f" (line {place.line})"


def _initial_value_hint(name: str, before: Tensor, after: Tensor) -> str:
    element = after.value.type.element
    dtype = getattr(element, "long_name", str(element))
    if before.shape != after.shape:
        start = f"tl.zeros({list(after.shape)}, dtype=tl.{dtype})"
        return f"start with the shape that the loop computes: {name} = {start}"
    shape = list(before.shape) or "()"
    start = f"tl.zeros({shape}, dtype=tl.{dtype})"
    back = getattr(before.value.type.element, "long_name", str(before.value.type.element))
    return f"start with {name} = {start}, or convert in the loop with .to(tl.{back})"


class FirstBound:
    """The names that every iteration of a loop binds anew, for what follows the loop.

    They are carried only to get out: no iteration reads what the one before has left.
    """

    def __init__(self, frame: Frame, arm: Arm, names: Sequence[str]) -> None:
        self.frame = frame
        self.values: dict[str, Any] = {}
        for name in names:
            value = arm.names.get(name, Unusable(UNASSIGNED))
            self.values[name] = decayed_in(frame, arm, value)
        found = [leaf.value for value in self.values.values() for leaf in leaves(value)]
        self.yields = found
        self.params = tuple(Param(value.type, value.name) for value in found)
        self.inits = [
            leaf.value for v in self.values.values() for leaf in leaves(placeholder(frame, v))
        ]

    def bind(self, results: Sequence[Value]) -> None:
        """Give the names their values after the loop."""
        remaining = iter(results)
        for name, template in self.values.items():
            self.frame.names[name] = value = rebuild(template, remaining)
            rename(value, name)


class Leaving:
    """What a loop that may be left early carries beside its variables.

    Whether to go on, whether the function has returned, and what.
    """

    def __init__(
        self, frame: Frame, arm: Arm, first: Value | None = None, more: Value | None = None
    ) -> None:
        self.frame = frame
        self.returns = arm.names[RETURN] is not False
        self.template = arm.names.get(RESULT)
        with frame.builder.inside(arm.block):
            jumped = frame.any_flag(arm.names, BREAK, RETURN)
            go = frame.value(Invert(frame.flag_value(jumped)))
            self.yields = [go if more is None else frame.value(And(more, go))]
            if self.returns:
                self.yields.append(frame.flag_value(arm.names[RETURN]))
                self.yields += [leaf.value for leaf in leaves(self.template)]
        self.inits = [frame.value(Full(True, BOOL)) if first is None else first]
        if self.returns:
            self.inits.append(frame.value(Full(False, BOOL)))
            self.inits += [leaf.value for leaf in leaves(placeholder(frame, self.template))]
        self.params = self._params()

    def _params(self) -> tuple[Param, ...]:
        names = ["go", "returned", *(["result"] * len(self.inits))]
        return tuple(Param(v.type, name) for v, name in zip(self.inits, names, strict=False))

    def guard(self, test: Block, unread: Sequence[Param], *, is_known: bool) -> Block:
        """Return the condition that asks `test` only where the loop has not been left.

        `unread` are parameters of the loop that follow these.
        """
        own = self._params()
        params, extra = test.params, (*own, *(Param(p.type, p.name) for p in unread))
        if is_known:
            return Block((*params, *extra), [], (extra[0],))
        guarded = Block((*params, *extra))
        with self.frame.builder.inside(Block()) as otherwise:
            no = self.frame.value(Full(False, BOOL))
        otherwise.yields = (no,)
        asked = Block((), test.ops, test.yields)
        with self.frame.builder.inside(guarded):
            guarded.yields = (self.frame.value(If(extra[0], asked, otherwise)),)
        return guarded

    def bind(self, results: Sequence[Value]) -> None:
        """Set the flags after the loop."""
        if self.returns:
            _, returned, *values = results
            self.frame.names[RETURN] = Tensor(returned)
            self.frame.names[RESULT] = rebuild(self.template, iter(values))
