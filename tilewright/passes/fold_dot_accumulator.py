"""Let a product accumulate: `x + dot(a, b, 0)` becomes `dot(a, b, x)`.

Every target adds into the accumulator for nothing, while a separate sum costs a pass over the tile.
`Dot` may add its terms in any order, so this only moves a rounding. fp16 accumulators are left
alone: they are rounded once per dot.

    %p = dot %a, %b, %zero          →   %s = dot %a, %b, %x
    %s = add %x, %p
"""

from __future__ import annotations

from collections import Counter

from tilewright import ops
from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value

__all__ = ["fold_dot_accumulator"]


def fold_dot_accumulator(function: Function) -> Function:
    """Fold sums into products that nothing else uses."""
    uses: Counter[Value] = Counter()
    _count(function.body.ops, uses)
    uses.update(v for op in function.body.walk() for region in op.regions for v in region.yields)
    uses.update(function.body.yields)
    # Operands are rewritten before the rule sees them: a product that was rebuilt is left alone.
    single = {op for op in function.body.walk() if isinstance(op, ops.Dot) and uses[op] == 1}
    if not single:
        return function

    def rule(op: Op, emit: Emit) -> Value | None:
        match op:
            case ops.Add(x, ops.Dot() as dot) | ops.Add(ops.Dot() as dot, x):
                if dot in single and x is not dot and _starts_at_zero(dot):
                    return emit(
                        ops.Dot(dot.a, dot.b, x, dot.input_precision, dot.max_num_imprecise_acc)
                    )
        return None

    return rewrite(function, rule)


def _count(block_ops: list[Op], uses: Counter[Value]) -> None:
    for op in block_ops:
        uses.update(op.operands)
        for region in op.regions:
            _count(region.ops, uses)


def _starts_at_zero(dot: ops.Dot) -> bool:
    acc = dot.acc
    return (
        isinstance(acc, ops.Full) and acc.value == 0 and acc.type.element.primitive_bitwidth >= 32
    )
