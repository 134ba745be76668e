"""Writing planned blocks: scalars where they stand, nests, loops and branches."""

from __future__ import annotations

from contextlib import ExitStack

from tilewright import ops
from tilewright.codegen.arithmetic import lower
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.cpu.abi import POLL_INTERVAL, SHARED_CANCELLED_OFFSET, SHARED_POLL_OFFSET
from tilewright.codegen.cpu.effects import AssertRoot, AtomicRoot, print_line, printed
from tilewright.codegen.cpu.nest import Nest, ReduceRoot, StoreRoot, write_nest
from tilewright.codegen.cpu.plan import Planner
from tilewright.codegen.cpu.pull import Coordinate, Puller
from tilewright.codegen.cpu.shape import shape_nest
from tilewright.codegen.cpu.whole import WholeOps
from tilewright.codegen.trips import trip_count
from tilewright.errors import InternalError
from tilewright.ir.core import Block, Op, Value
from tilewright.passes.axis_info import AxisInfo
from tilewright.target import Host

__all__ = ["BlockWriter"]


class BlockWriter:
    """Writes the blocks of one function, as planned."""

    def __init__(self, code: Code, planner: Planner, facts: AxisInfo, host: Host) -> None:
        self.code, self.planner, self.host = code, planner, host
        self.puller = Puller(code, facts)
        self.whole = WholeOps(self.puller, planner.buffers, planner.arena, host)

    def write(self, block: Block) -> None:
        """Write a block's steps at the current place."""
        self.puller.base_level = self.code.level
        for step in self.planner.plans[block].steps:
            if isinstance(step, Nest):
                unroll = shape_nest(step, self.puller, self.planner.uses, self.host.vector_bits)
                write_nest(self.puller, step, unroll=unroll)
                for root in step.roots:
                    if isinstance(root, ReduceRoot | AtomicRoot):
                        self._now_in_memory(root.op.results)
            else:
                self._op(step)
                self._now_in_memory(step.results)

    def _now_in_memory(self, values: tuple[Value, ...]) -> None:
        """Let tiles be read from their buffers from here on."""
        for value in values:
            if value in self.planner.buffers:
                self.puller.buffers[value] = self.planner.buffers[value]

    def _op(self, op: Op) -> None:
        match op:
            case ops.Full() | ops.Barrier() | ops.Assume() | ops.GridDependency():
                pass
            case ops.Dot():
                self.whole.dot(op)
            case ops.Scan():
                self.whole.scan(op)
            case ops.Sort():
                self.whole.sort(op)
            case ops.Histogram():
                self.whole.clear(op)
            case ops.MapElements():
                self._map(op)
            case ops.For():
                self._for(op)
            case ops.While():
                self._while(op)
            case ops.If():
                self._if(op)
            case ops.Print():
                self._print(op)
            case _:
                self._scalar(op)

    # -- scalars ----------------------------------------------------------------------------------

    def _scalar(self, op: Op) -> None:
        puller, code = self.puller, self.code
        match op:
            case ops.ProgramId(axis=axis):
                puller.scalars[op] = Element(f"%pid{axis}", 1, 0)
            case ops.NumPrograms(axis=axis):
                puller.scalars[op] = Element(f"%grid{axis}", 1, 0)
            case ops.Store():
                StoreRoot(op).finish(puller, (), puller.scalar(op.value))
            case ops.AtomicRmw() | ops.AtomicCas():
                puller.scalars[op] = AtomicRoot(op).finish(puller, (), None)
            case ops.Assert():
                root = AssertRoot(op, self.planner.assertions.index(op))
                root.finish(puller, (), None)
                root.leave(puller)
            case ops.Load():
                puller.scalars[op] = puller.load(op, ())
            case ops.Hint(x=x):
                puller.scalars[op] = puller.scalar(x)
            case ops.PointerAdd():
                elements = [puller.scalar(v) for v in op.operands]
                puller.scalars[op] = puller.pointer_add(op, *elements)
            case _ if any(v.shape for v in op.operands):
                for result in op.results:
                    if not result.shape:
                        puller.scalars[result] = puller.compute(result, ())
            case _:
                texts = [puller.scalar(v).text for v in op.operands]
                level = code.level
                puller.scalars[op] = Element(lower(code, op, texts, 1, level), 1, level)

    def _print(self, op: ops.Print) -> None:
        if not op.values:
            prefix = op.prefix.rstrip(": ").replace("%", "%%")
            print_line(self.puller, f"pid (%d, %d, %d){prefix}\n", [])
        for number, value in enumerate(op.values):
            if not value.shape:
                printed(self.puller, op, number, ())

    # -- control flow -----------------------------------------------------------------------------

    def _carry(self, inits: tuple[Value, ...]) -> list[str]:
        """Return a stack slot for each carried scalar ("" for tiles, which have buffers)."""
        slots = []
        for value in inits:
            if value.shape:
                slots.append("")
                continue
            kind = llvm_type(value.type.element)
            slots.append(self.code.alloca(kind))
            self.code.line(f"store {kind} {self.puller.scalar(value).text}, ptr {slots[-1]}")
        return slots

    def _load_slots(self, values: tuple[Value, ...], slots: list[str]) -> None:
        for value, slot in zip(values, slots, strict=True):
            if slot:
                text = self.code.assign(f"load {llvm_type(value.type.element)}, ptr {slot}")
                self.puller.scalars[value] = Element(text, 1, self.code.level)

    def _store_slots(self, values: tuple[Value, ...], slots: list[str]) -> None:
        texts = [
            self.puller.scalar(v).text if s else "" for v, s in zip(values, slots, strict=True)
        ]
        for value, slot, text in zip(values, slots, texts, strict=True):
            if slot:
                self.code.line(f"store {llvm_type(value.type.element)} {text}, ptr {slot}")

    def _for(self, op: ops.For) -> None:
        code, puller = self.code, self.puller
        kind = llvm_type(op.start.type.element)
        start, stop, step = (puller.scalar(v).text for v in (op.start, op.stop, op.step))
        slots = self._carry(op.inits)
        trips = trip_count(code, op, start, stop, step)
        counter = code.alloca("i64")
        head, body, done = code.label("for"), code.label("body"), code.label("end")
        with code.section():
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
            self._now_in_memory(op.body.params)
            self._load_slots(op.body.params[1:], slots)
            self.write(op.body)
            self._store_slots(op.body.yields, slots)
            code.line(f"store i64 {code.assign(f'add nuw i64 {count}, 1')}, ptr {counter}")
            code.line(f"br label %{head}")
            code.place(done)
        puller.base_level = code.level
        self._load_slots(op.results, slots)

    def _while(self, op: ops.While) -> None:
        code, puller = self.code, self.puller
        slots = self._carry(op.inits)
        self._now_in_memory(op.condition.params + op.body.params)
        counter = code.alloca("i64")
        head, body, done = code.label("while"), code.label("body"), code.label("end")
        with code.section():
            code.line(f"store i64 0, ptr {counter}")
            code.line(f"br label %{head}")
            code.place(head)
            self._stay_responsive(counter)
            self._load_slots(op.condition.params, slots)
            self.write(op.condition)
            more = puller.scalar(op.condition.yields[0]).text
            code.line(f"br i1 {more}, label %{body}, label %{done}")
            code.place(body)
            for before, after in zip(op.condition.params, op.body.params, strict=True):
                if not after.shape:
                    puller.scalars[after] = puller.scalars[before]
            self.write(op.body)
            self._store_slots(op.body.yields, slots)
            code.line(f"br label %{head}")
            code.place(done)
        puller.base_level = code.level
        self._load_slots(op.results, slots)

    def _stay_responsive(self, counter: str) -> None:
        """A loop without a known end stops when the launch has failed or been interrupted."""
        code = self.code
        state = code.assign(f"getelementptr i8, ptr %shared, i64 {SHARED_CANCELLED_OFFSET}")
        flags = code.assign(f"load atomic i64, ptr {state} monotonic, align 8")
        fine = code.label("fine")
        code.line(f"br i1 {code.assign(f'icmp eq i64 {flags}, 0')}, label %{fine}, label %exit")
        code.place(fine)
        count = code.assign(f"add i64 {code.assign(f'load i64, ptr {counter}')}, 1")
        code.line(f"store i64 {count}, ptr {counter}")
        due = code.assign(f"icmp eq i64 {code.assign(f'urem i64 {count}, {POLL_INTERVAL}')}, 0")
        poll, after = code.label("poll"), code.label("go")
        code.line(f"br i1 {due}, label %{poll}, label %{after}")
        code.place(poll)
        slot = code.assign(f"getelementptr i8, ptr %shared, i64 {SHARED_POLL_OFFSET}")
        code.line(f"call void {code.assign(f'load ptr, ptr {slot}')}(ptr %context)")
        code.line(f"br label %{after}")
        code.place(after)

    def _if(self, op: ops.If) -> None:
        code, puller = self.code, self.puller
        condition = puller.scalar(op.condition).text
        slots = ["" if r.shape else code.alloca(llvm_type(r.type.element)) for r in op.results]
        then, orelse, done = code.label("then"), code.label("else"), code.label("endif")
        with code.section():  # what the arms hoist out goes before the branch
            code.line(f"br i1 {condition}, label %{then}, label %{orelse}")
            for label, arm in ((then, op.then), (orelse, op.orelse)):
                with code.section():
                    code.place(label)
                    self.write(arm)
                    self._store_slots(arm.yields, slots)
                    code.line(f"br label %{done}")
            code.place(done)
        puller.base_level = code.level
        self._load_slots(op.results, slots)

    def _map(self, op: ops.MapElements) -> None:
        """Run the body for one element after the other."""
        puller = self.puller
        lanes, puller.lanes = puller.lanes, 1
        with ExitStack() as loops:
            index = []
            for size in op.inputs[0].shape:
                place = loops.enter_context(self.code.counted_loop("0", str(size), "1"))
                index.append(Coordinate(place, self.code.level))
            here = tuple(index)
            for param, value in zip(op.body.params, op.inputs, strict=True):
                puller.scalars[param] = puller.pull(value, here)
            self.write(op.body)
            for result, value in zip(op.results, op.body.yields, strict=True):
                puller.write(self.planner.buffers[result], here, puller.scalar(value))
        puller.lanes, puller.base_level = lanes, self.code.level

    def check_finished(self) -> None:
        """Raise if sections were left open."""
        if self.code.level:
            raise InternalError("a section of code was left open")
