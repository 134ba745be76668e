"""What starts the copies of a loop's later iterations: the loop's addresses, computed ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.gpu.carried import Carried
from tilewright.codegen.gpu.pipeline import Nest, Pipeline
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.ring import Ring
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.trips import trip_count
from tilewright.ir.core import Op, Value

__all__ = ["Bounds", "LoopCopier", "NestCopier", "OpWriter"]


class OpWriter(Protocol):
    """Writes the ops of a function."""

    code: Code
    puller: Puller

    def write(self, written: Iterable[Op]) -> None:
        """Write ops at the current place."""


class Bounds:
    """The first number, the step and the number of iterations of a loop, in the code."""

    def __init__(self, puller: Puller, op: ops.For) -> None:
        self.code, self.kind = puller.code, llvm_type(op.start.type.element)
        self.start, stop, self.step = (puller.scalar(v).text for v in (op.start, op.stop, op.step))
        self.trips = trip_count(self.code, op, self.start, stop, self.step)

    def index(self, count: str) -> Element:
        """Return the number of iteration `count`."""
        return index_of(self.code, self.kind, self.start, self.step, count)


def index_of(code: Code, kind: str, start: str, step: str, count: str) -> Element:
    """Return the number that a loop counts to in iteration `count`."""
    number = count if kind == "i64" else code.assign(f"trunc i64 {count} to {kind}")
    scaled = code.assign(f"mul {kind} {number}, {step}")
    return Element(code.assign(f"add {kind} {start}, {scaled}"), 1, code.level)


class _Counter:
    """A number of iterations, in a stack slot."""

    def __init__(self, code: Code) -> None:
        self.code, self.slot = code, code.alloca("i64")

    def set(self, text: str) -> None:
        self.code.line(f"store i64 {text}, ptr {self.slot}")

    def get(self) -> str:
        return self.code.assign(f"load i64, ptr {self.slot}")

    def take(self) -> str:
        """Return the number, and count on."""
        count = self.get()
        self.set(self.code.assign(f"add nuw i64 {count}, 1"))
        return count


@contextmanager
def _aside(puller: Puller, pipeline: Pipeline, level: int) -> Iterator[None]:
    """Write inside what computes the loop's values for another iteration: they are put back.

    `level` is the section around the loop's body.
    """
    scalars, residents = dict(puller.scalars), dict(puller.residents)
    tiles: dict[Value, SharedTile] = {
        load: puller.tiles.pop(load) for load in pipeline.loads if load in puller.tiles
    }
    with puller.code.forgotten(level), puller.code.section():
        yield
    puller.tiles.update(tiles)
    puller.scalars.clear()
    puller.scalars.update(scalars)
    puller.residents.clear()
    puller.residents.update(residents)


class LoopCopier:
    """Starts the copies of one loop, an iteration at a time."""

    def __init__(
        self, blocks: OpWriter, carried: Carried, op: ops.For, pipeline: Pipeline, ring: Ring,
        bounds: Bounds,
    ) -> None:  # fmt: skip
        self.blocks, self.carried, self.op = blocks, carried, op
        self.pipeline, self.ring, self.bounds = pipeline, ring, bounds
        self.values = _Ahead(carried, op, pipeline.carried)
        self.values.start()
        self.counter = _Counter(blocks.code)
        self.counter.set("0")
        self.level = blocks.code.level

    def start_copies(self) -> None:
        """Start the copies of one more iteration, if there is one."""
        code = self.blocks.code
        with _aside(self.blocks.puller, self.pipeline, self.level), self.ring.starting():
            count = self.counter.take()
            more = code.assign(f"icmp ult i64 {count}, {self.bounds.trips}")
            self.blocks.puller.scalars[self.op.body.params[0]] = self.bounds.index(count)
            self.values.fetch()
            self.ring.start_copies(
                more, lambda: self.blocks.write(self.pipeline.ahead), self.values.advance
            )


class _Ahead:
    """Some of the values that a loop carries, as they are in a later iteration."""

    def __init__(self, carried: Carried, op: ops.For, numbers: Sequence[int]) -> None:
        self.carried = carried
        self.homes = [op.results[number] for number in numbers]
        self.params = [op.body.params[number + 1] for number in numbers]
        self.inits = [op.inits[number] for number in numbers]
        self.yields = [op.body.yields[number] for number in numbers]
        self.slots = carried.slots(self.homes)

    def start(self) -> None:
        self.carried.keep(self.homes, self.inits, self.slots)

    def fetch(self) -> None:
        self.carried.fetch(self.params, self.slots)

    def advance(self) -> None:
        self.carried.keep(self.homes, self.yields, self.slots)


class NestCopier:
    """Starts the copies of a loop in a loop, and goes on to the next outer iteration by itself."""

    def __init__(
        self,
        blocks: OpWriter,
        carried: Carried,
        op: ops.For,
        nest: Nest,
        ring: Ring,
        bounds: Bounds,
    ) -> None:
        self.blocks, self.op, self.nest, self.ring, self.bounds = blocks, op, nest, ring, bounds
        self.code: Code = blocks.code
        self.carried = carried
        self.outer = _Ahead(carried, op, nest.carried)
        self.inner = _Ahead(carried, nest.inner, nest.pipeline.carried)
        self.live = carried.slots(nest.live)
        self.kind = llvm_type(nest.inner.start.type.element)
        self.first, self.step = (self.code.alloca(self.kind) for _ in range(2))
        self.outer_count, self.count, self.trips = (_Counter(self.code) for _ in range(3))
        self.outer.start()
        for counter in (self.outer_count, self.count, self.trips):
            counter.set("0")
        self.level = self.code.level

    def start_copies(self) -> None:
        """Start the copies of one more inner iteration, if there is one."""
        code, kind = self.code, self.kind
        with _aside(self.blocks.puller, self.nest.pipeline, self.level), self.ring.starting():
            self._find_iteration()
            trips, count = self.trips.get(), self.count.take()
            more = code.assign(f"icmp ult i64 {count}, {trips}")
            first = code.assign(f"load {kind}, ptr {self.first}")
            step = code.assign(f"load {kind}, ptr {self.step}")
            self.carried.fetch(self.nest.live, self.live)
            index = index_of(code, kind, first, step, count)
            self.blocks.puller.scalars[self.nest.inner.body.params[0]] = index
            self.inner.fetch()
            pipeline = self.nest.pipeline
            self.ring.start_copies(
                more, lambda: self.blocks.write(pipeline.ahead), self.inner.advance
            )

    def _find_iteration(self) -> None:
        """Go on to the next outer iteration as long as the inner loop has ended."""
        code = self.code
        check, compute, ready = (code.label(name) for name in ("ahead", "next", "ready"))
        with code.section():
            code.line(f"br label %{check}")
            code.place(check)
            ended = code.assign(f"icmp uge i64 {self.count.get()}, {self.trips.get()}")
            left = code.assign(f"icmp ult i64 {self.outer_count.get()}, {self.bounds.trips}")
            goes = code.assign(f"and i1 {ended}, {left}")
            code.line(f"br i1 {goes}, label %{compute}, label %{ready}")
            code.place(compute)
            with code.section():
                self._compute()
            code.line(f"br label %{check}")
            code.place(ready)

    def _compute(self) -> None:
        """Compute what the inner loop of the next outer iteration takes."""
        puller = self.blocks.puller
        puller.scalars[self.op.body.params[0]] = self.bounds.index(self.outer_count.take())
        self.outer.fetch()
        self.blocks.write(self.nest.ahead)
        inner = Bounds(puller, self.nest.inner)
        self.code.line(f"store {self.kind} {inner.start}, ptr {self.first}")
        self.code.line(f"store {self.kind} {inner.step}, ptr {self.step}")
        self.trips.set(inner.trips)
        self.count.set("0")
        self.inner.start()
        self.carried.keep(self.nest.live, self.nest.live, self.live)
        self.outer.advance()
