"""Applying a combine function to vectors: a region on scalars, written once for all lanes."""

from __future__ import annotations

from typing import Protocol

from tilewright import ops
from tilewright.codegen.arithmetic import lower
from tilewright.codegen.code import Code, Element, dtype, llvm_type, vector
from tilewright.errors import Unsupported
from tilewright.ir.core import Block, Effect, Op, Value

__all__ = ["Scalars", "apply_region", "identity"]


class Scalars(Protocol):
    """Where code is written, and what a region may use from outside."""

    @property
    def code(self) -> Code: ...

    def scalar(self, value: Value) -> Element:
        """Return a scalar that has been computed before."""

    def pointer_add(self, op: ops.PointerAdd, pointer: Element, offset: Element) -> Element:
        """Advance a pointer."""


def apply_region(scalars: Scalars, block: Block, arguments: list[Element]) -> list[Element]:
    """Write the ops of `block` on `arguments` and return what it yields."""
    known: dict[Value, Element] = dict(zip(block.params, arguments, strict=True))
    return _apply(scalars, block, known)


def _apply(scalars: Scalars, block: Block, known: dict[Value, Element]) -> list[Element]:
    def element(value: Value) -> Element:
        return known[value] if value in known else scalars.scalar(value)

    for op in block.ops:
        if op.effects is not Effect.NONE:
            raise Unsupported(
                f"{op.op_name} inside a combine function", location=op.location,
                hint="a combine function may only compute",
            )  # fmt: skip
        if isinstance(op, ops.If):
            # Lanes may differ, so both arms are computed and chosen from.
            arms = [_apply(scalars, arm, known) for arm in (op.then, op.orelse)]
            chosen = [
                _select(scalars, element(op.condition), a, b, result)
                for a, b, result in zip(*arms, op.results, strict=True)
            ]
            known.update(zip(op.results, chosen, strict=True))
        elif op.regions:
            raise Unsupported(
                f"{op.op_name} inside a combine function",
                location=op.location,
                hint="unroll the loop: `for i in tl.static_range(...)`",
            )
        elif not isinstance(op, ops.Full):
            known[op] = _lower(scalars, op, [element(v) for v in op.operands])
    return [element(v) for v in block.yields]


def _lower(scalars: Scalars, op: Op, elements: list[Element]) -> Element:
    if isinstance(op, ops.PointerAdd):
        return scalars.pointer_add(op, *elements)
    lanes, level = max(e.lanes for e in elements), max(e.level for e in elements)
    texts = [
        scalars.code.splat(e, llvm_type(v.type.element), lanes)
        for e, v in zip(elements, op.operands, strict=True)
    ]
    return Element(lower(scalars.code, op, texts, lanes, level), lanes, level)


def _select(scalars: Scalars, flag: Element, x: Element, y: Element, result: Value) -> Element:
    lanes = max(flag.lanes, x.lanes, y.lanes)
    level = max(flag.level, x.level, y.level)
    kind = llvm_type(result.type.element)
    flags = scalars.code.splat(flag, "i1", lanes)
    a, b = (scalars.code.splat(e, kind, lanes) for e in (x, y))
    type_ = vector(kind, lanes)
    text = scalars.code.assign(
        f"select {vector('i1', lanes)} {flags}, {type_} {a}, {type_} {b}", level
    )
    return Element(text, lanes, level)


def identity(block: Block) -> float | None:
    """Return the number that leaves the other operand as it is, where the region has one."""
    if len(block.ops) != 1 or block.yields != (block.ops[0],):
        return None
    op = block.ops[0]
    if set(op.operands) != set(block.params):
        return None
    kind = dtype(op.type.element)
    floating = kind.is_floating()
    match op:
        case ops.Add():
            return -0.0 if floating else 0
        case ops.Mul():
            return 1
        case ops.Or() | ops.Xor():
            return 0
        case ops.And():
            return -1 if kind.is_int_signed() else kind.integer_range[1]
        case ops.Maximum() | ops.Minimum() if not floating:
            low, high = kind.integer_range
            return low if isinstance(op, ops.Maximum) else high
        case ops.Maximum(propagate_nan=propagate):
            return float("-inf") if propagate else float("nan")
        case ops.Minimum(propagate_nan=propagate):
            return float("inf") if propagate else float("nan")
    return None
