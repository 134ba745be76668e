"""Loops: carried variables, unrolling, and jumps out of a loop.

A body is read once. A `for` whose body may leave early becomes a `While` over the same body: it
carries the index, and a flag that says whether to go on.
"""
# ruff: noqa: N802 - visitors are named for the nodes they visit

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from tilewright.errors import CompileError, Location
from tilewright.frontend import iterators
from tilewright.frontend.branches import placeholder
from tilewright.frontend.calls import Calls
from tilewright.frontend.frame import BOOL, BREAK, CONTINUE, RESULT, RETURN, Arm, Edges
from tilewright.frontend.liveness import assigned_names, target_names
from tilewright.frontend.pythonic import elements, loop_options
from tilewright.frontend.semantic import condition
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
from tilewright.frontend.trips import Trips
from tilewright.ir.core import Block, Param, Value
from tilewright.ops import (
    Add,
    And,
    For,
    Full,
    If,
    Invert,
    While,
)

__all__ = ["Loops"]

Loop = ast.For | ast.While


class _Carried:
    """The variables that a loop hands from one iteration to the next."""

    def __init__(self, loops: Loops, node: Loop, names: Sequence[str]) -> None:
        self.loops = loops
        self.node = node
        self.edges = loops.edges_of(node, names)
        self.before = {name: decay(loops.names[name]) for name in names}
        self.bound_at = {name: loops.bound_at.get(name) for name in names}
        self.inits = [leaf.value for value in self.before.values() for leaf in leaves(value)]

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
            self.loops.names[name] = value = rebuild(template, remaining)
            rename(value, name)

    def yields(self, arm: Arm, params: Sequence[Value]) -> list[Value]:
        """Return what an iteration ends with, checked against what it began with."""
        result: list[Value] = []
        for name, template in self.before.items():
            if not arm.needs(name, None, self.edges):
                count = sum(1 for _ in leaves(template))
                result += params[len(result) : len(result) + count]
                continue
            value = self.loops.decayed_in(arm, arm.names[name])
            if not fits(value, template):
                self._fail(name, template, arm.names[name])
            result += [leaf.value for leaf in leaves(value)]
        return result

    def _fail(self, name: str, before: Any, after: Any) -> None:
        if isinstance(after, Unusable):
            raise CompileError(after.reason_for(name), hint=after.hint_for(name))
        place = self.loops.bound_at.get(name)
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


