"""Deciding, for each block, in which order its loop nests run and which tiles get a buffer.

Ops are visited in order. What needs every element of a tile (a store, a reduction, an operand of a
product) becomes a root of a nest; roots of one shape share a nest as long as none needs what the
nest computes last, and memory is read and written in the order of the program:

- A load that is pulled after a later write was kept in a buffer before that write.
- A store shares a nest with loads only if they use the very same addresses or come from another
  parameter. (Arrays passed for two parameters may be the same array, but must not overlap shifted
  against each other.)
- A load behind a store never shares the store's nest.

Afterwards, a tile that two nests would compute is kept in a buffer by the first, unless it is
cheap.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from tilewright import ops
from tilewright.codegen.cpu.buffers import Arena, Buffer
from tilewright.codegen.cpu.effects import AssertRoot, AtomicRoot, HistogramRoot, PrintRoot
from tilewright.codegen.cpu.nest import FillRoot, Nest, ReduceRoot, Root, StoreRoot
from tilewright.codegen.uses import Uses, defining_op, pointer_root
from tilewright.ir.core import Block, Effect, Function, Op, Param, Value
from tilewright.passes.axis_info import AxisInfo

__all__ = ["BlockPlan", "Planner", "Step", "dot_source", "starts_at_zero"]

Step = Op | Nest
MUCH_ARITHMETIC = 12  # instructions: a division, and what is around it
_EXCLUSIVE = (AtomicRoot, HistogramRoot, PrintRoot)


@dataclass
class BlockPlan:
    """The steps of a block, in order: nests, and ops that are written on their own."""

    steps: list[Step] = field(default_factory=list)


class Planner:
    """Plans all blocks of a function. `buffers` says which tiles live in memory, and where."""

    def __init__(self, function: Function, facts: AxisInfo) -> None:
        self.uses = Uses(function, facts)
        self.arena = Arena()
        self.buffers: dict[Value, Buffer] = {}
        self.plans: dict[Block, BlockPlan] = {}
        self.assertions: list[ops.Assert] = []
        self.wanted: dict[Value, tuple[Buffer, Value]] = {}  # buffer of a carried tile, its param
        self.plan_block(function.body, {})

    def give_buffer(self, value: Value, buffer: Buffer | None = None, pad: int = 0) -> Buffer:
        """Let a tile live in memory from now on."""
        if value not in self.buffers:
            buffer = buffer or Buffer.for_value(value, pad=pad)
            self.arena.place(buffer)
            self.buffers[value] = buffer
            self.uses.stored.add(value)
        return self.buffers[value]

    def plan_block(self, block: Block, carried: dict[int, Buffer]) -> None:
        """Plan a block; yielded tile `i` must end up in `carried[i]`."""
        self.plans[block] = _BlockPlanner(self, block, carried).plan()


class _BlockPlanner:
    def __init__(self, planner: Planner, block: Block, carried: dict[int, Buffer]) -> None:
        self.planner, self.block, self.carried = planner, block, carried
        self.uses = planner.uses
        self.steps: list[Step] = []
        self.pending: Nest | None = None
        self.pending_leaves: list[tuple[Value, bool]] = []
        self.waiting: list[Op] = []  # pure scalar ops that need what the pending nest computes
        self.not_yet_there: set[Value] = set()  # what its reductions, and these ops, result in
        self.loads: list[ops.Load] = []
        self.writes = [i for i, op in enumerate(block.ops) if op.effects & Effect.WRITE]
        self.position = 0

    def plan(self) -> BlockPlan:
        self._want_carried_buffers()
        for position, op in enumerate(self.block.ops):
            self.position = position
            self._visit(op)
        self.position = len(self.block.ops)
        self._yield()
        self._flush()
        self._keep_shared_tiles()
        if self.block not in self.uses.parent:
            self._note_last_reads()
        return BlockPlan(self.steps)

    # -- visiting ops -----------------------------------------------------------------------------

    def _visit(self, op: Op) -> None:
        if op.effects & Effect.WRITE:
            self._keep_crossing_loads()
        if all(self.uses.is_virtual(v) for v in op.results) and op.results:
            if isinstance(op, ops.Load):
                self.loads.append(op)
            return
        match op:
            case ops.Store() if op.pointer.shape:
                for load in self._overwritten_loads(op):
                    self._fill(load)
                self._keep_costly_columns(op.operands)
                self._add(StoreRoot(op), op.pointer.shape)
            case ops.Reduce():
                self._reduce(op)
            case ops.Assert() if op.condition.shape:
                self.planner.assertions.append(op)
                root = AssertRoot(op, len(self.planner.assertions) - 1)
                self._add(root, op.condition.shape, alone=True)
            case ops.Assert():
                self.planner.assertions.append(op)
                self._on_its_own(op)
            case ops.AtomicRmw() | ops.AtomicCas() if op.pointer.shape:
                for load in self._pulled_loads(op.operands):
                    self._fill(load)  # lanes act in turn, and all were loaded before the first
                used = bool(self.uses.users[op] or self.uses.yielded[op])
                buffer = self.planner.give_buffer(op) if used else None
                self._add(AtomicRoot(op, buffer), op.pointer.shape, alone=True)
            case _:
                self._visit_whole(op)

    def _visit_whole(self, op: Op) -> None:
        match op:
            case ops.Dot():
                self._dot(op)
            case ops.Scan():
                for source, result in zip(op.inputs, op.results, strict=True):
                    self._add(FillRoot(source, self.planner.give_buffer(result)), source.shape)
                self._on_its_own(op)
            case ops.MapElements():
                for value in op.inputs:
                    self._fill(value)
                for result in op.results:
                    self.planner.give_buffer(result)
                self._on_its_own(op)
                self.planner.plan_block(op.body, {})
            case ops.Sort():
                self._add(FillRoot(op.x, self.planner.give_buffer(op)), op.x.shape)
                self._on_its_own(op)
            case ops.Histogram():
                buffer = self.planner.give_buffer(op)
                self._on_its_own(op)  # zeroes the buffer
                self._add(HistogramRoot(op, buffer), op.x.shape, alone=True)
            case ops.Print():
                self._on_its_own(op)  # prints scalars, or the line without values
                for number, value in enumerate(op.values):
                    if value.shape:
                        self._add(PrintRoot(op, number), value.shape, alone=True)
            case ops.For() | ops.While() | ops.If():
                self._structured(op)
            case _:
                self._scalar(op)

    def _scalar(self, op: Op) -> None:
        """An op written where it stands; nests go before it only where the order matters."""
        pending = self.pending
        if pending is not None:
            writes = any(not isinstance(r, FillRoot | ReduceRoot) for r in pending.roots)
            pulls_tiles = any(v.shape for v in op.operands)
            if op.effects & Effect.WRITE or (writes and op.effects) or pulls_tiles:
                self._flush()
            elif not self.not_yet_there.isdisjoint(op.operands):
                if not op.effects and not op.regions:
                    self.waiting.append(op)
                    self.not_yet_there.update(op.results)
                    return
                self._flush()
        for operand in op.operands:
            self._keep_gather_sources(operand)
        self.steps.append(op)

    def _on_its_own(self, op: Op) -> None:
        self._flush()
        self.steps.append(op)

    def _reduce(self, op: ops.Reduce) -> None:
        shape = op.inputs[0].shape
        buffers = tuple(self.planner.give_buffer(r) for r in op.results) if len(shape) > 1 else ()
        self._add(ReduceRoot(op, buffers), shape)

    def _dot(self, op: ops.Dot) -> None:
        for operand in (dot_source(op.a), dot_source(op.b)):
            if isinstance(operand, ops.Load) and self.uses.is_virtual(operand):
                self._keep_costly_columns(operand.operands)
            self._fill(operand, pad=True)
        target = self.planner.wanted.get(op)
        if starts_at_zero(op):
            self.planner.give_buffer(op, self._free_target(op))
            self._on_its_own(op)
            return
        if target is not None and op.acc is not target[1]:
            self.planner.wanted[op.acc] = target
        self._fill(op.acc)
        buffer = self.planner.buffers[op.acc]
        if not self._may_overwrite(op.acc, op):
            buffer = self._free_target(op) or Buffer.for_value(op)
        self.planner.give_buffer(op, buffer)
        self._on_its_own(op)

    def _may_overwrite(self, acc: Value, op: ops.Dot) -> bool:
        """Whether the accumulator's buffer may become the result's."""
        if self.uses.last_pull(acc, self.block) > self.position:
            return False
        if isinstance(acc, Param):
            target = self.planner.wanted.get(op)
            return target is not None and target[1] is acc
        home = defining_op(acc)
        return home is not None and self.uses.block_of[home] is self.block

    def _free_target(self, value: Value) -> Buffer | None:
        """Return the carried buffer that `value` is yielded to, if the old tile is done with."""
        target = self.planner.wanted.get(value)
        if target is None or self.uses.last_pull(target[1], self.block) > self.position:
            return None
        return target[0]

    def _structured(self, op: ops.For | ops.While | ops.If) -> None:
        self._keep_for_regions(op)
        if isinstance(op, ops.If):
            carried = {i: self.planner.give_buffer(r) for i, r in enumerate(op.results) if r.shape}
            self._on_its_own(op)
            for arm in (op.then, op.orelse):
                self.planner.plan_block(arm, carried)
            return
        bodies = (op.body,) if isinstance(op, ops.For) else (op.condition, op.body)
        skipped = 1 if isinstance(op, ops.For) else 0
        carried = {}
        for i, (init, result) in enumerate(zip(op.inits, op.results, strict=True)):
            if init.shape:
                carried[i] = self.planner.give_buffer(result)
                for body in bodies:
                    self.planner.give_buffer(body.params[i + skipped], carried[i])
                self._add(FillRoot(init, carried[i]), init.shape)
        self._on_its_own(op)
        for body in bodies:
            self.planner.plan_block(body, carried if body is op.body else {})

    # -- buffers ----------------------------------------------------------------------------------

    def _fill(self, value: Value, *, pad: bool = False) -> None:
        """Make sure that a tile is in memory."""
        if not self.uses.is_virtual(value):
            return
        buffer = self._free_target(value)
        target = self.planner.wanted.get(value)
        if buffer is not None and target is not None and self._reads_elsewhere(value, target[1]):
            buffer = None
        extra = _row_padding(value) if pad else 0
        root = FillRoot(value, buffer or Buffer.for_value(value, pad=extra), value)
        self._add(root, value.shape)
        self.planner.give_buffer(value, root.buffer)

    def _reads_elsewhere(self, value: Value, param: Value) -> bool:
        return any(leaf is param and not same for leaf, same in self.uses.leaves((value,)))

    def _keep_crossing_loads(self) -> None:
        """Before a write, keep what was loaded above it and is needed below it."""
        for load in self.loads:
            if self.uses.is_virtual(load) and self.uses.last_pull(load, self.block) > self.position:
                self._fill(load)
        self.loads = [load for load in self.loads if self.uses.is_virtual(load)]

    def _keep_for_regions(self, op: Op) -> None:
        """Before a loop or branch, keep the tiles that are needed inside and are not cheap."""
        inside = {v for region in op.regions for inner in region.walk() for v in inner.operands}
        inside.update(v for region in op.regions for v in region.yields)
        inside.update(
            v for region in op.regions for inner in region.walk()
            for nested in inner.regions for v in nested.yields
        )  # fmt: skip
        for value in sorted(inside, key=self._order):
            home = defining_op(value)
            if home is not None and self.uses.is_expensive(value):
                for part in self.uses.costly_parts(value):
                    self._keep_here(part)
                if self.uses.is_expensive(value):
                    self._keep_here(value)
        for inner in (inner for region in op.regions for inner in region.walk()):
            for value in inner.operands:
                self._keep_gather_sources(value)
            if isinstance(inner, ops.Dot):
                read = [dot_source(inner.a), dot_source(inner.b)]
                for value in read if starts_at_zero(inner) else [*read, inner.acc]:
                    self._keep_here(value)

    def _keep_here(self, value: Value) -> None:
        """Keep a tile of this block that an inner block needs in memory."""
        home = defining_op(value)
        if home is not None and self.uses.block_of[home] is self.block:
            self._fill(value)

    def _keep_costly_columns(self, values: tuple[Value, ...]) -> None:
        """Keep what the rows of tiles have in common, if it takes much arithmetic.

        A nest would compute it again for each row. It is computed of scalars before the pending
        nest, which what pulls the tiles may still join.
        """
        for value in values:
            for part in self.uses.columns(value):
                cost = self.uses.cost(part, enough=MUCH_ARITHMETIC)
                if not self.uses.is_virtual(part) or cost <= MUCH_ARITHMETIC:
                    continue
                leaves = [leaf for leaf, _ in self.uses.leaves((part,))]
                if not any(leaf.shape or leaf in self.not_yet_there for leaf in leaves):
                    buffer = self.planner.give_buffer(part)
                    self.steps.append(Nest(part.shape, [FillRoot(part, buffer, part)]))

    def _order(self, value: Value) -> int:
        home = defining_op(value)
        return self.uses.position.get(home, -1) if home is not None else -1

    def _keep_gather_sources(self, value: Value) -> None:
        """A gather reads its source anywhere, so the source must be in memory."""
        seen, waiting = set(), [value] if self.uses.has_gathers else []
        while waiting:
            current = waiting.pop()
            op = defining_op(current)
            if op is None or current in seen or not self.uses.is_virtual(current):
                continue
            seen.add(current)
            if isinstance(op, ops.Gather) and self.uses.is_virtual(op.x):
                self._keep_gather_sources(op.x)
                self._keep_here(op.x)
            waiting += op.operands

    # -- nests ------------------------------------------------------------------------------------

    def _add(self, root: Root, shape: tuple[int, ...], *, alone: bool = False) -> None:
        for value in root.pulls:
            self._keep_gather_sources(value)
        for load in self._needed_behind_a_write(root, shape):
            self._fill(load)
        if alone or not self._joins(root, shape):
            self._flush()
            self.pending = Nest(shape)
            self.pending_leaves = []
        assert self.pending is not None
        self.pending.roots.append(root)
        if isinstance(root, ReduceRoot):
            self.not_yet_there.update(root.op.results)
        self.pending_leaves += self.uses.leaves(root.pulls)
        if alone:
            self._flush()

    def _needed_behind_a_write(self, root: Root, shape: tuple[int, ...]) -> list[ops.Load]:
        """Loads that this root reads first and that a later write forces into a buffer anyway."""
        if isinstance(root, FillRoot) and isinstance(root.value, ops.Load):
            return []
        return [
            leaf
            for leaf, same_index in self.uses.leaves(root.pulls)
            if isinstance(leaf, ops.Load)
            and same_index
            and leaf.shape == shape
            and self.uses.is_virtual(leaf)
            and self._crosses_a_write(leaf)
        ]

    def _crosses_a_write(self, load: ops.Load) -> bool:
        number = bisect_right(self.writes, self.position)
        if number == len(self.writes):
            return False
        return self.writes[number] < self.uses.last_pull(load, self.block)

    def _flush(self) -> None:
        if self.pending is not None:
            self.steps += (self.pending, *self.waiting)
            self.pending, self.waiting, self.not_yet_there = None, [], set()

    def _joins(self, root: Root, shape: tuple[int, ...]) -> bool:
        nest = self.pending
        if nest is None or nest.shape != shape:
            return False
        if isinstance(root, ReduceRoot) and nest.reduced_axis not in {None, root.op.axis}:
            return False
        filled = {r.buffer for r in nest.roots if isinstance(r, FillRoot)}
        stores = [r.op for r in nest.roots if isinstance(r, StoreRoot)]
        leaves = list(self.uses.leaves(root.pulls))
        for leaf, same_index in leaves:
            if leaf in self.not_yet_there:
                return False
            if not same_index and self.planner.buffers.get(leaf) in filled:
                return False
            if isinstance(leaf, ops.Load) and stores and self._is_behind(leaf, stores[0]):
                return False
        if isinstance(root, FillRoot) and self._overwrites_what_is_read(root):
            return False
        return not isinstance(root, StoreRoot) or self._store_joins(root.op, nest, leaves)

    def _overwrites_what_is_read(self, root: FillRoot) -> bool:
        return any(
            not same and self.planner.buffers.get(leaf) is root.buffer
            for leaf, same in self.pending_leaves
        )

    def _is_behind(self, load: Op, store: Op) -> bool:
        place = self.uses.place_in(load, self.block)
        return place is not None and place > self.uses.position[store]

    def _store_joins(self, store: ops.Store, nest: Nest, leaves: list[tuple[Value, bool]]) -> bool:
        pulled = [leaf for leaf, _ in leaves + self.pending_leaves]
        others = [leaf.pointer for leaf in pulled if isinstance(leaf, ops.Load)]
        others += [r.op.pointer for r in nest.roots if isinstance(r, StoreRoot)]
        return all(self._apart(store.pointer, other) for other in others)

    def _apart(self, a: Value, b: Value) -> bool:
        """Whether two accesses agree lane by lane on their address, or belong to two parameters."""
        if a is b:
            return self.uses.has_distinct_lanes(a)
        roots = pointer_root(a), pointer_root(b)
        return None not in roots and roots[0] is not roots[1]

    def _overwritten_loads(self, store: ops.Store) -> list[ops.Load]:
        """Loads that the store itself pulls but may overwrite before all of them are read."""
        return [
            load
            for load in self._pulled_loads(store.operands)
            if not self._apart(store.pointer, load.pointer)
        ]

    def _pulled_loads(self, values: tuple[Value, ...]) -> list[ops.Load]:
        return [leaf for leaf, _ in self.uses.leaves(values) if isinstance(leaf, ops.Load)]

    # -- ends of blocks ---------------------------------------------------------------------------

    def _want_carried_buffers(self) -> None:
        """Note which values would best be computed right into the buffers they are yielded to."""
        skipped = len(self.block.params) - len(self.block.yields)
        if skipped < 0 or not self.block.params:
            return
        for i, buffer in self.carried.items():
            value = self.block.yields[i]
            home = defining_op(value)
            if home is not None and self.uses.block_of.get(home) is self.block:
                self.planner.wanted.setdefault(value, (buffer, self.block.params[i + skipped]))

    def _yield(self) -> None:
        """Move the yielded tiles to where they are carried, as if all at once."""
        skipped = len(self.block.params) - len(self.block.yields)
        moves: list[tuple[Value, Buffer]] = []
        for i, target in self.carried.items():
            value = self.block.yields[i]
            stays = skipped >= 0 and value is self.block.params[i + skipped]
            if not stays and self.planner.buffers.get(value) is not target:
                moves.append((value, target))
        sources = [self._stashed(v) if self._clashes(v, t, moves) else v for v, t in moves]
        for source, (_, target) in zip(sources, moves, strict=True):
            self._add(FillRoot(source, target), source.shape)

    def _clashes(self, value: Value, target: Buffer, moves: list[tuple[Value, Buffer]]) -> bool:
        """Whether a move overwrites what computing `value` still has to read."""
        others = {t for _, t in moves if t is not target}
        for leaf, same_index in self.uses.leaves((value,)):
            buffer = self.planner.buffers.get(leaf)
            if buffer in others or (buffer is target and not same_index):
                return True
        return False

    def _stashed(self, value: Value) -> Value:
        """Keep a tile in a buffer of its own and return a value that stands for it."""
        held = Param(value.type, "held")
        buffer = Buffer.for_value(value)
        self._add(FillRoot(value, buffer, held), value.shape)
        self._flush()
        self.planner.give_buffer(held, buffer)
        return held

    # -- sharing ----------------------------------------------------------------------------------

    def _keep_shared_tiles(self) -> None:
        """Keep what two nests would compute, unless it is cheap; users are seen before operands."""
        nests = [step for step in self.steps if isinstance(step, Nest)]
        pulled_by: dict[Value, set[int]] = {}
        computed_by: dict[Value, set[int]] = {}
        for number, nest in enumerate(nests):
            for root in nest.roots:
                store = root.op if isinstance(root, StoreRoot) else None
                for value in root.pulls if store is None else self.uses.elements_needed(store):
                    fills = isinstance(root, FillRoot) and root.keeps is value
                    pulls = computed_by if fills else pulled_by
                    pulls.setdefault(value, set()).add(number)
        for op in reversed(self.block.ops):
            for value in op.results:
                numbers = computed_by.get(value, set())
                if self.uses.is_virtual(value):
                    numbers = numbers | pulled_by.get(value, set())
                    if len(numbers) > 1 and self.uses.is_worth_sharing(value):
                        numbers = {self._keep_in_first(value, nests, min(numbers))}
                if numbers and not self.uses.is_never_virtual(op):
                    for operand in self.uses.elements_needed(op):
                        pulled_by.setdefault(operand, set()).update(numbers)

    def _note_last_reads(self) -> None:
        """Note which rows are read by several nests, and by which of them last."""
        readers: dict[ops.Load, list[Nest]] = {}
        for nest in self.steps:
            if isinstance(nest, Nest):
                for leaf, _ in self.uses.leaves(nest.sources):
                    if isinstance(leaf, ops.Load) and self.uses.is_virtual(leaf):
                        readers.setdefault(leaf, []).append(nest)
        for load, nests in readers.items():
            is_row = max(load.shape) == load.type.size
            if is_row and len(nests) > 1:
                nests[-1].read_for_the_last_time |= {load}

    def _keep_in_first(self, value: Value, nests: list[Nest], number: int) -> int:
        nest = nests[number]
        root = FillRoot(value, Buffer.for_value(value), value)
        if nest.shape == value.shape and not any(
            isinstance(r, (*_EXCLUSIVE, AssertRoot)) for r in nest.roots
        ):
            nest.roots.insert(0, root)
        else:
            own = Nest(value.shape, [root])
            self.steps.insert(next(i for i, s in enumerate(self.steps) if s is nest), own)
        self.planner.give_buffer(value, root.buffer)
        return number


def starts_at_zero(op: ops.Dot) -> bool:
    """Whether a product has no accumulator to read."""
    return isinstance(op.acc, ops.Full) and op.acc.value == 0


def dot_source(operand: Value) -> Value:
    """Return what a product reads: a transposed operand is read from the tile it transposes."""
    if isinstance(operand, ops.Permute) and operand.order == (1, 0):
        return operand.x
    return operand


def _row_padding(value: Value) -> int:
    """Rows that are a multiple of half a kilobyte apart collide in the first-level cache."""
    itemsize = value.type.element.itemsize
    row_bytes = value.shape[-1] * itemsize
    return 64 // itemsize if row_bytes % 512 == 0 else 0
