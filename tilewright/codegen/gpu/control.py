"""Loops and branches: what they hand on, and what loops copy ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import llvm_type
from tilewright.codegen.gpu.barriers import BarrierMachine
from tilewright.codegen.gpu.block_copies import BlockCopies
from tilewright.codegen.gpu.carried import Carried
from tilewright.codegen.gpu.copier import Bounds, LoopCopier, NestCopier, OpWriter
from tilewright.codegen.gpu.element_stores import Written
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import Pipeline, Stages, nest_of, pipeline_of
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.products import Products
from tilewright.codegen.gpu.ring import Ring, ring_of
from tilewright.codegen.uses import Uses
from tilewright.ir.core import Op, Value
from tilewright.layout import distinct_registers

__all__ = ["Blocks", "ControlFlow"]


class Blocks(OpWriter, Protocol):
    """What writes the blocks of a function."""

    uses: Uses
    placement: Placement
    memory: GlobalMemory
    copies: BlockCopies
    products: Products

    def write_block(
        self, written: Iterable[Op], meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Write the ops of a block; `meanwhile` writes what is done while the last products run."""

    def scope(self) -> AbstractContextManager[None]:
        """Write a block inside: what it keeps in shared memory is given up behind."""


@dataclass(frozen=True)
class _Copies:
    """What a loop copies ahead, and what starts the copies of one more iteration."""

    ring: Ring | None
    start: Callable[[], None]

    @property
    def meets(self) -> bool:
        """Whether all threads meet between two iterations."""
        return self.ring is not None and self.ring.meets

    @property
    def inside(self) -> Callable[[], None] | None:
        """What starts them, if it is written inside an iteration."""
        return self.start if self.ring is not None and self.ring.starts_inside else None

    def begin(self) -> None:
        """Write what begins an iteration."""
        if self.ring is not None:
            self.ring.begin(self.start)

    def during(self) -> None:
        """Write what is done in an iteration when all its products have been started."""
        if self.ring is not None:
            self.ring.during(self.start)

    def end(self) -> None:
        """Write what ends an iteration."""
        if self.ring is not None:
            self.ring.end(self.start)


