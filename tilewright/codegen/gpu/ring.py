"""Copying the tiles of later iterations of a loop to rings in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tilewright import ops
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import CopiedLoad, Pipeline, copied_memory
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.gpu.tensor_copy import TensorCopies, TensorMachine
from tilewright.ir.core import Value

__all__ = ["Ring"]


class Ring:
    """The tiles of one loop in shared memory, `pipeline.stages` of each load.

    Iteration i of all that the loop has ever run uses place i modulo the number of stages. Each
    iteration ends one group of the threads' own copies, an empty one if there is nothing left to
    copy, so that groups count iterations. Tensor copies are counted by a barrier for each place.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        copies: TensorCopies,
        machine: TensorMachine,
        pipeline: Pipeline,
    ) -> None:
        self.memory, self.copies, self.machine, self.pipeline = memory, copies, machine, pipeline
        self.code, self.puller = memory.code, memory.puller
        placement = memory.placement
        self.layouts = {load: copied_memory(load, placement) for load in pipeline.loads}
        self._own = [load for load in pipeline.loads if isinstance(load, ops.Load)]
        self._tensors = [load for load in pipeline.loads if isinstance(load, ops.DescriptorLoad)]
        self._spans: dict[CopiedLoad, Span] = {}
        self._places: dict[Value, SharedTile] = {}
        block = placement.uses.block_of[pipeline.loads[0]]
        products = [op for op in block.ops if isinstance(op, ops.Dot)]
        self._reads_async = any(placement.product(op).columns for op in products)
        self._barriers = copies.barriers.reserve(pipeline.stages) if self._tensors else 0
        self._written, self._read, self._phase = (self.code.alloca("i32") for _ in range(3))
        with self.code.entered():
            for slot in (self._written, self._read, self._phase):
                self.code.line(f"store i32 0, ptr {slot}")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, shared memory is kept for the tiles."""
        with ExitStack() as stack:
            for load, layout in self.layouts.items():
                size = layout.size_bytes * self.pipeline.stages
                ring = self.puller.shared.ring(size, layout.alignment)
                self._spans[load] = stack.enter_context(ring)
            if self._tensors:
                self.machine.fence_async_proxy()
                self.puller.shared.barrier()
            yield
            if self._own:
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
        code.line(f"br i1 {more}, label %{copy}, label %{done}")
        code.place(copy)
        with code.section():
            place, _ = self._advance(self._written)
            prepare()
            for load in self._own:
                self.memory.copy(load, SharedTile(self.layouts[load], self._start(load, place)))
            if self._tensors:
                self._start_tensor_copies(place)
            advance()
        code.line(f"br label %{done}")
        code.place(done)
        if self._own:
            self.machine.commit_copies()

    def _start_tensor_copies(self, place: str) -> None:
        for load in self._tensors:
            self.puller.shared.before_access(load.base, writes=False)
        with self.copies.by_first_thread():
            barrier = self.copies.barriers.address(self._barriers, place)
            size = sum(self.layouts[load].size_bytes for load in self._tensors)
            self.machine.expect_bytes(barrier, size)
            for load in self._tensors:
                tile = SharedTile(self.layouts[load], self._start(load, place))
                self.copies.start_load(load, tile, barrier)

    def arrive(self) -> None:
        """Wait for this iteration's tiles, and until the next place to be written is not read."""
        place, wraps = self._advance(self._read)
        if self._own:
            self.machine.wait_for_copies(self.pipeline.distance - 1)
            if self._reads_async:
                self.machine.fence_async_proxy()
        if self._tensors:
            self._await_tensors(place, wraps)
        if self._own or self.pipeline.deferred is None:
            self.puller.shared.barrier()
        for load, layout in self.layouts.items():
            self._places[load] = SharedTile(layout, self._start(load, place))

    def _await_tensors(self, place: str, wraps: str) -> None:
        code = self.code
        phase = code.assign(f"load i32, ptr {self._phase}")
        self.machine.await_phase(self.copies.barriers.address(self._barriers, place), phase)
        turned = code.assign(f"zext i1 {wraps} to i32")
        code.line(f"store i32 {code.assign(f'xor i32 {phase}, {turned}')}, ptr {self._phase}")

    def read(self) -> None:
        """Let the loads be this iteration's tiles."""
        self.puller.tiles.update(self._places)

    def close_iteration(self) -> None:
        """Let all threads end the product before this iteration's, which read the next place."""
        self.puller.shared.barrier()
        for load in self.layouts:
            del self.puller.tiles[load]

    def _advance(self, slot: str) -> tuple[str, str]:
        """Return the place that a slot holds, and whether the next one is the first again."""
        code = self.code
        place = code.assign(f"load i32, ptr {slot}")
        after = code.assign(f"add i32 {place}, 1")
        wraps = code.assign(f"icmp eq i32 {after}, {self.pipeline.stages}")
        code.line(f"store i32 {code.assign(f'select i1 {wraps}, i32 0, i32 {after}')}, ptr {slot}")
        return place, wraps

    def _start(self, load: CopiedLoad, place: str) -> str:
        offset = self.code.assign(f"mul i32 {place}, {self.layouts[load].size_bytes}")
        base = self._spans[load].address
        return self.code.assign(f"getelementptr i8, {SHARED} {base}, i32 {offset}")
