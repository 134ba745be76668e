"""Which loads of a loop are copied to shared memory ahead of the iterations that need them.

A copy runs on while the threads compute. Started some iterations early, it has arrived when its
tile is needed. The loads of a loop that feed its products are copied so, and in loops that ask for
it (`tl.range(..., num_stages=n)`) all loads of tiles. Beside those that the threads copy, scalars
are copied ahead there, too.

To start the copies of a later iteration one needs its addresses: the part of the loop's body that
computes them is written a second time, over carried values that run ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.gpu.placement import Placement, is_apart, written_by
from tilewright.codegen.gpu.shared_tile import TileMemory, block_memory, memory_of
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.gpu.words import WORD_BITS
from tilewright.codegen.uses import Uses, defining_op
from tilewright.ir.core import Effect, Op, Param, Value
from tilewright.layout import distinct_registers
from tilewright.ops.memory import pointee

__all__ = [
    "CopiedLoad", "Nest", "Pipeline", "Stages", "by_one_thread", "copied_memory", "nest_of",
    "origin_of", "pipeline_of",
]  # fmt: skip

_SMALLEST_COPY_BYTES = 4
_SCALAR_BYTES = (4, 8)  # what a copy can move of those
_MOST_HELD_WORDS = 32  # in a thread
_MOST_WORDS = 192  # of the 255 registers of a thread, for a product
CopiedLoad = ops.Load | ops.DescriptorLoad


@dataclass(frozen=True)
class Pipeline:
    """What to copy ahead, and what computing the addresses takes.

    `stages` is the number of tiles of each load that are in shared memory at once. Those of the
    loads that are `held` pass by registers, as no copy makes them; `scalars` are copied beside
    the tiles. `ahead` are the ops of the body that the addresses need, in order; `carried` the
    numbers of the carried values that they need. `deferred` is a product that may still run while
    the next iteration begins; copies then start at the end of an iteration, when the one before it
    has ended.
    """

    stages: int
    loads: tuple[CopiedLoad, ...]
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    deferred: ops.Dot | None = None
    held: tuple[ops.Load, ...] = ()
    scalars: tuple[ops.Load, ...] = ()


@dataclass(frozen=True)
class Stages:
    """How many tiles of a load are in shared memory at once.

    `asked` is what the kernel asks for, if a loop does not ask for itself, and `most` what there is
    room for. `across` says whether copies run ahead from one outer iteration to the next.
    """

    asked: int
    most: int
    across: bool = True


def pipeline_of(op: ops.For, uses: Uses, placement: Placement, asked: Stages) -> Pipeline | None:
    """Return how a loop is pipelined; None where it is not."""
    stages = min(op.num_stages or asked.asked, asked.most)
    if stages < 2:
        return None
    every = bool(op.num_stages)
    products = [inner for inner in op.body.ops if isinstance(inner, ops.Dot)]
    fed = {load for dot in products for load in _loads_of((dot.a, dot.b), uses)}
    written = [pointer for inner in op.body.walk() for pointer in written_by(inner)]
    found = {}
    for load in op.body.ops:
        if isinstance(load, CopiedLoad) and (every or load in fed):
            needed = _needed(op, _addresses(load))
            reads = [load, *(o for o in needed[0] if isinstance(o, CopiedLoad))] if needed else []
            if needed is not None and all(is_apart(origin_of(read), written) for read in reads):
                found[load] = needed
    copied = [load for load in found if _is_copied(load, placement)]
    held = _held([load for load in found if load not in copied], copied, placement)
    loads = [load for load in found if load in copied or load in held]
    if not loads or (not copied and not fed <= set(held)):
        return None
    scalars = _scalars(found, loads, placement) if every else []
    ahead = {needed for load in (*loads, *scalars) for needed in found[load][0]}
    carried = {number for load in (*loads, *scalars) for number in found[load][1]}
    return Pipeline(
        stages,
        tuple(loads),
        tuple(inner for inner in op.body.ops if inner in ahead),
        tuple(sorted(carried)),
        _deferred(op, uses, placement, loads) if stages > 2 else None,
        tuple(held),
        tuple(scalars),
    )


@dataclass(frozen=True)
class Nest:
    """A loop with one pipelined loop in it, whose copies run ahead from one iteration to the next.

    `ahead` are the ops of the outer body that the inner loop's addresses and bounds need, in order,
    `carried` the numbers of the outer carried values that they need, and `live` the scalars that
    the inner loop's part of the computation takes from them.
    """

    inner: ops.For
    pipeline: Pipeline
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]
    live: tuple[Value, ...]


def nest_of(op: ops.For, uses: Uses, placement: Placement, asked: Stages) -> Nest | None:
    """Return how copies run ahead through a loop in a loop; None where they do not.

    All of them have to be tensor copies, of which the addresses are a few scalars.
    """
    found = []
    for inner in op.body.ops if asked.across else ():
        if isinstance(inner, ops.For):
            pipeline = pipeline_of(inner, uses, placement, asked)
            if pipeline is not None:
                found.append((inner, pipeline))
    if len(found) != 1:
        return None
    ((inner, pipeline),) = found
    if not all(isinstance(load, ops.DescriptorLoad) for load in pipeline.loads):
        return None
    roots = [inner.start, inner.stop, inner.step, *(inner.inits[i] for i in pipeline.carried)]
    taken = [v for load in pipeline.loads for v in _addresses(load)]
    taken += [v for ahead in pipeline.ahead for v in ahead.operands]
    needed = _needed(op, [*roots, *taken])
    if needed is None:
        return None
    outer = {result for inner_op in op.body.ops for result in inner_op.results}
    outer.update(op.body.params)
    ahead = [inner_op for inner_op in op.body.ops if inner_op in needed[0]]
    reads = [*pipeline.loads, *(o for o in ahead if isinstance(o, CopiedLoad))]
    written = [pointer for inner in op.body.walk() for pointer in written_by(inner)]
    is_scalar = all(not v.shape for o in (*ahead, *pipeline.ahead) for v in o.results)
    if not is_scalar or not all(is_apart(origin_of(read), written) for read in reads):
        return None
    live = tuple(dict.fromkeys(value for value in taken if value in outer))
    return Nest(inner, pipeline, tuple(ahead), tuple(sorted(needed[1])), live)


def _loads_of(values: Iterable[Value], uses: Uses) -> Iterator[CopiedLoad]:
    """The loads whose elements tiles are computed from."""
    seen: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, CopiedLoad):
            yield value
        elif uses.is_virtual(value):
            op = defining_op(value)
            waiting += op.operands if op is not None else ()


def origin_of(load: CopiedLoad) -> Value:
    """Return the address that says which array is read."""
    return load.base if isinstance(load, ops.DescriptorLoad) else load.pointer


def by_one_thread(load: CopiedLoad, placement: Placement) -> bool:
    """Whether one thread asks for the tile, and a barrier counts its bytes."""
    return isinstance(load, ops.DescriptorLoad) or placement.is_row(load)


def _is_copied(load: CopiedLoad, placement: Placement) -> bool:
    """Whether there is an instruction that copies the tile without passing by registers."""
    if by_one_thread(load, placement):
        return True
    assert isinstance(load, ops.Load)
    if not load.shape or load.volatile or padded(load.shape) != load.shape:
        return False
    if not _is_zero_elsewhere(load):
        return False
    free = placement.of_access(load).free_masks()
    if free["lane"] or free["warp"]:
        return False
    width = max(placement.widths_of_access(load))
    return width * pointee(load, load.pointer).itemsize >= _SMALLEST_COPY_BYTES


def _held(
    loads: Sequence[CopiedLoad], copied: Sequence[CopiedLoad], placement: Placement
) -> list[ops.Load]:
    """The loads that may pass by registers: small ones, and whole tiles.

    Beside what one thread asks for alone there are none: all threads would have to meet for them.
    """
    if copied and all(by_one_thread(load, placement) for load in copied):
        return []
    found, words = [], 0
    for load in loads:
        if isinstance(load, ops.DescriptorLoad) or not load.shape or load.volatile:
            continue
        registers = len(distinct_registers(placement.of_access(load)))
        words += registers * max(1, load.type.element.storage_bits // WORD_BITS)
        if padded(load.shape) == load.shape and words <= _MOST_HELD_WORDS:
            found.append(load)
    return found


def _scalars(
    loads: Iterable[CopiedLoad], copied: Sequence[CopiedLoad], placement: Placement
) -> list[ops.Load]:
    """The loads of scalars that are copied as the threads' own copies are, if there are such."""
    if all(by_one_thread(load, placement) for load in copied):
        return []
    return [
        load
        for load in loads
        if isinstance(load, ops.Load) and not load.shape and _is_copied_scalar(load)
    ]


