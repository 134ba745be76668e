"""Both halves of a product by one multiplication of twice the width.

GPUs multiply 32 bits by 32 bits to 64 as fast as to the upper half alone.

    %h = mul_high %x, %y : u32   →   %a = cast %x : u64
    %l = mul %x, %y : u32            %b = cast %y : u64
                                     %p = mul %a, %b : u64
                                     %h = cast (shift_right %p, 32) : u32
                                     %l = cast %p : u32
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Block, Function, Op, Value
from tilewright.ops.elementwise import Mul, MulHigh
from tilewright.passes.expression import Expression

__all__ = ["multiply_wide"]


def multiply_wide(function: Function) -> Function:
    """Multiply to 64 bits where both halves of a product of u32 are needed."""
    is_pair = iter(list(_pairs(function.body)))

    def rule(op: Op, emit: Emit) -> Value | None:
        if not next(is_pair):
            return None
        x, y = (Expression(operand, emit).cast("u64") for operand in op.operands)
        product = x * y
        half = product >> 32 if isinstance(op, MulHigh) else product
        return half.cast("u32").value

    return rewrite(function, rule)


def _pairs(block: Block) -> Iterator[bool]:
    """For each op, as a rule sees them, whether it is half of a product needed in full."""
    halves: dict[frozenset[Value], set[type[Op]]] = {}
    for op in block.ops:
        if _is_half(op):
            halves.setdefault(frozenset(op.operands), set()).add(type(op))
    for op in block.ops:
        for region in op.regions:
            yield from _pairs(region)
        yield _is_half(op) and len(halves[frozenset(op.operands)]) > 1


def _is_half(op: Op) -> bool:
    return isinstance(op, Mul | MulHigh) and str(op.type.element) == "u32"
