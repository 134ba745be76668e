"""Loops: carried variables, unrolling, and jumps out of a loop.

A body is read once. A `for` whose body may leave early becomes a `While` over the same body: it
carries the index, and a flag that says whether to go on.
"""
# ruff: noqa: N802 - visitors are named for the nodes they visit

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend import iterators
from tilewright.frontend.calls import Calls
from tilewright.frontend.frame import BREAK, CONTINUE, RETURN, Arm
from tilewright.frontend.liveness import assigned_names, target_names
from tilewright.frontend.loop_state import Carried, FirstBound, Leaving, Loop
from tilewright.frontend.pythonic import elements, loop_options
from tilewright.frontend.semantic import condition
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.structure import Unusable, decay, fits
from tilewright.frontend.tensor import Tensor, constant_array
from tilewright.frontend.trips import Trips
from tilewright.ir.core import Block, Param, Value
from tilewright.ir.types import TileType
from tilewright.ops import Add, For, While

__all__ = ["Loops"]


def _certainly_runs(start: Value, stop: Value, step: Value) -> bool:
    """Whether it is known that a range is not empty."""
    bounds = [constant_array(bound) for bound in (start, stop, step)]
    known = [int(bound) for bound in bounds if bound is not None]
    return len(known) == 3 and known[2] != 0 and len(range(*known)) > 0


class Loops(Calls):
    """`for` and `while`."""

    def visit_For(self, node: ast.For) -> None:
        over = self.expression(node.iter)
        if isinstance(over, iterators.range):
            with self.at(node.iter):
                start, stop, step = (bound.value for bound in over.bounds())
            self._dynamic_for(node, over, (start, stop, step))
            return
        with self.at(node.iter):
            items = tuple(elements(over))
        self._unrolled(node, items)

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

    def _carried(self, node: Loop, index: Tensor | None = None) -> Carried:
        """Return what a loop hands on; `index` is that of a `for`."""
        liveness = self.syntax.liveness
        again = node.body if isinstance(node, ast.For) else [node.test, *node.body]
        own = target_names(node.target) if isinstance(node, ast.For) else []
        names = [n for n in assigned_names(again) if n in liveness.head[node] and n not in own]
        names = [n for n in names if self._has_value(n)]
        if isinstance(node, ast.For) and index is not None:
            # The index comes anew with each iteration: what it was matters only behind the loop.
            names += [
                n
                for n in own
                if n in liveness.after[node]
                and self._has_value(n)
                and fits(decay(self.names[n]), index)
            ]
        return Carried(self, node, names)

    def _has_value(self, name: str) -> bool:
        return name in self.names and not isinstance(self.names[name], Unusable)

    def _iteration(
        self, carried: Carried, params: Sequence[Param], block: Block, body: Callable[[], None]
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
        index = Param(bounds[0].type)
        seen = loop.index_dtype
        carried = self._carried(node, Tensor(Param(TileType(seen))))
        if _certainly_runs(*bounds):
            carried.certainly_runs()
        params = carried.params()
        block = Block((index, *params))

        def body() -> None:
            self.assign(node.target, convert(Tensor(index), seen))
            self._body(node)

        arm = self._iteration(carried, params, block, body)
        first = FirstBound(self, arm, carried.first_bound)
        inits = (*carried.inits, *first.inits)
        if arm.names[BREAK] is False and arm.names[RETURN] is False:
            block.params = (*block.params, *first.params)
            block.yields = (*carried.yields(arm, params), *first.yields)
            results = self.emit(For(*bounds, inits, block, **loop_options(loop)))
        else:
            trips = Trips(self, *bounds)
            with self.builder.inside(block):
                next_index = self.value(Add(index, bounds[2]))
                more = trips.more(index)
            leaving = Leaving(self, arm, trips.any(), more)
            block.params = (index, *params, *first.params, *leaving.params)
            block.yields = (
                next_index, *carried.yields(arm, params), *first.yields, *leaving.yields
            )  # fmt: skip
            go = [Param(p.type, p.name) for p in block.params]
            test = Block(tuple(go), [], (go[1 + len(inits)],))
            results = self.emit(While((bounds[0], *inits, *leaving.inits), test, block))[1:]
            leaving.bind(results[len(inits) :])
        carried.bind(results[: len(params)])
        first.bind(results[len(params) : len(inits)])
        self._forget(node, carried)

    def visit_While(self, node: ast.While) -> None:
        carried = self._carried(node)
        params, tested = carried.params(), carried.params()
        test, block = Block(tested), Block(params)
        known: bool | None = True  # what the condition is at compile time; None: not known

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
            if known is True:
                carried.certainly_runs()
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
        self, carried: Carried, arm: Arm, params: Sequence[Param], test: Block, *, is_endless: bool
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
        leaving, first = Leaving(self, arm), FirstBound(self, arm, carried.first_bound)
        block.params = (*params, *leaving.params, *first.params)
        block.yields = (*carried.yields(arm, params), *leaving.yields, *first.yields)
        guarded = leaving.guard(test, first.params, is_known=is_endless)
        results = self.emit(While((*carried.inits, *leaving.inits, *first.inits), guarded, block))
        rest = len(params) + len(leaving.params)
        carried.bind(results[: len(params)])
        leaving.bind(results[len(params) : rest])
        first.bind(results[rest:])
        if is_endless and arm.names[BREAK] is False:
            self.names[RETURN] = self.ended = True

    def _loop_condition(self, node: ast.While) -> bool | Tensor:
        value = self.expression(node.test)
        with self.at(node.test):
            if isinstance(value, iterators.condition):
                value = value.condition
            return condition(value) if isinstance(value, Tensor) else bool(value)

    def _forget(self, node: Loop, carried: Carried) -> None:
        """Say what became of the names that a loop bound and does not hand on."""
        for name in assigned_names([node]):
            if name in carried.before or name in carried.first_bound:
                continue
            is_index = isinstance(node, ast.For) and name in target_names(node.target)
            does = "is the index of" if is_index else "is only assigned in"
            self.names[name] = Unusable(
                f"`{{name}}` {does} the loop at line {node.lineno}, which may run no iteration, "
                "but used after it",
                "assign `{name}` before the loop"
                + (", with the type of the index" if is_index else ""),
            )
