"""Structured control flow: loops, branches and calls. There are no other jumps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Block, Effect, Function, MachineOp, Value, require
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.machine import Machine
from tilewright.ops.numerics import Array

__all__ = ["Call", "For", "If", "While"]

CONDITION = TileType(DTYPES["i1"])


class For(MachineOp):
    """Run `body` for start, start + step, ... before `stop` (after it when `step` is negative).

    `body` takes the index and the carried values and yields the next carried values. A step of 0
    runs nothing. `num_stages`, `unroll` and the like advise a target and never change a result.
    """

    start: Value
    stop: Value
    step: Value
    inits: tuple[Value, ...]
    body: Block
    num_stages: int = 0
    unroll: int = 1
    flatten: bool = False
    warp_specialize: bool = False
    disallow_acc_multi_buffer: bool = False
    disable_licm: bool = False

    def infer(self) -> tuple[TileType, ...]:
        index = self.start.type
        require(
            index == self.stop.type == self.step.type
            and index.is_scalar
            and isinstance(index.element, DType)
            and index.element.is_int(),
            f"for: bounds must be integers of one type, got {index}, {self.stop.type} and "
            f"{self.step.type}",
        )
        types = [v.type for v in self.inits]
        require([p.type for p in self.body.params] == [index, *types], "for: parameters differ")
        require(
            [v.type for v in self.body.yields] == types, "for: a carried value changes its type"
        )
        return tuple(types)

    def evaluate(
        self, machine: Machine, start: Array, stop: Array, step: Array, inits: tuple[Array, ...]
    ) -> tuple[Any, ...]:
        carried: tuple[Any, ...] = inits
        indices = range(int(start), int(stop), int(step)) if int(step) else range(0)
        for i in indices:
            carried = machine.run(self.body, np.asarray(i, start.dtype), *carried)
        return carried


class While(MachineOp):
    """Run `body` on the carried values as long as `condition` on them yields true."""

    inits: tuple[Value, ...]
    condition: Block
    body: Block

    def infer(self) -> tuple[TileType, ...]:
        types = [v.type for v in self.inits]
        for block in (self.condition, self.body):
            require([p.type for p in block.params] == types, "while: parameters differ")
        require([v.type for v in self.condition.yields] == [CONDITION], "while: not a condition")
        require(
            [v.type for v in self.body.yields] == types, "while: a carried value changes its type"
        )
        return tuple(types)

    def evaluate(self, machine: Machine, inits: tuple[Array, ...]) -> tuple[Any, ...]:
        carried: tuple[Any, ...] = inits
        while machine.run(self.condition, *carried)[0]:
            carried = machine.run(self.body, *carried)
        return carried


class If(MachineOp):
    """Run `then` where the scalar `condition` holds, else `orelse`; both yield the same types."""

    condition: Value
    then: Block
    orelse: Block

    def infer(self) -> tuple[TileType, ...]:
        require(
            self.condition.type == CONDITION,
            f"if: the condition must be a scalar bool, got {self.condition.type}",
        )
        types = [v.type for v in self.then.yields]
        require([v.type for v in self.orelse.yields] == types, "if: the branches differ in type")
        return tuple(types)

    def evaluate(self, machine: Machine, condition: Array) -> tuple[Any, ...]:
        return machine.run(self.then if condition else self.orelse)


class Call(MachineOp):
    """Call another function of the language."""

    callee: Function
    arguments: tuple[Value, ...]

    def infer(self) -> tuple[TileType, ...]:
        expected = [p.type for p in self.callee.params]
        require(
            [v.type for v in self.arguments] == expected,
            f"call: {self.callee.name} takes ({', '.join(map(str, expected))})",
        )
        return tuple(v.type for v in self.callee.body.yields)

    @property
    def effects(self) -> Effect:
        """What the callee does."""
        return self.callee.body.effect

    def evaluate(self, machine: Machine, arguments: tuple[Array, ...]) -> tuple[Any, ...]:
        return machine.call(self.callee, *arguments)
