"""What must hold of every function beyond the types that the constructors check."""

from __future__ import annotations

from typing import NoReturn

from tilewright.errors import CompileError, InternalError
from tilewright.ir.core import Block, Function, Op, Result, Value
from tilewright.ir.types import TileType

__all__ = ["verify"]


def verify(function: Function) -> None:
    """Raise `InternalError`, naming the op, where `function` is not well-formed.

    Every operand is defined before its use, in the same region or around it; nothing is defined
    twice; the type rule of every op still gives the type that the op has; results belong to their
    op. Functions that are called are verified too.
    """
    verified: set[Function] = set()
    waiting = [function]
    while waiting:
        current = waiting.pop()
        if current not in verified:
            verified.add(current)
            waiting += _Verifier(current).run()


class _Verifier:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.defined: set[Value] = set()
        self.in_scope: set[Value] = set()
        self.callees: list[Function] = []

    def run(self) -> list[Function]:
        """Verify the body and return the functions it calls."""
        self.block(self.function.body, None)
        return self.callees

    def block(self, block: Block, owner: Op | None) -> None:
        outer = self.in_scope
        self.in_scope = outer.copy()
        for param in block.params:
            self.define(param, owner, f"parameter {param.name!r} of a region")
        for op in block.ops:
            self.op(op)
        for value in block.yields:
            if value not in self.in_scope:
                self.fail(owner, f"yields {_describe(value)}, which is not in scope")
        self.in_scope = outer

    def op(self, op: Op) -> None:
        for value in op.operands:
            if value not in self.in_scope:
                self.fail(op, f"uses {_describe(value)}, which is not in scope")
        if op in self.defined:
            self.fail(op, "stands in the function twice")
        self.defined.add(op)
        for region in op.regions:
            self.block(region, op)
        self.types(op)
        for result in op.results:
            if result is op:
                self.in_scope.add(op)
            else:
                self.define(result, op, "a result")
        self.callees += [v for v in op.attributes.values() if isinstance(v, Function)]

    def types(self, op: Op) -> None:
        try:
            inferred = op.infer()
        except CompileError as error:
            self.fail(op, f"is ill-typed: {error.message}")
        single = isinstance(inferred, TileType)
        types = (inferred,) if isinstance(inferred, TileType) else tuple(inferred)
        if types != tuple(r.type for r in op.results):
            self.fail(op, f"has a type that its rule does not give ({', '.join(map(str, types))})")
        owned = all(
            result is op if single else isinstance(result, Result) and result.op is op
            for result in op.results
        )
        if not owned:
            self.fail(op, "has results that belong to another op")

    def define(self, value: Value, owner: Op | None, what: str) -> None:
        if value in self.defined:
            self.fail(owner, f"defines {what} twice")
        self.defined.add(value)
        self.in_scope.add(value)

    def fail(self, op: Op | None, problem: str) -> NoReturn:
        subject = (
            "the body" if op is None else f"{op.op_name} {op.name!r}" if op.name else op.op_name
        )
        location = self.function.location if op is None else op.location
        message = f"verifier: in {self.function.name}: {subject} {problem}"
        raise InternalError(message, location=location)


def _describe(value: Value) -> str:
    kind = value.op_name if isinstance(value, Op) else type(value).__name__.lower()
    return f"{kind} {value.name!r}: {value.type}" if value.name else f"{kind}: {value.type}"
