"""What nobody needs goes: pure ops, loads, carried values of loops, results of branches.

    %a, %b = for ..., [%x, %y] (%i: i32, %p: fp32, %q: fp32) {
      ...                                           →      %a = for ..., [%x] (%i: i32, %p: fp32) {
    }                                                        ...
    yield %a                                               }

Needed is what writes, and everything that it, or a result of the function, is computed from. A
`While` whose condition reads memory waits for another program, and stays.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace

from tilewright.ir.builder import with_fields
from tilewright.ir.core import Block, Effect, Function, Op, Param, Result, Value
from tilewright.ops import For, If, While

__all__ = ["remove_dead"]


def remove_dead(function: Function) -> Function:
    """Keep only what is needed."""
    needed = _Needed(function)
    body = _Remover(needed).block(function.body)
    return function if body is function.body else replace(function, body=body)


class _Needed:
    """Which ops, and which slots (carried values, results of `If`), are needed."""

    def __init__(self, function: Function) -> None:
        self.ops: set[Op] = set()
        self.slots: set[tuple[Op, int]] = set()
        self._outer: dict[Op, Op] = {}
        self._slot_of: dict[Param, tuple[Op, int]] = {}
        self._waiting: list[Value] = list(function.body.yields)
        for op in self._scan(function.body, None):
            self._need(op)
        while self._waiting:
            self._need_value(self._waiting.pop())

    def _scan(self, block: Block, outer: Op | None) -> Iterator[Op]:
        """Yield the ops that are needed for what they do, noting where everything stands."""
        for op in block.ops:
            if outer is not None:
                self._outer[op] = outer
            if not op.region_fields:
                if Effect.WRITE in op.effects:
                    yield op
                continue
            if isinstance(op, While) and op.condition.effect is not Effect.NONE:
                yield op
            if isinstance(op, For | While):
                for region in op.regions:
                    carried = region.params[isinstance(op, For) :]
                    self._slot_of.update((p, (op, i)) for i, p in enumerate(carried))
            for region in op.regions:
                yield from self._scan(region, op)

    def _need_value(self, value: Value) -> None:
        match value:
            case Op():
                self._need(value)
            case Param() if value in self._slot_of:
                self._need_slot(*self._slot_of[value])
            case Result(op=op, index=index):
                self._need(op)
                self._need_slot(op, index)

    def _need(self, op: Op) -> None:
        if op in self.ops:
            return
        self.ops.add(op)
        if op in self._outer:
            self._need(self._outer[op])
        match op:
            case For(start, stop, step):
                self._waiting += start, stop, step
            case While(condition=condition):
                self._waiting += condition.yields
            case If(condition):
                self._waiting.append(condition)
            case _:
                self._waiting += op.operands
                for region in op.regions:
                    self._waiting += region.yields

    def _need_slot(self, op: Op, index: int) -> None:
        if (op, index) in self.slots:
            return
        self.slots.add((op, index))
        match op:
            case For(inits=inits, body=body) | While(inits=inits, body=body):
                self._waiting += inits[index], body.yields[index]
            case If(then=then, orelse=orelse):
                self._waiting += then.yields[index], orelse.yields[index]


class _Remover:
    def __init__(self, needed: _Needed) -> None:
        self.needed = needed
        self.known: dict[Value, Value] = {}

    def block(self, block: Block, kept: list[int] | None = None, first: int = 0) -> Block:
        """Keep the needed ops; of parameters (from `first`) and yields, those at `kept`."""
        ops = [self.op(op) for op in block.ops if op in self.needed.ops]
        params, yields = block.params, block.yields
        if kept is not None:
            yields = tuple(yields[i] for i in kept)
            params = params[:first] + tuple(params[first + i] for i in kept if params[first:])
        yields = tuple(self.known.get(v, v) for v in yields)
        old = (*block.ops, *block.params, *block.yields)
        new = (*ops, *params, *yields)
        if len(old) == len(new) and all(map(operator.is_, old, new)):
            return block
        return Block(params, ops, yields)

    def op(self, old: Op) -> Op:
        slots = range(len(old.results)) if isinstance(old, For | While | If) else range(0)
        kept = [i for i in slots if (old, i) in self.needed.slots]
        if len(kept) < len(slots):
            op = self.shrunk(old, kept)
            results = {old.results[i]: new for i, new in zip(kept, op.results, strict=True)}
        elif old.region_fields or any(v in self.known for v in old.operands):
            op = old.rebuild(lambda v: self.known.get(v, v), self.block)
            results = dict(zip(old.results, op.results, strict=True))
        else:
            return old
        if op is not old:
            for before, after in results.items():
                self.known[before] = after
                after.name = before.name
        return op

    def shrunk(self, op: Op, kept: list[int]) -> Op:
        """Return a loop or branch with only the slots `kept`."""
        mapped = op.rebuild(lambda v: self.known.get(v, v))
        match op, mapped:
            case For(body=body), For(inits=inits):
                inits = tuple(inits[i] for i in kept)
                return with_fields(mapped, inits=inits, body=self.block(body, kept, 1))
            case While(condition=condition, body=body), While(inits=inits):
                # The condition yields no carried value, only its verdict.
                verdict = replace(condition, yields=())
                asked = self.block(verdict, kept=None)
                params = tuple(condition.params[i] for i in kept)
                yields = tuple(self.known.get(v, v) for v in condition.yields)
                return with_fields(
                    mapped,
                    inits=tuple(inits[i] for i in kept),
                    condition=Block(params, asked.ops, yields),
                    body=self.block(body, kept),
                )
            case If(then=then, orelse=orelse), _:
                return with_fields(
                    mapped, then=self.block(then, kept), orelse=self.block(orelse, kept)
                )
        raise AssertionError(op.op_name)
