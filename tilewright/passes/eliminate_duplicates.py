"""Equal pure ops become one; so do equal loads with no write between them.

    %a = mul %x, %y                   %a = mul %x, %y
    %b = mul %x, %y            →      %c = add %a, %a
    %c = add %a, %b

An op is known inside the regions that follow it, never outside its own region.
"""

from __future__ import annotations

import operator
import struct
from dataclasses import replace
from typing import Any

from tilewright.ir.core import Block, Effect, Function, Op, Value
from tilewright.ops import DescriptorGather, DescriptorLoad, For, Load, While

__all__ = ["eliminate_duplicates"]

_LOADS = (Load, DescriptorLoad, DescriptorGather)


def eliminate_duplicates(function: Function) -> Function:
    """Let every value be computed once."""
    body = _Eliminator().block(function.body, {})
    return function if body is function.body else replace(function, body=body)


class _Eliminator:
    def __init__(self) -> None:
        self.replaced: dict[Value, Value] = {}
        # Loads with different epochs may have a write between them. The region of a loop starts a
        # new one: its loads run again, and another program may be what the loop waits for.
        self.epoch = 0

    def block(self, block: Block, outer: dict[Any, Op]) -> Block:
        available = outer.copy()
        ops = [op for old in block.ops if (op := self.op(old, available)) is not None]
        yields = tuple(self.replaced.get(v, v) for v in block.yields)
        if len(ops) == len(block.ops) and all(map(operator.is_, ops, block.ops)):
            same_yields = all(map(operator.is_, yields, block.yields))
            return block if same_yields else replace(block, yields=yields)
        return Block(block.params, ops, yields)

    def op(self, old: Op, available: dict[Any, Op]) -> Op | None:
        """Return the op to keep in place of `old`, or None where an earlier one has its value."""
        op = old
        if old.region_fields or (self.replaced and any(v in self.replaced for v in old.operands)):
            op = old.rebuild(
                lambda v: self.replaced.get(v, v), lambda b: self.region(old, b, available)
            )
        key = None if op.region_fields else self.key(op)
        earlier = None if key is None else available.get(key)
        if earlier is not None:
            self.replaced.update(zip(old.results, earlier.results, strict=True))
            return None
        if key is not None:
            available[key] = op
        elif not op.region_fields and Effect.WRITE in op.effects:
            self.epoch += 1
        if op is not old:
            self.replaced.update(zip(old.results, op.results, strict=True))
        return op

    def region(self, op: Op, block: Block, available: dict[Any, Op]) -> Block:
        is_loop = isinstance(op, For | While)
        self.epoch += is_loop
        new = self.block(block, available)
        self.epoch += is_loop
        return new

    def key(self, op: Op) -> Any:
        """Return what equal ops have in common, or None for an op that must stay."""
        effect = op.effects
        if effect is Effect.NONE:
            return op.op_name, *_fields(op)
        if isinstance(op, _LOADS) and effect is Effect.READ:
            return op.op_name, self.epoch, *_fields(op)
        return None


def _fields(op: Op) -> list[Any]:
    return [
        _exact(getattr(op, name)) if kind == "attribute" else getattr(op, name)
        for name, kind in op.field_kinds.items()
    ]


def _exact(value: Any) -> Any:
    """Return a key that differs where `==` does not: 0.0 and -0.0, 1 and True, NaN and itself."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (bool, value) if isinstance(value, bool) else value
