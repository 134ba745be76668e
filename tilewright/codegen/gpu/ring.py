"""Copying the tiles of later iterations of a loop to rings in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tilewright import ops
from tilewright.codegen.code import Code
from tilewright.codegen.gpu.machine import CopyMachine
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import Pipeline, copied_memory
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.shared_tile import SharedTile

__all__ = ["Ring"]


class Ring:
    """The tiles of one loop in shared memory, `pipeline.stages` of each load.

    Iteration i reads from place i modulo the number of stages. Each iteration ends one group of
    copies, an empty one if there is nothing left to copy, so that groups count iterations.
    """

    def __init__(
        self,
        puller: Puller,
        placement: Placement,
        machine: CopyMachine,
        memory: GlobalMemory,
        pipeline: Pipeline,
    ) -> None:
        self.puller, self.placement, self.machine = puller, placement, machine
        self.code: Code = puller.code
        self.memory, self.pipeline = memory, pipeline
        self.layouts = {load: copied_memory(load, placement) for load in pipeline.loads}
        self._spans: dict[ops.Load, Span] = {}
        self._reads_async = any(
            placement.product(op).columns
            for op in placement.uses.block_of[pipeline.loads[0]].ops
            if isinstance(op, ops.Dot)
        )

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, shared memory is kept for the tiles."""
        with ExitStack() as stack:
            for load, layout in self.layouts.items():
                size = layout.size_bytes * self.pipeline.stages
                ring = self.puller.shared.ring(size, layout.alignment)
                self._spans[load] = stack.enter_context(ring)
            self._written, self._read = (self.code.alloca("i32") for _ in range(2))
            for slot in (self._written, self._read):
                self.code.line(f"store i32 0, ptr {slot}")
            yield
            self.machine.wait_for_copies(0)
            for load in self.layouts:
                self.puller.tiles.pop(load, None)

    def start_copies(
        self, more: str, prepare: Callable[[], None], advance: Callable[[], None]
    ) -> None:
        """Start the copies of one iteration, if there is one.

        `prepare` writes what their addresses need, `advance` what the next iteration's need.
        """
        code = self.code
        copy, done = code.label("copy"), code.label("copied")
        place = self._advance(self._written)
        code.line(f"br i1 {more}, label %{copy}, label %{done}")
        code.place(copy)
        with code.section():
            prepare()
            for load in self.pipeline.loads:
                self.memory.copy(load, SharedTile(self.layouts[load], self._start(load, place)))
            advance()
        code.line(f"br label %{done}")
        code.place(done)
        self.machine.commit_copies()

    def arrive(self) -> None:
        """Wait for this iteration's tiles, and until no thread reads the next one's place."""
        self.machine.wait_for_copies(self.pipeline.distance - 1)
        if self._reads_async:
            self.machine.fence_async_proxy()
        self.puller.shared.barrier()

    def close_iteration(self) -> None:
        """Let all threads end the product before this iteration's, which read the next place."""
        self.puller.shared.barrier()
        for load in self.layouts:
            del self.puller.tiles[load]

    def read(self) -> None:
        """Let the loads be this iteration's tiles."""
        place = self._advance(self._read)
        for load, layout in self.layouts.items():
            self.puller.tiles[load] = SharedTile(layout, self._start(load, place))

    def _advance(self, slot: str) -> str:
        """Return the place that a slot holds, and go to the next one."""
        code = self.code
        place = code.assign(f"load i32, ptr {slot}")
        after = code.assign(f"add i32 {place}, 1")
        wraps = code.assign(f"icmp eq i32 {after}, {self.pipeline.stages}")
        code.line(f"store i32 {code.assign(f'select i1 {wraps}, i32 0, i32 {after}')}, ptr {slot}")
        return place

    def _start(self, load: ops.Load, place: str) -> str:
        offset = self.code.assign(f"mul i32 {place}, {self.layouts[load].size_bytes}")
        base = self._spans[load].address
        return self.code.assign(f"getelementptr i8, {SHARED} {base}, i32 {offset}")
