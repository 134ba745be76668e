"""Writing the blocks of a function: what is more than a recipe, where it stands."""

from __future__ import annotations

from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.gpu.atomics import Atomics
from tilewright.codegen.gpu.counting import count, sort_tile
from tilewright.codegen.gpu.dot import MatrixMachine, multiply
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.reduce import reduce_tile
from tilewright.codegen.gpu.scan import scan_tile
from tilewright.codegen.trips import trip_count
from tilewright.codegen.uses import Uses
from tilewright.errors import Unsupported
from tilewright.ir.core import Block, Op, Value
from tilewright.layout import register_copies

__all__ = ["BlockWriter", "Machine"]


class Machine(GpuMachine, MatrixMachine, Protocol):
    """What an architecture has to offer."""


class BlockWriter:
    """Writes the blocks of one function."""

    def __init__(self, code: Code, machine: Machine, uses: Uses, placement: Placement) -> None:
        self.code, self.machine = code, machine
        self.uses, self.placement = uses, placement
        self.puller = Puller(code, machine, uses, placement)
        self.memory = GlobalMemory(self.puller, placement)
        self.atomics = Atomics(self.puller, placement)

    def write(self, block: Block) -> None:
        """Write a block at the current place."""
        for op in block.ops:
            if isinstance(op, ops.Load) or not (
                op.results and all(self.uses.is_virtual(v) for v in op.results)
            ):
                with self.code.at(op.location):
                    self._op(op)

    def _op(self, op: Op) -> None:
        match op:
            case ops.Full() | ops.Assume():
                pass
            case ops.Barrier():
                self.puller.shared.barrier()
            case ops.Load() if op.shape:
                self.memory.load(op)
            case ops.Load():
                self.memory.load_scalar(op)
            case ops.Store() if op.pointer.shape:
                self.memory.store(op)
            case ops.Store():
                self.memory.store_scalar(op)
            case ops.Reduce():
                reduce_tile(self.puller, self.placement, op)
            case ops.Scan():
                scan_tile(self.puller, self.placement, op)
            case ops.Histogram():
                count(self.puller, self.placement, op)
            case ops.Sort():
                sort_tile(self.puller, self.placement, op)
            case ops.AtomicRmw() | ops.AtomicCas():
                self.atomics.write(op)
            case ops.Dot():
                multiply(self.puller, self.placement, self.machine, op)
            case ops.For():
                self._for(op)
            case ops.While():
                self._while(op)
            case ops.If():
                self._if(op)
            case _:
                self._scalar(op)

    def _scalar(self, op: Op) -> None:
        puller = self.puller
        match op:
            case ops.ProgramId(axis=axis):
                puller.scalars[op] = Element(self.machine.program_number(axis), 1, 0)
            case ops.NumPrograms(axis=axis):
                puller.scalars[op] = Element(self.machine.program_count(axis), 1, 0)
            case ops.Hint(x=x):
                puller.scalars[op] = puller.scalar(x)
            case ops.Reshape(x=x) if x.shape:
                layout = self.placement.of_elements(x)
                puller.scalars[op] = puller.pull(x, layout, 0)
            case _ if any(v.shape for v in (*op.operands, *op.results)) or not op.results:
                raise Unsupported(f"{op.op_name} on a GPU", location=op.location)
            case _:
                puller.scalars[op] = puller.apply(op, [puller.scalar(v) for v in op.operands])

    # -- what loops and branches hand on ----------------------------------------------------------

    def _slots(self, values: tuple[Value, ...]) -> list[list[str]]:
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
        self, homes: tuple[Value, ...], values: tuple[Value, ...], slots: list[list[str]]
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

    def _fetch(self, values: tuple[Value, ...], slots: list[list[str]]) -> None:
        """Let `values` be what their slots hold now."""
        for value, own in zip(values, slots, strict=True):
            kind, level = llvm_type(value.type.element), self.code.level
            texts = [self.code.assign(f"load {kind}, ptr {slot}") for slot in own]
            elements = [Element(text, 1, level) for text in texts]
            if not value.shape:
                self.puller.scalars[value] = elements[0]
                continue
            layout = self.placement.home(value)
            by_register = dict(zip(self._registers(value), elements, strict=True))
            held = tuple(by_register[first] for first in register_copies(layout))
            self.puller.residents[value] = Resident(layout, held)

    def _place_operands(self, op: ops.For | ops.While) -> None:
        """Before a loop, bring operands that it does not change to where its products read them."""
        inside = {v for region in op.regions for inner in region.walk() for v in inner.results}
        inside.update(v for region in op.regions for v in region.params)
        for inner in (inner for region in op.regions for inner in region.walk()):
            inside.update(v for region in inner.regions for v in region.params)
        for product in (inner for region in op.regions for inner in region.walk()):
            if isinstance(product, ops.Dot):
                plan = self.placement.product(product)
                for value, layout in ((product.a, plan.a), (product.b, plan.b)):
                    if value not in inside:
                        self.puller.pull_all(value, layout)

    # -- loops and branches -----------------------------------------------------------------------

    def _for(self, op: ops.For) -> None:
        code, puller = self.code, self.puller
        kind = llvm_type(op.start.type.element)
        start, stop, step = (puller.scalar(v).text for v in (op.start, op.stop, op.step))
        slots = self._slots(op.results)
        self._keep(op.results, op.inits, slots)
        self._place_operands(op)
        trips = trip_count(code, op, start, stop, step)
        counter = code.alloca("i64")
        head, body, done = code.label("for"), code.label("body"), code.label("end")
        with code.section(), puller.shared.repeated():
            code.line(f"store i64 0, ptr {counter}")
            code.line(f"br label %{head}")
            code.place(head)
            count = code.assign(f"load i64, ptr {counter}")
            more = code.assign(f"icmp ult i64 {count}, {trips}")
            code.line(f"br i1 {more}, label %{body}, label %{done}")
            code.place(body)
            number = count if kind == "i64" else code.assign(f"trunc i64 {count} to {kind}")
            scaled = code.assign(f"mul {kind} {number}, {step}")
            index = code.assign(f"add {kind} {start}, {scaled}")
            puller.scalars[op.body.params[0]] = Element(index, 1, code.level)
            self._fetch(op.body.params[1:], slots)
            self.write(op.body)
            self._keep(op.results, op.body.yields, slots)
            puller.shared.end_iteration()
            code.line(f"store i64 {code.assign(f'add nuw i64 {count}, 1')}, ptr {counter}")
            code.line(f"br label %{head}")
            code.place(done)
        self._fetch(op.results, slots)

    def _while(self, op: ops.While) -> None:
        code, puller = self.code, self.puller
        slots = self._slots(op.results)
        self._keep(op.results, op.inits, slots)
        self._place_operands(op)
        head, body, done = code.label("while"), code.label("body"), code.label("end")
        with code.section(), puller.shared.repeated():
            code.line(f"br label %{head}")
            code.place(head)
            self._fetch(op.condition.params, slots)
            self.write(op.condition)
            more = puller.scalar(op.condition.yields[0]).text
            code.line(f"br i1 {more}, label %{body}, label %{done}")
            code.place(body)
            self._fetch(op.body.params, slots)
            self.write(op.body)
            self._keep(op.results, op.body.yields, slots)
            puller.shared.end_iteration()
            code.line(f"br label %{head}")
            code.place(done)
        self._fetch(op.results, slots)

    def _if(self, op: ops.If) -> None:
        code, puller = self.code, self.puller
        condition = puller.scalar(op.condition).text
        slots = self._slots(op.results)
        then, orelse, done = code.label("then"), code.label("else"), code.label("endif")
        with code.section(), puller.shared.branched() as arms:
            code.line(f"br i1 {condition}, label %{then}, label %{orelse}")
            for label, arm in ((then, op.then), (orelse, op.orelse)):
                with code.section(), arms():
                    code.place(label)
                    self.write(arm)
                    self._keep(op.results, arm.yields, slots)
                    code.line(f"br label %{done}")
            code.place(done)
        self._fetch(op.results, slots)
