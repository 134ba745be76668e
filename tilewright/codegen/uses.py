"""Who uses what, and what a tile costs to compute again: the facts that planning builds on.

A tile is *virtual* while it is only a recipe: computing an element of it pulls elements of its
operands. A tile that has a buffer, a scalar, or a load is where a recipe ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from tilewright import ops
from tilewright.ir.core import Block, Function, Op, Param, Result, Value
from tilewright.passes.axis_info import AxisInfo

__all__ = ["Uses", "defining_op", "pointer_root"]

# Ops whose operands are read at another index than their own.
_REINDEXING = (
    ops.Broadcast, ops.ExpandDims, ops.Permute, ops.Reshape, ops.Join, ops.Split, ops.Cat,
    ops.Gather,
)  # fmt: skip
_NEVER_VIRTUAL = (
    ops.Dot, ops.Reduce, ops.Scan, ops.Sort, ops.Histogram, ops.For, ops.While, ops.If, ops.Call,
    ops.AtomicRmw, ops.AtomicCas, ops.DescriptorLoad, ops.InlineAssembly, ops.ForeignCall,
    ops.MapElements,
)  # fmt: skip
_COSTS: dict[type[Op], int] = {
    ops.Full: 0, ops.Arange: 0, ops.Broadcast: 0, ops.ExpandDims: 0, ops.Permute: 0, ops.Reshape: 1,
    ops.Hint: 0, ops.Gather: 8, ops.Div: 8, ops.Rem: 8, ops.Sqrt: 8,
}  # fmt: skip
CHEAP = 6
UNAFFORDABLE = 100


def defining_op(value: Value) -> Op | None:
    """Return the op that computes a value (None for a parameter)."""
    if isinstance(value, Result):
        return value.op
    return value if isinstance(value, Op) else None


def pointer_root(value: Value) -> Value | None:
    """Return the parameter that a pointer was computed from, where there is just one."""
    while True:
        match value:
            case ops.PointerAdd(pointer=inner):
                value = inner
            case ops.Broadcast(x=inner) | ops.ExpandDims(x=inner) | ops.Reshape(x=inner):
                value = inner
            case ops.Permute(x=inner) | ops.Hint(x=inner):
                value = inner
            case Param():
                return value
            case _:
                return None


class Uses:
    """Users of every value of a function, and the place of every op."""

    def __init__(self, function: Function, facts: AxisInfo) -> None:
        self.facts = facts
        self.users: dict[Value, list[Op]] = defaultdict(list)
        self.yielded: dict[Value, list[Block]] = defaultdict(list)
        self.block_of: dict[Op, Block] = {}
        self.position: dict[Op, int] = {}
        self.parent: dict[Block, Op] = {}
        self.stored: set[Value] = set()
        self.masks: set[Value] = set()  # of loads and stores
        self.has_gathers = False
        self._visit(function.body)

    def _visit(self, block: Block) -> None:
        for position, op in enumerate(block.ops):
            self.block_of[op] = block
            self.position[op] = position
            if isinstance(op, ops.Load | ops.Store) and op.mask is not None:
                self.masks.add(op.mask)
            self.has_gathers |= isinstance(op, ops.Gather)
            for operand in op.operands:
                self.users[operand].append(op)
            for region in op.regions:
                self.parent[region] = op
                self._visit(region)
        for value in block.yields:
            self.yielded[value].append(block)

    def is_virtual(self, value: Value) -> bool:
        """Whether the value is a tile without a buffer."""
        op = defining_op(value)
        return (
            bool(value.shape)
            and value not in self.stored
            and op is not None
            and not self.is_never_virtual(op)
        )

    def is_never_virtual(self, op: Op) -> bool:
        """Whether the op's results are more than a recipe for each element."""
        return isinstance(op, _NEVER_VIRTUAL)

    def place_in(self, op: Op, block: Block) -> int | None:
        """Return the position in `block` of the op, or of the op of `block` that contains it."""
        while True:
            home = self.block_of[op]
            if home is block:
                return self.position[op]
            if home not in self.parent:
                return None
            op = self.parent[home]

    def last_pull(self, value: Value, block: Block) -> int:
        """Return the last position in `block` at which elements of `value` may be computed."""
        last, seen, waiting = -1, {value}, [value]
        while waiting:
            current = waiting.pop()
            if any(b is block for b in self.yielded[current]):
                return len(block.ops)
            for region in self.yielded[current]:
                inside = (
                    self.place_in(self.parent[region], block) if region in self.parent else None
                )
                last = max(last, -1 if inside is None else inside)
            for user in self.users[current]:
                place = self.place_in(user, block)
                last = max(last, -1 if place is None else place)
                for result in user.results:
                    if self.is_virtual(result) and result not in seen:
                        seen.add(result)
                        waiting.append(result)
        return last

    def leaves(self, roots: tuple[Value, ...]) -> Iterator[tuple[Value, bool]]:
        """Yield what computing `roots` ends at, and whether it is read at the same index."""
        seen: set[tuple[Value, bool]] = set()
        waiting = [(value, True) for value in roots]
        while waiting:
            value, same_index = item = waiting.pop()
            if item in seen:
                continue
            seen.add(item)
            op = defining_op(value)
            if not self.is_virtual(value) or op is None:
                yield item
                continue
            if isinstance(op, ops.Load):
                yield item
            inner = same_index and not isinstance(op, _REINDEXING)
            waiting += [(operand, inner) for operand in op.operands]

    def pulled(self, roots: tuple[Value, ...]) -> Iterator[Op]:
        """Yield the ops of all virtual tiles that computing `roots` asks for elements of."""
        seen, waiting = set(roots), list(roots)
        while waiting:
            op = defining_op(current := waiting.pop())
            if op is None or not self.is_virtual(current):
                continue
            yield op
            fresh = [v for v in op.operands if v not in seen]
            seen.update(fresh)
            waiting += fresh

    def cost(
        self,
        value: Value,
        *,
        load: int = UNAFFORDABLE,
        addresses: bool = True,
        enough: float = math.inf,
    ) -> int:
        """Return roughly how many instructions an element of a virtual tile takes.

        `load` is the price of loading consecutive elements again, beside that of their `addresses`.
        Counting ends above `enough`.
        """
        total, seen, waiting = 0, {value}, [value]
        while waiting and total <= enough:
            current = waiting.pop()
            op = defining_op(current)
            if op is None or not self.is_virtual(current):
                continue
            own = _COSTS.get(type(op), 1)
            if isinstance(op, ops.Load):
                own = load if self._is_consecutive(op) else UNAFFORDABLE
            total += own
            operands = op.operands if addresses else self.elements_needed(op)
            fresh = [v for v in operands if v not in seen]
            seen.update(fresh)
            waiting += fresh
        return total

    def _is_consecutive(self, load: ops.Load) -> bool:
        return not load.volatile and self._has_runs(load.pointer)

    def _has_runs(self, pointer: Value) -> bool:
        return any(self.facts.contiguity(pointer, axis) > 1 for axis in range(len(pointer.shape)))

    def elements_needed(self, op: Op) -> tuple[Value, ...]:
        """Return the operands that an element of the op needs an element of.

        That is all of them, but the addresses of memory in runs: one is enough for many elements.
        """
        if isinstance(op, ops.Load | ops.Store) and self._has_runs(op.pointer):
            return op.operands[1:]
        return op.operands

    def has_distinct_lanes(self, pointer: Value) -> bool:
        """Whether no two elements of a tile of addresses are equal.

        Steps that are known must not overlap; those that are arguments are trusted not to.
        """
        spans: list[tuple[int, int]] = []
        for axis, size in enumerate(pointer.shape):
            stride = self.facts.stride(pointer, axis)
            if size == 1:
                continue
            if stride is None or not stride.factor:
                return False
            if stride.scalar is None:
                spans.append((abs(stride.factor), size))
        reach = 0
        for step, size in sorted(spans):
            if step <= reach:
                return False
            reach += step * (size - 1)
        return True

    def is_expensive(self, value: Value) -> bool:
        """Whether to keep the tile in memory rather than compute it inside a loop."""
        return self.cost(value, enough=CHEAP) > CHEAP

    def is_worth_sharing(self, value: Value) -> bool:
        """Whether to keep the tile in memory rather than compute it in two nests of a block."""
        return self.cost(value, load=1, addresses=False, enough=CHEAP) > CHEAP

    def costly_parts(self, value: Value) -> list[Value]:
        """Return smaller tiles that `value` is spread out from and that are worth keeping.

        Row and column offsets of a tile of addresses are such parts: kept instead of the tile.
        """
        limit = value.type.size
        ends = self._ends(value, lambda v: v is not value and 4 * v.type.size <= limit)
        return [part for part in ends if self.is_expensive(part)]

    def columns(self, value: Value) -> list[Value]:
        """Return tiles of one row that `value` is spread out from, along all but its last axis."""
        spread = self._ends(value, lambda v: isinstance(v, ops.Broadcast))
        rows = [op.x for op in spread if isinstance(op, ops.Broadcast)]
        return [
            x
            for x in rows
            if x.shape and x.shape[-1] == x.type.size > 1 and x.type.size < value.type.size
        ]

    def _ends(self, value: Value, is_end: Callable[[Value], bool]) -> Iterator[Value]:
        """Yield the virtual tiles below `value` at which `is_end` holds, and look no further there.

        Nor is anything looked at below a load.
        """
        seen, waiting = {value}, [value]
        while waiting:
            current = waiting.pop()
            op = defining_op(current)
            if op is None or not self.is_virtual(current) or isinstance(op, ops.Load):
                continue
            if is_end(current):
                yield current
                continue
            fresh = [v for v in op.operands if v not in seen]
            seen.update(fresh)
            waiting += fresh
