"""Sums of products rounded once: `x * y + z` becomes `fma(x, y, z)`.

GPUs have an instruction for it that is as fast as a sum. A product that something else needs too is
left alone, and one that is to be rounded itself. What later passes write is not fused: they count
on separate roundings.

    %p = mul %x, %y : fp32      →   %s = fma %x, %y, %z : fp32
    %s = add %p, %z : fp32

A product that is summed over an axis becomes `fma(x, y, -0.0)`, which is the same number: a target
may put the sum so far in the place of the -0.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilewright.ir.builder import Emit, rewrite, with_fields
from tilewright.ir.core import Block, Function, Op, Value
from tilewright.ops.elementwise import Add, Fma, Mul, Neg, Sub
from tilewright.ops.reduce import Reduce
from tilewright.ops.shape import Full

__all__ = ["fuse_multiply_adds", "is_sum"]

_FUSED = frozenset({"fp32", "fp64"})


def fuse_multiply_adds(function: Function) -> Function:
    """Fuse the products of fp32 and fp64 that only a sum or a difference needs."""
    uses: Counter[Value] = Counter(function.body.yields)
    for op in function.body.walk():
        uses.update(op.operands)
        for region in op.regions:
            uses.update(region.yields)
    counts = (uses[op] for op in _as_rewritten(function.body))
    single: set[Value] = set()

    def rule(op: Op, emit: Emit) -> Value | tuple[Value, ...] | None:
        is_single = next(counts) == 1
        match op:
            case Mul(is_rounded=False) if (
                is_single and getattr(op.type.element, "name", "") in _FUSED
            ):
                single.add(op)
            case Add(Mul(x, y) as product, z) if product in single:
                return emit(Fma(x, y, z))
            case Add(z, Mul(x, y) as product) if product in single:
                return emit(Fma(x, y, z))
            case Sub(Mul(x, y) as product, z) if product in single:
                return emit(Fma(x, y, emit(Neg(z))))
            case Sub(z, Mul(x, y) as product) if product in single:
                return emit(Fma(emit(Neg(x)), y, z))
            case Reduce((Mul(x, y) as product,)) if product in single and is_sum(op.combine):
                nothing = emit(Full(-0.0, product.type))
                return emit(with_fields(op, inputs=(emit(Fma(x, y, nothing)),))).results
        return None

    return rewrite(function, rule)


def is_sum(combine: Block) -> bool:
    """Whether a combine function adds its two parameters."""
    return (
        len(combine.ops) == 1
        and isinstance(combine.ops[0], Add)
        and set(combine.ops[0].operands) == set(combine.params)
        and combine.yields == (combine.ops[0],)
    )


def _as_rewritten(block: Block) -> Iterator[Op]:
    """The ops in the order in which a rule sees what has become of them."""
    for op in block.ops:
        for region in op.regions:
            yield from _as_rewritten(region)
        yield op