def _refuse_else(loops: Loops, node: Loop) -> None:
    if node.orelse:
        with loops.at(node.orelse[0]):
            raise CompileError(
                "`else` of a loop is not part of the language", hint="set a flag before `break`"
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


class Loops(Calls):
    """`for` and `while`."""

    def decayed_in(self, arm: Arm, value: Any) -> Any:
        with self.builder.inside(arm.block):
            return decay(value)

    def visit_For(self, node: ast.For) -> None:
        _refuse_else(self, node)
        over = self.expression(node.iter)
        if isinstance(over, iterators.range):
            with self.at(node.iter):
                start, stop, step = (bound.value for bound in over.bounds())
            self._dynamic_for(node, over, (start, stop, step))
            return
        with self.at(node.iter):
            items = tuple(elements(over))
        self._unrolled(node, items)

    def edges_of(self, node: Loop, names: Iterable[str]) -> Edges:
        """Return which of the names the jumps of a loop take along."""
        liveness, bound = self.syntax.liveness, frozenset(names)
        return Edges(bound & liveness.head[node], bound & liveness.after[node])

    # Unrolled: one copy of the body for each item.

    def _unrolled(self, node: ast.For, items: Sequence[Any]) -> None:
        head = self.syntax.liveness.head[node]
        outer = self.edges, self.names[BREAK], self.names[CONTINUE]
        self.edges = self.edges_of(node, assigned_names(node.body))
        self.names[BREAK] = self.names[CONTINUE] = False

        def iterations(first: int) -> None:
            for index in range(first, len(items)):
                jumped = self.any_flag(self.names, BREAK, RETURN)
                if self.ended:
                    return
                if isinstance(jumped, Tensor):
                    self.guarded(jumped, partial(iterations, index), head)
                    return
                self.bind_pattern(node.target, items[index])
                self.sequence(node.body, head)
                self._end_iteration()

        iterations(0)
        self.ended = self.ended and self.names[BREAK] is False
        self.edges, self.names[BREAK], self.names[CONTINUE] = outer

    def _end_iteration(self) -> None:
        # Where every path breaks or returns, no other iteration follows.
        self.ended = self.ended and self.names[CONTINUE] is False
        self.names[CONTINUE] = False

    # Not unrolled.

    def _carried(self, node: Loop) -> _Carried:
        head = self.syntax.liveness.head[node]
        own = target_names(node.target) if isinstance(node, ast.For) else []
        again = node.body if isinstance(node, ast.For) else [node.test, *node.body]
        names = [
            name
            for name in assigned_names(again)
            if name in head
            and name not in own
            and name in self.names
            and not isinstance(self.names[name], Unusable)
        ]
        return _Carried(self, node, names)

    def _iteration(
        self, carried: _Carried, params: Sequence[Param], block: Block, body: Callable[[], None]
    ) -> Arm:
        """Run the body once, into `block`."""
        outer, self.edges = self.edges, carried.edges

        def run() -> None:
            carried.bind(params)
            self.names[BREAK] = self.names[CONTINUE] = False
            body()

        try:
            return self.arm(run, block)
        finally:
            self.edges = outer

    def _dynamic_for(
        self, node: ast.For, loop: iterators.range, bounds: tuple[Value, Value, Value]
    ) -> None:
        carried = self._carried(node)
        index = Param(bounds[0].type)
        params = carried.params()
        block = Block((index, *params))

        def body() -> None:
            self.assign(node.target, Tensor(index))
            self._body(node)

        arm = self._iteration(carried, params, block, body)
        if arm.names[BREAK] is False and arm.names[RETURN] is False:
            block.yields = tuple(carried.yields(arm, params))
            results = self.emit(For(*bounds, tuple(carried.inits), block, **loop_options(loop)))
            carried.bind(results)
        else:
            trips = Trips(self, *bounds)
            with self.builder.inside(block):
                next_index = self.value(Add(index, bounds[2]))
                more = trips.more(index)
            leaving = _Leaving(self, arm, trips.any(), more)
            block.params = (index, *params, *leaving.params)
            block.yields = (next_index, *carried.yields(arm, params), *leaving.yields)
            go = [Param(p.type, p.name) for p in block.params]
            test = Block(tuple(go), [], (go[1 + len(params)],))
            inits = (bounds[0], *carried.inits, *leaving.inits)
            results = self.emit(While(inits, test, block))[1:]
            carried.bind(results[: len(params)])
            leaving.bind(results[len(params) :])
        self._forget(node, carried)

    def visit_While(self, node: ast.While) -> None:
        _refuse_else(self, node)
        carried = self._carried(node)
        params, tested = carried.params(), carried.params()
        test, block = Block(tested), Block(params)
        known: Any = True  # what the condition is at compile time; None: not known

        def check() -> None:
            nonlocal known
            carried.bind(tested)
            chooser = self._loop_condition(node)
            known = None if isinstance(chooser, Tensor) else chooser
            test.yields = (self.flag_value(chooser),)

        # A name that the condition binds is for the body, so the body asks it.
        asks_in_body = bool(assigned_names([node.test]))
        if not asks_in_body:
            self.arm(check, test)
            if known is False:
                return
        body = self._asking_body if asks_in_body else self._body
        arm = self._iteration(carried, params, block, partial(body, node))
        self._close_while(carried, arm, params, test, is_endless=bool(known))
        self._forget(node, carried)

    def _body(self, node: Loop) -> None:
        self.sequence(node.body, self.syntax.liveness.head[node])

    def _asking_body(self, node: ast.While) -> None:
        """Run the body where the condition holds, and leave the loop where it does not."""
        chooser = self._loop_condition(node)
        if isinstance(chooser, Tensor):
            head = self.syntax.liveness.head[node]
            self.branch(chooser, partial(self._body, node), self._leave, (), head, head)
        elif chooser:
            self._body(node)
        else:
            self._leave()

    def _leave(self) -> None:
        self.names[BREAK] = self.ended = True

    def _close_while(
        self, carried: _Carried, arm: Arm, params: Sequence[Param], test: Block, *, is_endless: bool
    ) -> None:
        """Make the op of a loop whose parts have been read."""
        block = arm.block
        if arm.names[BREAK] is False and arm.names[RETURN] is False:
            if is_endless:
                raise CompileError(
                    "this loop never ends: its condition is a compile-time constant",
                    hint="leave it with `break` or `return`, or compare a variable",
                )
            block.yields = tuple(carried.yields(arm, params))
            carried.bind(self.emit(While(tuple(carried.inits), test, block)))
            return
        leaving = _Leaving(self, arm)
        block.params = (*params, *leaving.params)
        block.yields = (*carried.yields(arm, params), *leaving.yields)
        guarded = leaving.guard(test, is_known=is_endless)
        results = self.emit(While((*carried.inits, *leaving.inits), guarded, block))
        carried.bind(results[: len(params)])
        leaving.bind(results[len(params) :])
        if is_endless and arm.names[BREAK] is False:
            self.names[RETURN] = self.ended = True

    def _loop_condition(self, node: ast.While) -> bool | Tensor:
        value = self.expression(node.test)
        with self.at(node.test):
            if isinstance(value, iterators.condition):
                value = value.condition
            return condition(value) if isinstance(value, Tensor) else bool(value)

    def _forget(self, node: Loop, carried: _Carried) -> None:
        """Say what became of the names that a loop bound and does not hand on."""
        for name in assigned_names([node]):
            if name in carried.before:
                continue
            if isinstance(node, ast.For) and name in target_names(node.target):
                reason = (
                    f"`{{name}}`, the index of the loop at line {node.lineno}, has no value after "
                    "the loop"
                )
                hint = "assign it to another name, bound before the loop, in the body"
            else:
                reason = (
                    f"`{{name}}` is only assigned in the loop at line {node.lineno}, which may "
                    "run no iteration, but used after it"
                )
                hint = "assign `{name}` before the loop"
            self.names[name] = Unusable(reason, hint)


class _Leaving:
    """What a loop that may be left early carries beside its variables.

    Whether to go on, whether the function has returned, and what.
    """

    def __init__(
        self, loops: Loops, arm: Arm, first: Value | None = None, more: Value | None = None
    ) -> None:
        self.loops = loops
        self.returns = arm.names[RETURN] is not False
        self.template = arm.names.get(RESULT)
        with loops.builder.inside(arm.block):
            jumped = loops.any_flag(arm.names, BREAK, RETURN)
            go = loops.value(Invert(loops.flag_value(jumped)))
            self.yields = [go if more is None else loops.value(And(more, go))]
            if self.returns:
                self.yields.append(loops.flag_value(arm.names[RETURN]))
                self.yields += [leaf.value for leaf in leaves(self.template)]
        self.inits = [loops.value(Full(True, BOOL)) if first is None else first]
        if self.returns:
            self.inits.append(loops.value(Full(False, BOOL)))
            self.inits += [leaf.value for leaf in leaves(placeholder(loops, self.template))]
        self.params = self._params()

    def _params(self) -> tuple[Param, ...]:
        names = ["go", "returned", *(["result"] * len(self.inits))]
        return tuple(Param(v.type, name) for v, name in zip(self.inits, names, strict=False))

    def guard(self, test: Block, *, is_known: bool) -> Block:
        """Return the condition that asks `test` only where the loop has not been left."""
        params, extra = test.params, self._params()
        if is_known:
            return Block((*params, *extra), [], (extra[0],))
        guarded = Block((*params, *extra))
        with self.loops.builder.inside(Block()) as otherwise:
            no = self.loops.value(Full(False, BOOL))
        otherwise.yields = (no,)
        asked = Block((), test.ops, test.yields)
        with self.loops.builder.inside(guarded):
            guarded.yields = (self.loops.value(If(extra[0], asked, otherwise)),)
        return guarded

    def bind(self, results: Sequence[Value]) -> None:
        """Set the flags after the loop."""
        if self.returns:
            _, returned, *values = results
            self.loops.names[RETURN] = Tensor(returned)
            self.loops.names[RESULT] = rebuild(self.template, iter(values))
