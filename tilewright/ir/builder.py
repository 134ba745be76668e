"""Building and rewriting: the cursor that appends ops, and the walk that rebuilds a function."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from tilewright.errors import InternalError, Location
from tilewright.ir.core import Block, Function, Op, Param, Value

__all__ = ["Builder", "Emit", "Rule", "clone_op", "rewrite", "rewrite_block", "with_fields"]

_AnyOp = TypeVar("_AnyOp", bound=Op)

Emit = Callable[[Op], Op]
"""Appends an op and returns it."""

Rule = Callable[[Op, Emit], "Value | tuple[Value, ...] | None"]
"""Returns what replaces the op (one value, or one for each result), or None to keep it.

Operands of the op are already rewritten when the rule sees it.
"""


class Builder:
    """Appends ops to a block; `location` is stamped on each."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.location: Location | None = None

    def emit(self, op: Op) -> Op:
        if op.location is None:
            op.location = self.location
        self.block.ops.append(op)
        return op

    @contextlib.contextmanager
    def inside(self, block: Block) -> Iterator[Block]:
        """Append to `block` for a while."""
        outer, self.block = self.block, block
        try:
            yield block
        finally:
            self.block = outer


def rewrite(function: Function, rule: Rule) -> Function:
    """Rebuild `function`, replacing every op on which `rule` fires; the input is left as it is."""
    body = rewrite_block(function.body, rule, {})
    return function if body is function.body else replace(function, body=body)


def rewrite_block(block: Block, rule: Rule, known: dict[Value, Value]) -> Block:
    """Rebuild `block` (itself if unchanged); `known` says what values from outside have become."""
    new = known.copy()
    out = Block(block.params)
    for old in block.ops:
        op = old.rebuild(lambda v: new.get(v, v), lambda b: rewrite_block(b, rule, new))

        def emit(op: Op, location: Location | None = old.location) -> Op:
            op.location = op.location or location
            out.ops.append(op)
            return op

        replacement = rule(op, emit)
        if replacement is None:
            out.ops.append(op)
            results = op.results
        else:
            results = replacement if isinstance(replacement, tuple) else (replacement,)
        if results is not old.results:
            for before, after in zip(old.results, results, strict=True):
                if before.type != after.type:
                    message = f"rule changed the type of {old.op_name}: {before.type}, {after.type}"
                    raise InternalError(message, location=old.location)
                new[before] = after
    out.yields = tuple(new.get(v, v) for v in block.yields)
    unchanged = len(out.ops) == len(block.ops) and all(map(operator.is_, out.ops, block.ops))
    return block if unchanged and all(map(operator.is_, out.yields, block.yields)) else out


def with_fields(op: _AnyOp, **changes: Any) -> _AnyOp:
    """Return a new op with the name, the place and the fields of `op`, except for `changes`."""
    fields = {name: getattr(op, name) for name in op.field_kinds} | changes
    new = type(op)(**fields, location=op.location)
    new.name = op.name
    return new


def _clone_block(block: Block, known: dict[Value, Value]) -> Block:
    """Return a copy with fresh parameters and fresh ops; `known` maps values from outside."""
    new = known.copy()
    params = tuple(Param(p.type, p.name, p.divisible_by) for p in block.params)
    new.update(zip(block.params, params, strict=True))
    out = Block(params)
    for old in block.ops:
        op = clone_op(old, new)
        out.ops.append(op)
        new.update(zip(old.results, op.results, strict=True))
    out.yields = tuple(new.get(v, v) for v in block.yields)
    return out


def clone_op(old: Op, known: dict[Value, Value]) -> Op:
    """Return a fresh op over mapped operands (never the same object, so results are new)."""
    op = old.rebuild(lambda v: known.get(v, v), lambda b: _clone_block(b, known))
    return with_fields(old) if op is old else op
