"""Which pointer parameters a function may store through: an analysis, it rewrites nothing."""

from __future__ import annotations

from tilewright.ir.core import Block, Effect, Function, Op, Value
from tilewright.ops import (
    Bitcast,
    Call,
    DescriptorGather,
    DescriptorLoad,
    For,
    If,
    Load,
    PointerAdd,
    While,
)

__all__ = ["written_parameters"]

Roots = frozenset[int]
_NOWHERE: Roots = frozenset()


def written_parameters(function: Function) -> frozenset[int]:
    """Return the positions of the pointer parameters that may be stored to or updated atomically.

    A pointer is followed to the parameters it may come from. One that comes from elsewhere (an
    integer read from memory) may point anywhere: then all pointer parameters count as written.
    """
    return _Roots(function).written()


class _Roots:
    """For each value, the parameters that an address in it may come from."""

    def __init__(self, function: Function) -> None:
        self.function = function
        pointers = [i for i, p in enumerate(function.params) if p.type.element.is_ptr()]
        self.anywhere: Roots = frozenset(pointers)
        self.roots: dict[Value, Roots] = {function.params[i]: frozenset({i}) for i in pointers}

    def written(self) -> Roots:
        """Follow addresses until nothing new is found, then collect the targets of writes."""
        known = -1
        while known != (known := sum(map(len, self.roots.values()))):
            self.block(self.function.body)
        written = _NOWHERE
        for op in self.function.body.walk():
            written |= self.targets(op)
        return written

    def targets(self, op: Op) -> Roots:
        if isinstance(op, Call):
            arguments = [op.arguments[i] for i in written_parameters(op.callee)]
            return self.union(arguments)
        if op.region_fields or Effect.WRITE not in op.effects or isinstance(op, Load):
            return _NOWHERE
        # Of the values a write takes, only addresses lead to what it changes.
        pointers = [v for v in op.operands if v.type.element.is_ptr()]
        return _NOWHERE.union(*(self.union([v]) or self.anywhere for v in pointers))

    def union(self, values: tuple[Value, ...] | list[Value]) -> Roots:
        return _NOWHERE.union(*(self.roots.get(v, _NOWHERE) for v in values))

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case For(inits=inits, body=body):
                self.join(body.params[1:], inits, body.yields)
                self.block(body)
                self.join(op.results, inits, body.yields)
            case While(inits, condition, body):
                for params in (condition.params, body.params, op.results):
                    self.join(params, inits, body.yields)
                self.block(condition)
                self.block(body)
            case If(_, then, orelse):
                self.block(then)
                self.block(orelse)
                self.join(op.results, then.yields, orelse.yields)
            case _:
                for result in op.results:
                    self.add(result, self.source(op))

    def join(self, targets: tuple[Value, ...], *sources: tuple[Value, ...]) -> None:
        for target, *values in zip(targets, *sources, strict=True):
            self.add(target, self.union(values))

    def add(self, value: Value, roots: Roots) -> None:
        if roots:
            self.roots[value] = self.roots.get(value, _NOWHERE) | roots

    def source(self, op: Op) -> Roots:
        """Return where addresses in the results of a straight op come from."""
        match op:
            case PointerAdd(pointer):
                return self.union([pointer])
            case Load() | DescriptorLoad() | DescriptorGather():
                # Eight bytes from memory may be an address.
                return self.anywhere if op.type.element.itemsize == 8 else _NOWHERE
            case Bitcast(x, to) if to.is_ptr() and not x.type.element.is_ptr():
                return self.union([x]) or self.anywhere
        return self.union(op.operands)