def _is_copied_scalar(load: ops.Load) -> bool:
    size = load.type.element.itemsize
    return size in _SCALAR_BYTES and not load.volatile and _is_zero_elsewhere(load)


def _is_zero_elsewhere(load: ops.Load) -> bool:
    """Whether zero takes the place of what is masked, as in copies."""
    return load.other is None or (isinstance(load.other, ops.Full) and not load.other.value)


def _addresses(load: CopiedLoad) -> list[Value]:
    """What says where a load's elements are, which of them there are, and what else is there."""
    if isinstance(load, ops.DescriptorLoad):
        return list(load.offsets)
    return [value for value in (load.pointer, load.mask, load.other) if value is not None]


def _needed(op: ops.For, values: Iterable[Value]) -> tuple[set[Op], set[int]] | None:
    """What computes values inside a loop; None where that takes more than arithmetic."""
    inside = {result: inner for inner in op.body.ops for result in inner.results}
    numbers = {param: number for number, param in enumerate(op.body.params[1:])}
    needed: set[Op] = set()
    carried: set[int] = set()
    waiting = list(values)
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


def _deferred(
    op: ops.For, uses: Uses, placement: Placement, copied: list[CopiedLoad]
) -> ops.Dot | None:
    """The product that only adds to what the loop carries, and of which nothing else is asked.

    It may run on while the next iteration begins, if it reads what is copied ahead and nothing that
    the next iteration writes. What it reads from registers is computed from that, and there is room
    for that of two iterations.
    """
    products = [inner for inner in op.body.walk() if isinstance(inner, ops.Dot)]
    dot = products[0] if len(products) == 1 else None
    if (
        dot is None
        or dot not in op.body.ops
        or not placement.product(dot).runs_on
        or uses.users[dot]
    ):
        return None
    numbers = [number for number, value in enumerate(op.body.yields) if value is dot]
    if len(numbers) != 1 or dot.acc is not op.body.params[numbers[0] + 1]:
        return None
    if len(uses.users[dot.acc]) != 1:
        return None
    a, b = (_copied_operand(value, copied, placement) for value in (dot.a, dot.b))
    if b is None or not b.is_operand(0):
        return None
    if a is None:
        leaves = {leaf for leaf, _ in uses.leaves((dot.a,))}
        fits = _words_of_two(dot, placement) <= _MOST_WORDS and not leaves.isdisjoint(copied)
    else:
        fits = a.is_operand(1)
    return dot if fits else None


def _words_of_two(dot: ops.Dot, placement: Placement) -> int:
    """The registers of the result, and of the left operands of two iterations."""
    plan = placement.product(dot)
    bits = dot.a.type.element.storage_bits
    words = plan.a.input_size("register") * bits // WORD_BITS
    return plan.accumulator.input_size("register") + 2 * words


def _copied_operand(
    value: Value, copied: list[CopiedLoad], placement: Placement
) -> TileMemory | None:
    """Where an operand lies, if it is copied ahead."""
    if isinstance(value, ops.Permute | ops.Hint):
        memory = _copied_operand(value.x, copied, placement)
        turned = isinstance(value, ops.Permute) and value.order == (1, 0)
        return memory.transposed() if memory is not None and turned else memory
    if isinstance(value, CopiedLoad) and value in copied:
        return copied_memory(value, placement)
    return None


def copied_memory(load: CopiedLoad, placement: Placement) -> TileMemory:
    """Return how a load's tile lies in shared memory."""
    if isinstance(load, ops.DescriptorLoad):
        return block_memory(load)
    return memory_of(load.shape, placement.order_of_access(load), load.type.element.storage_bits)
