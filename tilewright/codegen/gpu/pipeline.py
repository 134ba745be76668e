"""Which loads of a loop are copied to shared memory ahead of the iterations that need them.

A copy runs on while the threads compute. Started some iterations early, it has arrived when its
tile is needed. The loads of a loop that feed its products are copied so, and in loops that ask for
it (`tl.range(..., num_stages=n)`) all loads of tiles.

To start the copies of a later iteration one needs its addresses: the part of the loop's body that
computes them is written a second time, over carried values that run ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.gpu.placement import Placement, access_width
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.uses import Uses, pointer_root
from tilewright.ir.core import Effect, Op, Param, Result, Value
from tilewright.ops.memory import pointee

__all__ = ["Pipeline", "pipeline_of"]

_SMALLEST_COPY_BYTES = 4


@dataclass(frozen=True)
class Pipeline:
    """What to copy ahead, and what computing the addresses takes.

    `stages` is the number of tiles of each load that are in shared memory at once. `ahead` are the
    ops of the body that the addresses need, in order; `carried` the numbers of the carried values
    that they need. `defers_product` says that the loop's only product may still run while the next
    iteration begins, so that one tile more is in use.
    """

    stages: int
    loads: tuple[ops.Load, ...]
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    deferred: ops.Dot | None = None

    @property
    def distance(self) -> int:
        """How many iterations ahead copies start."""
        return self.stages - (2 if self.deferred is not None else 1)


def pipeline_of(op: ops.For, uses: Uses, placement: Placement, num_stages: int) -> Pipeline | None:
    """Return how a loop is pipelined; None where it is not.

    `num_stages` is what the kernel asks for; a loop may ask for itself.
    """
    stages = op.num_stages or num_stages
    if stages < 2:
        return None
    every = bool(op.num_stages)
    products = [inner for inner in op.body.ops if isinstance(inner, ops.Dot)]
    fed = {leaf for dot in products for leaf, _ in uses.leaves((dot.a, dot.b))}
    written = list(_written(op))
    found: list[ops.Load] = []
    ahead: set[Op] = set()
    carried: set[int] = set()
    for load in op.body.ops:
        if not isinstance(load, ops.Load) or not (every or load in fed):
            continue
        needed = _needed(op, load)
        if needed is None or not _is_copied(load, placement):
            continue
        reads = [load, *(o for o in needed[0] if isinstance(o, ops.Load))]
        if all(_apart(read, written) for read in reads):
            found.append(load)
            ahead |= needed[0]
            carried |= needed[1]
    if not found:
        return None
    return Pipeline(
        stages,
        tuple(found),
        tuple(inner for inner in op.body.ops if inner in ahead),
        tuple(sorted(carried)),
        _deferred(op, uses, placement, found) if stages > 2 else None,
    )


def _is_copied(load: ops.Load, placement: Placement) -> bool:
    """Whether there is an instruction that copies the tile without passing by registers."""
    if not load.shape or load.volatile or padded(load.shape) != load.shape:
        return False
    if load.other is not None and not (isinstance(load.other, ops.Full) and not load.other.value):
        return False
    free = placement.of_access(load).free_masks()
    if free["lane"] or free["warp"]:
        return False
    facts = placement.facts
    width = max(access_width(facts, load, axis) for axis in range(len(load.shape)))
    return width * pointee(load, load.pointer).itemsize >= _SMALLEST_COPY_BYTES


def _needed(op: ops.For, load: ops.Load) -> tuple[set[Op], set[int]] | None:
    """What computes a load's addresses and mask; None where that takes more than arithmetic."""
    inside = {result: inner for inner in op.body.ops for result in inner.results}
    numbers = {param: number for number, param in enumerate(op.body.params[1:])}
    needed: set[Op] = set()
    carried: set[int] = set()
    waiting = [value for value in (load.pointer, load.mask) if value is not None]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Param):
            number = numbers.get(value)
            if number is not None and number not in carried:
                carried.add(number)
                waiting.append(op.body.yields[number])
            continue
        inner = inside.get(value)
        if inner is None or inner in needed:
            continue
        if inner.regions or isinstance(inner, ops.Dot) or Effect.WRITE in inner.effects:
            return None
        needed.add(inner)
        waiting += inner.operands
    return needed, carried


def _written(op: Op) -> Iterator[Value]:
    """The addresses that a loop writes to."""
    for region in op.regions:
        for inner in region.walk():
            if isinstance(inner, ops.Store | ops.AtomicRmw | ops.AtomicCas):
                yield inner.pointer


def _apart(load: ops.Load, written: Iterable[Value]) -> bool:
    root = pointer_root(load.pointer)
    others = [pointer_root(pointer) for pointer in written]
    return not others or (root is not None and all(o is not None and o is not root for o in others))


def _deferred(
    op: ops.For, uses: Uses, placement: Placement, copied: list[ops.Load]
) -> ops.Dot | None:
    """The product that only adds to what the loop carries, and of which nothing else is asked.

    It may run on while the next iteration begins, if it reads what is copied ahead and nothing that
    the next iteration writes.
    """
    products = [inner for region in op.regions for inner in region.walk() if _waits(inner)]
    if len(products) != 1 or not isinstance(products[0], ops.Dot):
        return None
    (dot,) = products
    if dot not in op.body.ops or not placement.product(dot).columns or uses.users[dot]:
        return None
    numbers = [number for number, value in enumerate(op.body.yields) if value is dot]
    if len(numbers) != 1 or dot.acc is not op.body.params[numbers[0] + 1]:
        return None
    if len(uses.users[dot.acc]) != 1 or not all(_moved(v) in copied for v in (dot.a, dot.b)):
        return None
    return dot


def _waits(op: Op) -> bool:
    return isinstance(op, ops.Dot)


def _moved(value: Value) -> Value:
    """What a tile is but for the order of its axes."""
    while isinstance(value, ops.Permute | ops.Hint):
        value = value.x
    return value.op if isinstance(value, Result) else value
