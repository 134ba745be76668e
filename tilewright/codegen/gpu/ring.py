"""Copying the tiles of later iterations of a loop to rings in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from tilewright import ops
from tilewright.codegen.code import Code
from tilewright.codegen.gpu.held_loads import HeldLoads
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import (
    CopiedLoad,
    Pipeline,
    by_one_thread,
    copied_memory,
    origin_of,
)
from tilewright.codegen.gpu.scalars_ahead import ScalarsAhead
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.gpu.tensor_copy import Barriers, TensorCopies, TensorMachine
from tilewright.ir.core import Value

__all__ = ["Ring", "ring_of"]


def ring_of(
    memory: GlobalMemory, copies: TensorCopies, machine: TensorMachine, pipeline: Pipeline
) -> Ring:
    """Return the ring of a loop: warps go at their own pace if one thread asks for all copies."""
    whole = all(by_one_thread(load, memory.placement) for load in pipeline.loads)
    return (FlowingRing if whole else Ring)(memory, copies, machine, pipeline)


class Turn:
    """A place in a ring that is used in turn, and how often the ring has been gone round, mod 2.

    It lives as long as the function runs, since barriers keep their phases.
    """

    def __init__(self, code: Code, stages: int, phase: int = 0) -> None:
        self.code, self.stages = code, stages
        self._place, self._phase = (code.alloca("i32") for _ in range(2))
        with code.entered():
            code.line(f"store i32 0, ptr {self._place}")
            code.line(f"store i32 {phase}, ptr {self._phase}")

    def take(self) -> tuple[str, str]:
        """Return the place whose turn it is and its phase, and go on."""
        code = self.code
        place = code.assign(f"load i32, ptr {self._place}")
        phase = code.assign(f"load i32, ptr {self._phase}")
        after = code.assign(f"add i32 {place}, 1")
        wraps = code.assign(f"icmp eq i32 {after}, {self.stages}")
        following = code.assign(f"select i1 {wraps}, i32 0, i32 {after}")
        code.line(f"store i32 {following}, ptr {self._place}")
        turned = code.assign(f"zext i1 {wraps} to i32")
        code.line(f"store i32 {code.assign(f'xor i32 {phase}, {turned}')}, ptr {self._phase}")
        return place, phase


class Ring:
    """The tiles of one loop in shared memory, `pipeline.stages` of each load.

    Iteration i of all that the loop has ever run uses place i modulo the number of stages. Each
    iteration ends one group of the threads' own copies, an empty one if there is nothing left to
    copy, so that groups count iterations. What one thread asks for is counted by a barrier for each
    place. Held loads are stored before the next iteration's copies start. All threads meet before a
    place is written again.
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
        copied = [load for load in pipeline.loads if load not in pipeline.held]
        self._asked = [load for load in copied if by_one_thread(load, placement)]
        self._own = [o for o in copied if isinstance(o, ops.Load) and o not in self._asked]
        tiles = {load: self.layouts[load] for load in pipeline.held}
        self._held = HeldLoads(memory, pipeline.held, tiles) if tiles else None
        self._scalars = ScalarsAhead(memory, pipeline.scalars, self.ahead)
        self._is_by_threads = bool(self._own or tiles)
        self._spans: dict[CopiedLoad, Span] = {}
        block = placement.uses.block_of[pipeline.loads[0]]
        products = [op for op in block.ops if isinstance(op, ops.Dot)]
        self._reads_async = any(placement.product(op).columns for op in products)
        self._full = copies.barriers.reserve(pipeline.stages) if self._asked else None
        self._written = Turn(self.code, pipeline.stages, phase=1)
        self._read = Turn(self.code, pipeline.stages)

    @property
    def ahead(self) -> int:
        """How many iterations' copies start before the loop."""
        return self.pipeline.stages - 1

    @property
    def meets(self) -> bool:
        """Whether all threads meet between two iterations, before they start anything else."""
        return True

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, shared memory is kept for the tiles."""
        with ExitStack() as stack:
            for load, layout in self.layouts.items():
                size = layout.size_bytes * self.pipeline.stages
                with self.puller.shared.at(load.location):
                    ring = self.puller.shared.ring(size, layout.alignment)
                    self._spans[load] = stack.enter_context(ring)
            for load in self._asked:
                self.puller.shared.before_access(origin_of(load), writes=False)
            if self._asked and self.puller.shared.is_written:
                self.machine.fence_async_proxy()
                self.puller.shared.barrier()
            yield
            for load in self._asked:
                self.puller.shared.before_access(origin_of(load), writes=False)
            if self._own:
                self.machine.wait_for_copies(0)

    # -- copies -----------------------------------------------------------------------------------

    def start_copies(
        self, more: str, prepare: Callable[[], None], advance: Callable[[], None]
    ) -> None:
        """Start the copies of one iteration, if there is one.

        `prepare` writes what their addresses need, `advance` what the next iteration's need.
        """
        self._scalars.hide()
        with self.code.guarded(more):
            place, phase = self._written.take()
            prepare()
            for load in self._own:
                self.memory.copy(load, SharedTile(self.layouts[load], self._start(load, place)))
            if self._held is not None:
                self._held.load(place)
            if self._full is not None:
                self._ask(self._full, place, phase)
            self._scalars.load()
            advance()
        if self._own:
            self.machine.commit_copies()

    def store_held(self) -> None:
        """Store what the copies started last have left in registers."""
        if self._held is not None:
            self._held.store(self._start)

    def _ask(self, full: Barriers, place: str, phase: str) -> None:
        with self.copies.by_first_warp():
            self._ask_for(full.address(place), place)

    def _ask_for(self, barrier: str, place: str) -> None:
        size = sum(self.layouts[load].size_bytes for load in self._asked)
        elected = self.machine.elected()
        self.machine.expect_bytes(barrier, size, elected)
        for load in self._asked:
            tile = SharedTile(self.layouts[load], self._start(load, place))
            self.copies.start_load(load, tile, barrier, elected)

    def starting(self) -> AbstractContextManager[None]:
        """Inside, what starts copies is written for those threads that do."""
        return nullcontext()

    def _start(self, load: CopiedLoad, place: str) -> str:
        offset = self.code.assign(f"mul i32 {place}, {self.layouts[load].size_bytes}")
        base = self._spans[load].address
        return self.code.assign(f"getelementptr i8, {SHARED} {base}, i32 {offset}")

    # -- iterations -------------------------------------------------------------------------------

    def begin(self, start_copies: Callable[[], None]) -> None:
        """Begin an iteration: its tiles have arrived."""
        place, phase = self._read.take()
        if self.pipeline.deferred is None:
            self.store_held()
        if self._own:
            self.machine.wait_for_copies(self.pipeline.stages - 2)
        if self._is_by_threads and self._reads_async:
            self.machine.fence_async_proxy()
        if self._full is not None:
            self.machine.await_phase(self._full.address(place), phase)
        tiles: dict[Value, SharedTile] = {
            load: SharedTile(layout, self._start(load, place))
            for load, layout in self.layouts.items()
        }
        self._scalars.take()
        self._meet_first(start_copies)
        self.puller.tiles.update(tiles)

    def _meet_first(self, start_copies: Callable[[], None]) -> None:
        """Let all threads see the tiles; the place of the iteration before is free then."""
        if self._is_by_threads or self.pipeline.deferred is None:
            self.puller.shared.barrier()
        if self.pipeline.deferred is None:
            start_copies()

    def end(self, start_copies: Callable[[], None]) -> None:
        """End an iteration."""
        self._scalars.forget()
        for load in self.layouts:
            del self.puller.tiles[load]
        if self.pipeline.deferred is not None:
            self.store_held()
            self.puller.shared.barrier()  # the product before the running one has ended everywhere
            start_copies()


class FlowingRing(Ring):
    """A ring that warps go round at their own pace.

    Each warp says that it has read a place on a second barrier, for which the thread that starts
    the copies waits. So warps that multiply and warps that do other work overlap.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        copies: TensorCopies,
        machine: TensorMachine,
        pipeline: Pipeline,
    ) -> None:
        super().__init__(memory, copies, machine, pipeline)
        warps = memory.placement.num_warps
        self._empty = copies.barriers.reserve(pipeline.stages, arrivals=warps)
        self._left = Turn(self.code, pipeline.stages)
        self._had = self.code.alloca("i1")
        with self.code.entered():
            self.code.line(f"store i1 false, ptr {self._had}")

    @property
    def ahead(self) -> int:
        return self.pipeline.stages - (self.pipeline.deferred is not None)

    @property
    def meets(self) -> bool:
        return False

    def starting(self) -> AbstractContextManager[None]:
        return self.copies.by_first_warp()

    def _ask(self, full: Barriers, place: str, phase: str) -> None:
        self.machine.await_phase(self._empty.address(place), phase)
        self._ask_for(full.address(place), place)

    def _meet_first(self, start_copies: Callable[[], None]) -> None:
        """Nobody waits for anybody."""

    def end(self, start_copies: Callable[[], None]) -> None:
        self._scalars.forget()
        for load in self.layouts:
            del self.puller.tiles[load]
        if self.pipeline.deferred is None:
            self._give_back()
        else:
            self._give_back_earlier()
        start_copies()

    def _give_back_earlier(self) -> None:
        """Give back the place of the iteration before, if there was one, in this loop or earlier.

        So the last iteration's place is given back when the loop is run again. To arrive on a
        barrier right behind the wait for the last product confuses the assembler (C7514).
        """
        code = self.code
        with code.guarded(code.assign(f"load i1, ptr {self._had}")):
            self._give_back()
        code.line(f"store i1 true, ptr {self._had}")

    def _give_back(self) -> None:
        """Say that this warp has read a place for the last time."""
        place, _ = self._left.take()
        self.machine.warp_barrier()
        self.machine.arrive_by_warp(self._empty.address(place))
