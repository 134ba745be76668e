"""Loops and branches: what they hand on, and what loops copy ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import Pipeline, pipeline_of
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.ring import Ring, ring_of
from tilewright.codegen.gpu.tensor_copy import TensorCopies, TensorMachine
from tilewright.codegen.gpu.warpgroup import (
    WarpgroupMachine,
    hold_in_shared,
    is_read_from_registers,
)
from tilewright.codegen.trips import trip_count
from tilewright.codegen.uses import Uses
from tilewright.ir.core import Op, Value
from tilewright.layout import register_copies

__all__ = ["Blocks", "ControlFlow"]


class Blocks(Protocol):
    """What writes the ops of a function."""

    code: Code
    uses: Uses
    placement: Placement
    puller: Puller
    memory: GlobalMemory
    copies: TensorCopies

    def scope(self) -> AbstractContextManager[None]:
        """Write a block inside: what it keeps in shared memory is given up behind."""

    def write(self, written: Iterable[Op]) -> None:
        """Write ops at the current place."""


class ControlMachine(WarpgroupMachine, TensorMachine, Protocol):
    """Writes what runs on while a loop goes ahead."""


@dataclass(frozen=True)
class _Copies:
    """What a loop copies ahead, and what starts the copies of one more iteration."""

    ring: Ring | None
    start: Callable[[], None]

    def begin(self) -> None:
        """Write what begins an iteration."""
        if self.ring is not None:
            self.ring.begin(self.start)

    def end(self, count: str) -> None:
        """Write what ends the iteration number `count`."""
        if self.ring is not None:
            self.ring.end(self.start, count)

    def leave(self) -> None:
        """Write what follows the last iteration."""
        if self.ring is not None:
            self.ring.leave()


class ControlFlow:
    """Writes the loops and branches of one function.

    `deferred` are the products that still run when their iteration ends.
    """

    def __init__(self, blocks: Blocks, machine: ControlMachine, num_stages: int) -> None:
        self.blocks, self.machine, self.num_stages = blocks, machine, num_stages
        self.code, self.puller = blocks.code, blocks.puller
        self.placement = blocks.placement
        self.deferred: set[ops.Dot] = set()

    # -- what loops and branches hand on ----------------------------------------------------------

    def _slots(self, values: Sequence[Value]) -> list[list[str]]:
        """Return stack slots for scalars and for the registers of tiles; LLVM removes them."""
        return [
            [self.code.alloca(llvm_type(value.type.element)) for _ in self._registers(value)]
            for value in values
        ]

    def _registers(self, value: Value) -> list[int]:
        """The registers of a tile that are no copies of others."""
        if not value.shape:
            return [0]
        return sorted(set(register_copies(self.placement.home(value))))

    def _keep(
        self, homes: Sequence[Value], values: Sequence[Value], slots: list[list[str]]
    ) -> None:
        """Store what `homes` shall be; all is computed before any slot changes."""
        pulled = []
        for home, value in zip(homes, values, strict=True):
            if value.shape:
                layout = self.placement.home(home)
                elements = [self.puller.pull(value, layout, r) for r in self._registers(home)]
            else:
                elements = [self.puller.scalar(value)]
            pulled.append(elements)
        for value, elements, own in zip(values, pulled, slots, strict=True):
            kind = llvm_type(value.type.element)
            for element, slot in zip(elements, own, strict=True):
                self.code.line(f"store {kind} {element.text}, ptr {slot}")

    def _fetch(self, values: Sequence[Value], slots: list[list[str]]) -> None:
        """Let `values` be what their slots hold now."""
        for value, own in zip(values, slots, strict=True):
            kind, level = llvm_type(value.type.element), self.code.level
            texts = [self.code.assign(f"load {kind}, ptr {slot}") for slot in own]
            elements = [Element(text, 1, level) for text in texts]
            self._hold(value, elements)

    def _hold(self, value: Value, elements: Sequence[Element]) -> None:
        """Let `value` be these elements, one for each register that is no copy."""
        if not value.shape:
            self.puller.scalars[value] = elements[0]
            return
        layout = self.placement.home(value)
        by_register = dict(zip(self._registers(value), elements, strict=True))
        held = tuple(by_register[first] for first in register_copies(layout))
        self.puller.residents[value] = Resident(layout, held)

    @contextmanager
    def _operands_placed(self, op: ops.For | ops.While) -> Iterator[None]:
        """Inside, operands that a loop does not change are where its products read them."""
        changed = set(_changed(op))
        with ExitStack() as stack:
            for product in (inner for region in op.regions for inner in region.walk()):
                if not isinstance(product, ops.Dot):
                    continue
                plan = self.placement.product(product)
                for value, layout in ((product.a, plan.a), (product.b, plan.b)):
                    if value in changed:
                        continue
                    if plan.columns and not self._from_registers(product, value):
                        stack.enter_context(
                            hold_in_shared(
                                self.puller, self.placement, self.machine, product, value
                            )
                        )
                    else:
                        self.puller.pull_all(value, layout)
            yield

    @staticmethod
    def _from_registers(product: ops.Dot, value: Value) -> bool:
        return value is product.a and is_read_from_registers(value)

    # -- loops and branches -----------------------------------------------------------------------

    def write_for(self, op: ops.For) -> None:
        """Write a counted loop."""
        code, puller = self.code, self.puller
        kind = llvm_type(op.start.type.element)
        start, stop, step = (puller.scalar(v).text for v in (op.start, op.stop, op.step))
        slots = self._slots(op.results)
        self._keep(op.results, op.inits, slots)
        trips = trip_count(code, op, start, stop, step)

        def index(count: str) -> Element:
            number = count if kind == "i64" else code.assign(f"trunc i64 {count} to {kind}")
            scaled = code.assign(f"mul {kind} {number}, {step}")
            return Element(code.assign(f"add {kind} {start}, {scaled}"), 1, code.level)

        with self._operands_placed(op), code.section(), puller.shared.repeated():
            enter, body, done = code.label("enter"), code.label("body"), code.label("end")
            runs = code.assign(f"icmp ne i64 {trips}, 0")
            code.line(f"br i1 {runs}, label %{enter}, label %{done}")
            code.place(enter)
            with self._copied_ahead(op, trips, index) as copies:
                counter = code.alloca("i64")
                code.line(f"store i64 0, ptr {counter}")
                code.line(f"br label %{body}")
                code.place(body)
                count = code.assign(f"load i64, ptr {counter}")
                copies.begin()
                with code.section(), self.blocks.scope():
                    puller.scalars[op.body.params[0]] = index(count)
                    self._fetch(op.body.params[1:], slots)
                    self.blocks.write(op.body.ops)
                    self._keep(op.results, op.body.yields, slots)
                puller.shared.end_iteration()
                copies.end(count)
                following = code.assign(f"add nuw i64 {count}, 1")
                code.line(f"store i64 {following}, ptr {counter}")
                more = code.assign(f"icmp ult i64 {following}, {trips}")
                leave = code.label("leave")
                code.line(f"br i1 {more}, label %{body}, label %{leave}")
                code.place(leave)
                self._await_deferred(op, slots)
                copies.leave()
            code.line(f"br label %{done}")
            code.place(done)
        self._fetch(op.results, slots)

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
                done = self.machine.wait_for_products(0, running, kind)
                for text, slot in zip(done, own, strict=True):
                    self.code.line(f"store {kind} {text}, ptr {slot}")

    # -- copying ahead ----------------------------------------------------------------------------

    @contextmanager
    def _copied_ahead(
        self, op: ops.For, trips: str, index: Callable[[str], Element]
    ) -> Iterator[_Copies]:
        """Write a loop inside; what is handed out says where its iterations begin and end."""
        pipeline = None
        if self.machine.has_copies:
            pipeline = pipeline_of(op, self.blocks.uses, self.placement, self.num_stages)
        if pipeline is None:
            yield _Copies(None, _nothing)
            return
        if pipeline.deferred is not None:
            self.deferred.add(pipeline.deferred)
        ring = ring_of(self.blocks.memory, self.blocks.copies, self.machine, pipeline)
        with ring.open():
            start_copies = self._copier(op, pipeline, ring, trips, index)
            for _ in range(ring.ahead):
                start_copies()
            yield _Copies(ring, start_copies)

    def _copier(
        self,
        op: ops.For,
        pipeline: Pipeline,
        ring: Ring,
        trips: str,
        index: Callable[[str], Element],
    ) -> Callable[[], None]:
        """Return what starts the copies of one more iteration, over carried values of its own."""
        code = self.code
        carried = [op.results[number] for number in pipeline.carried]
        params = [op.body.params[number + 1] for number in pipeline.carried]
        slots = self._slots(carried)
        self._keep(carried, [op.inits[number] for number in pipeline.carried], slots)
        counter = code.alloca("i64")
        code.line(f"store i64 0, ptr {counter}")

        def advance() -> None:
            self._keep(carried, [op.body.yields[number] for number in pipeline.carried], slots)

        def start_copies() -> None:
            with code.section():
                count = code.assign(f"load i64, ptr {counter}")
                code.line(f"store i64 {code.assign(f'add nuw i64 {count}, 1')}, ptr {counter}")
                more = code.assign(f"icmp ult i64 {count}, {trips}")
                self.puller.scalars[op.body.params[0]] = index(count)
                self._fetch(params, slots)
                ring.start_copies(more, lambda: self.blocks.write(pipeline.ahead), advance)

        return start_copies

    def write_while(self, op: ops.While) -> None:
        """Write a loop that runs while its condition holds."""
        code, puller = self.code, self.puller
        slots = self._slots(op.results)
        self._keep(op.results, op.inits, slots)
        head, body, done = code.label("while"), code.label("body"), code.label("end")
        with self._operands_placed(op), code.section(), puller.shared.repeated():
            code.line(f"br label %{head}")
            code.place(head)
            self._fetch(op.condition.params, slots)
            with self.blocks.scope():
                self.blocks.write(op.condition.ops)
                more = puller.scalar(op.condition.yields[0]).text
            code.line(f"br i1 {more}, label %{body}, label %{done}")
            code.place(body)
            self._fetch(op.body.params, slots)
            with self.blocks.scope():
                self.blocks.write(op.body.ops)
                self._keep(op.results, op.body.yields, slots)
            puller.shared.end_iteration()
            code.line(f"br label %{head}")
            code.place(done)
        self._fetch(op.results, slots)

    def write_if(self, op: ops.If) -> None:
        """Write a branch."""
        code, puller = self.code, self.puller
        condition = puller.scalar(op.condition).text
        slots = self._slots(op.results)
        then, orelse, done = code.label("then"), code.label("else"), code.label("endif")
        with code.section(), puller.shared.branched() as arms:
            code.line(f"br i1 {condition}, label %{then}, label %{orelse}")
            for label, arm in ((then, op.then), (orelse, op.orelse)):
                with code.section(), arms(), self.blocks.scope():
                    code.place(label)
                    self.blocks.write(arm.ops)
                    self._keep(op.results, arm.yields, slots)
                    code.line(f"br label %{done}")
            code.place(done)
        self._fetch(op.results, slots)


def _nothing() -> None:
    pass


def _changed(op: Op) -> Iterator[Value]:
    """The values that a loop computes, at any depth."""
    for region in op.regions:
        yield from region.params
        for inner in region.walk():
            yield from inner.results
            for own in inner.regions:
                yield from own.params