class ControlFlow:
    """Writes the loops and branches of one function.

    `deferred` are the products that still run when their iteration ends.
    """

    def __init__(self, blocks: Blocks, machine: BarrierMachine, stages: Stages) -> None:
        self.blocks, self.machine, self.stages = blocks, machine, stages
        self.code, self.puller = blocks.code, blocks.puller
        self.placement = blocks.placement
        self.carried = Carried(blocks.puller, blocks.placement)
        self.deferred: set[ops.Dot] = set()
        self._nested: dict[Op, _Copies] = {}
        self._to_start: Callable[[], None] | None = None
        self.runs_across = False  # whether copies run ahead from one outer iteration to the next

    @contextmanager
    def _operands_placed(self, op: ops.For | ops.While) -> Iterator[None]:
        """Inside, operands that a loop does not change are where its products read them."""
        changed = set(_changed(op))
        with ExitStack() as stack:
            for product in (inner for region in op.regions for inner in region.walk()):
                if not isinstance(product, ops.Dot):
                    continue
                for value in (product.a, product.b):
                    if value not in changed:
                        stack.enter_context(self.blocks.products.placed(product, value))
            yield

    # -- loops and branches -----------------------------------------------------------------------

    def write_for(self, op: ops.For) -> None:
        """Write a counted loop."""
        code, puller = self.code, self.puller
        slots = self.carried.slots(op.results)
        self.carried.keep(op.results, op.inits, slots)
        bounds = Bounds(puller, op)
        with self._operands_placed(op), code.section(), puller.shared.repeated():
            enter, body, done = code.label("enter"), code.label("body"), code.label("end")
            runs = code.assign(f"icmp ne i64 {bounds.trips}, 0")
            code.line(f"br i1 {runs}, label %{enter}, label %{done}")
            code.place(enter)
            with self._copied_ahead(op, bounds) as copies:
                counter = code.alloca("i64")
                code.line(f"store i64 0, ptr {counter}")
                code.line(f"br label %{body}")
                code.place(body)
                puller.shared.begin_iteration(_stores(op))
                count = code.assign(f"load i64, ptr {counter}")
                copies.begin()
                self._to_start = copies.inside
                with code.section(), self.blocks.scope():
                    puller.scalars[op.body.params[0]] = bounds.index(count)
                    self.carried.fetch(op.body.params[1:], slots)
                    self.blocks.write_block(op.body.ops, copies.during)
                    self.carried.keep(op.results, op.body.yields, slots)
                puller.shared.end_iteration(_stores(op), meets=copies.meets)
                copies.end()
                following = code.assign(f"add nuw i64 {count}, 1")
                code.line(f"store i64 {following}, ptr {counter}")
                more = code.assign(f"icmp ult i64 {following}, {bounds.trips}")
                leave = code.label("leave")
                code.line(f"br i1 {more}, label %{body}, label %{leave}")
                code.place(leave)
                self._await_deferred(op, slots)
            code.line(f"br label %{done}")
            code.place(done)
        self.carried.fetch(op.results, slots)

    def _await_deferred(self, op: ops.For, slots: list[list[str]]) -> None:
        """Wait for the product that still runs when a loop has ended.

        On the way out, and not where those meet who never were in the loop: the assembler would
        have to copy registers that are still being written. And before any other waiting: it
        moves conversions of the sums above that, and then finds them too early (C7514).
        """
        for value, result, own in zip(op.body.yields, op.results, slots, strict=True):
            if isinstance(value, ops.Dot) and value in self.deferred:
                kind = llvm_type(result.type.element)
                running = [self.code.assign(f"load {kind}, ptr {slot}") for slot in own]
                done = self.blocks.products.await_deferred(running, kind)
                for text, slot in zip(done, own, strict=True):
                    self.code.line(f"store {kind} {text}, ptr {slot}")

    # -- copying ahead ----------------------------------------------------------------------------

    def start_copies(self) -> None:
        """Start the copies that this iteration is to start, unless it has done so."""
        start, self._to_start = self._to_start, None
        if start is not None:
            start()

    @contextmanager
    def _copied_ahead(self, op: ops.For, bounds: Bounds) -> Iterator[_Copies]:
        """Write a loop inside; what is handed out says where its iterations begin and end."""
        uses, stages = self.blocks.uses, self.stages
        if op in self._nested or not self.machine.has_copies:
            yield self._nested.get(op, _NOTHING)
            return
        pipeline = pipeline_of(op, uses, self.placement, stages)
        nest = nest_of(op, uses, self.placement, stages) if pipeline is None else None
        if pipeline is not None:
            with self._ring(pipeline) as ring:
                copier = LoopCopier(self.blocks, self.carried, op, pipeline, ring, bounds)
                yield _started(ring, copier.start_copies)
        elif nest is not None:
            self.runs_across = True
            with self._ring(nest.pipeline) as ring:
                outer = NestCopier(self.blocks, self.carried, op, nest, ring, bounds)
                self._nested[nest.inner] = _started(ring, outer.start_copies)
                yield _NOTHING
        else:
            yield _NOTHING

    @contextmanager
    def _ring(self, pipeline: Pipeline) -> Iterator[Ring]:
        if pipeline.deferred is not None:
            self.deferred.add(pipeline.deferred)
        ring = ring_of(self.blocks.memory, self.blocks.copies, self.machine, pipeline)
        with ring.open():
            yield ring

    def write_while(self, op: ops.While) -> None:
        """Write a loop that runs while its condition holds."""
        code, puller = self.code, self.puller
        slots = self.carried.slots(op.results)
        self.carried.keep(op.results, op.inits, slots)
        head, body, done = code.label("while"), code.label("body"), code.label("end")
        with self._operands_placed(op), code.section(), puller.shared.repeated():
            code.line(f"br label %{head}")
            code.place(head)
            puller.shared.begin_iteration(_stores(op))
            self.carried.fetch(op.condition.params, slots)
            with self.blocks.scope():
                self.blocks.write_block(op.condition.ops)
                more = puller.scalar(op.condition.yields[0]).text
            code.line(f"br i1 {more}, label %{body}, label %{done}")
            code.place(body)
            self.carried.fetch(op.body.params, slots)
            with self.blocks.scope():
                self.blocks.write_block(op.body.ops)
                self.carried.keep(op.results, op.body.yields, slots)
            puller.shared.end_iteration(_stores(op))
            code.line(f"br label %{head}")
            code.place(done)
        self.carried.fetch(op.results, slots)

    def write_if(self, op: ops.If) -> None:
        """Write a branch."""
        code, puller = self.code, self.puller
        condition = puller.scalar(op.condition).text
        slots = self.carried.slots(op.results)
        then, orelse, done = code.label("then"), code.label("else"), code.label("endif")
        with code.section(), puller.shared.branched() as arms:
            code.line(f"br i1 {condition}, label %{then}, label %{orelse}")
            for label, arm in ((then, op.then), (orelse, op.orelse)):
                with code.section(), arms(), self.blocks.scope():
                    code.place(label)
                    self.blocks.write_block(arm.ops)
                    self.carried.keep(op.results, arm.yields, slots)
                    code.line(f"br label %{done}")
            code.place(done)
        self.carried.fetch(op.results, slots)

    def write_map(self, op: ops.MapElements) -> None:
        """Write the body for each element that a thread holds; threads go different ways."""
        code, puller = self.code, self.puller
        slots = self.carried.slots(op.results)
        layout = self.placement.home(op.results[0])
        for number, register in enumerate(distinct_registers(layout)):
            inside = puller.inside(op.results[0], layout, register)
            for param, value in zip(op.body.params, op.inputs, strict=True):
                puller.scalars[param] = puller.pull(value, layout, register)
            # Beyond the end of the tile a loop might never stop.
            is_inside = nullcontext() if inside is None else code.guarded(inside.text)
            with is_inside, puller.shared.untouched():
                self.blocks.write_block(op.body.ops)
                for value, own in zip(op.body.yields, slots, strict=True):
                    kind = llvm_type(value.type.element)
                    code.line(f"store {kind} {puller.scalar(value).text}, ptr {own[number]}")
        self.carried.fetch(op.results, slots)


def _nothing() -> None:
    pass


_NOTHING = _Copies(None, _nothing)


def _started(ring: Ring, start: Callable[[], None]) -> _Copies:
    """Start the copies of the first iterations."""
    for _ in range(ring.ahead):
        ring.store_held()
        start()
    return _Copies(ring, start)


def _stores(op: Op) -> list[tuple[Value, ops.AtomicKind | None]]:
    """What a loop starts copies to, of the user's memory, and how they combine."""
    written = (i for r in op.regions for i in r.walk() if isinstance(i, Written))
    return [(i.base, i.kind if isinstance(i, ops.DescriptorReduce) else None) for i in written]


def _changed(op: Op) -> Iterator[Value]:
    """The values that a loop computes, at any depth."""
    for region in op.regions:
        yield from region.params
        for inner in region.walk():
            yield from inner.results
            for own in inner.regions:
                yield from own.params
