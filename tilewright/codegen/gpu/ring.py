"""Copying the tiles of later iterations of a loop to rings in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from tilewright import ops
from tilewright.codegen.code import Code
from tilewright.codegen.gpu.barriers import BarrierMachine
from tilewright.codegen.gpu.block_copies import BlockCopies
from tilewright.codegen.gpu.held_loads import HeldLoads
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import (
    CopiedLoad,
    Pipeline,
    by_one_thread,
    copied_memory,
    origin_of,
)
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.scalar_ring import ScalarRing
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.ir.core import Value

__all__ = ["Ring", "ring_of"]


def ring_of(
    memory: GlobalMemory, copies: BlockCopies, machine: BarrierMachine, pipeline: Pipeline
) -> Ring:
    """Return the ring of a loop: one that warps go round at their own pace, where there is one."""
    flows = _flows(pipeline, memory.placement)
    return (FlowingRing if flows else Ring)(memory, copies, machine, pipeline)


def _flows(pipeline: Pipeline, placement: Placement) -> bool:
    """Whether warps need not meet: one thread asks for all, or products run while all copy.

    Behind a deferred product all warps would wait for the slowest to copy: they would meet.
    """
    if all(by_one_thread(load, placement) for load in pipeline.loads):
        return True
    alone = pipeline.deferred is None and not pipeline.held
    return alone and _has_running_products(pipeline, placement)


def _has_running_products(pipeline: Pipeline, placement: Placement) -> bool:
    block = placement.uses.block_of[pipeline.loads[0]]
    products = [op for op in block.ops if isinstance(op, ops.Dot)]
    return any(placement.product(op).runs_on for op in products)


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

    def next(self) -> tuple[str, str]:
        """Return the place whose turn it is and its phase."""
        place = self.code.assign(f"load i32, ptr {self._place}")
        return place, self.code.assign(f"load i32, ptr {self._phase}")

    def take(self) -> tuple[str, str]:
        """Return the place whose turn it is and its phase, and go on."""
        code = self.code
        place, phase = self.next()
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
        copies: BlockCopies,
        machine: BarrierMachine,
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
        self._scalars = ScalarRing(memory, pipeline.scalars, pipeline.stages)
        self._copies = bool(self._own or pipeline.scalars)  # threads do, by themselves
        self._is_by_threads = bool(self._copies or tiles)
        self._spans: dict[CopiedLoad, Span] = {}
        self._reads_async = _has_running_products(pipeline, placement)
        arrivals = self._arrivals()
        self._full = copies.barriers.reserve(pipeline.stages, arrivals) if arrivals else None
        self._written = Turn(self.code, pipeline.stages, phase=1)
        self._read = Turn(self.code, pipeline.stages)

    def _arrivals(self) -> int:
        """How many threads arrive on the barrier of a place that has been filled."""
        return int(bool(self._asked))

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
        with self._scalars.open(), ExitStack() as stack:
            for load, layout in self.layouts.items():
                size = layout.stride_bytes * self.pipeline.stages
                with self.puller.shared.at(load.location):
                    ring = self.puller.shared.ring(size, layout.alignment)
                    self._spans[load] = stack.enter_context(ring)
            for load in self._asked:
                self.puller.shared.before_access(
                    origin_of(load), writes=False, is_asynchronous=True
                )
            if self._asked and self.puller.shared.is_written:
                self.machine.fence_async_proxy()
                self.puller.shared.barrier()
            yield
            for load in self._asked:
                self.puller.shared.before_access(
                    origin_of(load), writes=False, is_asynchronous=True
                )
            self._leave()

    def _leave(self) -> None:
        """Leave the loop with nothing under way."""
        if self._copies:
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
            self._fill(place, phase)
            advance()
        self._end_group()

    def _fill(self, place: str, phase: str) -> None:
        """Start the copies to a place, which is filled for the first time if the phase is 1."""
        self._copy_own(place)
        if self._held is not None:
            self._held.load(place)
        if self._full is not None:
            with self.copies.by_first_warp():
                self._ask_for(self._full.address(place), place)

    def _copy_own(self, place: str) -> None:
        for load in self._own:
            self.memory.copy(load, SharedTile(self.layouts[load], self._start(load, place)))
        self._scalars.copy(place)

    def _end_group(self) -> None:
        """End the group of an iteration's copies, if they are counted by groups."""
        if self._copies:
            self.machine.commit_copies()

    def store_held(self) -> None:
        """Store what the copies started last have left in registers."""
        if self._held is not None:
            self._held.store(self._start)

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
        offset = self.code.assign(f"mul i32 {place}, {self.layouts[load].stride_bytes}")
        base = self._spans[load].address
        return self.code.assign(f"getelementptr i8, {SHARED} {base}, i32 {offset}")

    # -- iterations -------------------------------------------------------------------------------

    @property
    def starts_inside(self) -> bool:
        """Whether copies start inside an iteration, behind the products that open it."""
        return False

    def begin(self, start_copies: Callable[[], None]) -> None:
        """Begin an iteration: its tiles have arrived."""
        place, phase = self._read.take()
        self._await_tiles(place, phase)
        tiles: dict[Value, SharedTile] = {
            load: SharedTile(layout, self._start(load, place))
            for load, layout in self.layouts.items()
        }
        self._meet_first(start_copies)
        self._scalars.read(place)
        self.puller.tiles.update(tiles)

    def _await_tiles(self, place: str, phase: str) -> None:
        """Wait until the tiles of a place have arrived, as far as this thread knows."""
        if self.pipeline.deferred is None:
            self.store_held()
        if self._copies:
            self.machine.wait_for_copies(self.pipeline.stages - 2)
        if self._is_by_threads and self._reads_async:
            self.machine.fence_async_proxy()
        if self._full is not None:
            self.machine.await_phase(self._full.address(place), phase)

    def _meet_first(self, start_copies: Callable[[], None]) -> None:
        """Let all threads see the tiles; the place of the iteration before is free then."""
        if self._is_by_threads or self.pipeline.deferred is None:
            self.puller.shared.barrier()
        if self.pipeline.deferred is None:
            start_copies()

    def during(self, start_copies: Callable[[], None]) -> None:
        """Write what is done when all products of the iteration have been started."""

    def end(self, start_copies: Callable[[], None]) -> None:
        """End an iteration."""
        self._scalars.forget()
        for load in self.layouts:
            del self.puller.tiles[load]
        if self.pipeline.deferred is not None:
            self.store_held()
            self.puller.shared.barrier()  # the product before the running one has ended everywhere
            start_copies()


# Longer iterations hide the fence, and would wait for copies that are not there yet.
_SHORT_ITERATION_BYTES = 16 << 10


class FlowingRing(Ring):
    """A ring that warps go round at their own pace.

    Each warp says that it has read a place on a second barrier, for which those who start the
    copies wait. So warps that multiply and warps that do other work overlap. The threads' own
    copies arrive on the full barrier themselves. They start while the last products of an iteration
    run, and fill the place of the iteration before: by then other warps have read that, too. Where
    products read such copies and an iteration is short, the fence between the two is ahead as well:
    a thread waits for the next iteration's tiles while the last products run, if their copies have
    been started, and lets its products see them.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        copies: BlockCopies,
        machine: BarrierMachine,
        pipeline: Pipeline,
    ) -> None:
        super().__init__(memory, copies, machine, pipeline)
        warps = memory.placement.num_warps
        self._empty = copies.barriers.reserve(pipeline.stages, arrivals=warps)
        self._left = Turn(self.code, pipeline.stages)
        own_bytes = sum(self.layouts[load].size_bytes for load in self._own)
        self._fences_ahead = self._reads_async and 0 < own_bytes <= _SHORT_ITERATION_BYTES
        self._had = self.code.alloca("i1")
        flags = [self._had]
        if self._fences_ahead:
            self._is_fenced = self.code.alloca("i1")
            self._under_way = self.code.alloca("i32")  # iterations whose copies have been started
            flags.append(self._is_fenced)
        with self.code.entered():
            for flag in flags:
                self.code.line(f"store i1 false, ptr {flag}")
            if self._fences_ahead:
                self.code.line(f"store i32 0, ptr {self._under_way}")

    def _arrivals(self) -> int:
        placement = self.memory.placement
        threads = placement.num_warps * self.machine.warp_size
        return int(bool(self._asked)) + (threads if self._own else 0)

    @property
    def starts_inside(self) -> bool:
        # Warps that wait for others to give back a place meanwhile have something to do.
        return self.pipeline.deferred is None and not self._own

    def _leave(self) -> None:
        """All copies have been waited for."""

    @property
    def meets(self) -> bool:
        return False

    def starting(self) -> AbstractContextManager[None]:
        return nullcontext() if self._own else self.copies.by_first_warp()

    def _fill(self, place: str, phase: str) -> None:
        self.machine.await_phase(self._empty.address(place), phase)
        assert self._full is not None
        full = self._full.address(place)
        if self._own:
            self._copy_own(place)
            self.machine.arrive_behind_copies(full)
            if self._fences_ahead:
                self._count(1)
        if self._asked:
            with self.copies.by_first_warp() if self._own else nullcontext():
                self._ask_for(full, place)

    def _end_group(self) -> None:
        """Copies are counted by barriers."""

    def _await_tiles(self, place: str, phase: str) -> None:
        assert self._full is not None
        self.machine.await_phase(self._full.address(place), phase)
        if self._fences_ahead:
            code = self.code
            self._count(-1)
            fenced = code.assign(f"load i1, ptr {self._is_fenced}")
            with code.guarded(code.assign(f"xor i1 {fenced}, true")):
                self.machine.fence_async_proxy()
            code.line(f"store i1 false, ptr {self._is_fenced}")
        elif self._own and self._reads_async:
            self.machine.fence_async_proxy()

    def _count(self, change: int) -> None:
        before = self.code.assign(f"load i32, ptr {self._under_way}")
        after = self.code.assign(f"add i32 {before}, {change}")
        self.code.line(f"store i32 {after}, ptr {self._under_way}")

    def _fence_ahead(self) -> None:
        """Let products see the tiles of the next iteration, if they have been asked for."""
        code = self.code
        assert self._full is not None
        place, phase = self._read.next()
        left = code.assign(f"load i32, ptr {self._under_way}")
        are_coming = code.assign(f"icmp ne i32 {left}, 0")
        with code.guarded(are_coming):
            self.machine.await_phase(self._full.address(place), phase)
            self.machine.fence_async_proxy()
        code.line(f"store i1 {are_coming}, ptr {self._is_fenced}")

    def _meet_first(self, start_copies: Callable[[], None]) -> None:
        """Nobody waits for anybody."""

    def during(self, start_copies: Callable[[], None]) -> None:
        if self._own:
            if self._fences_ahead:
                self._fence_ahead()
            start_copies()

    def end(self, start_copies: Callable[[], None]) -> None:
        self._scalars.forget()
        for load in self.layouts:
            del self.puller.tiles[load]
        if self.pipeline.deferred is None:
            self._give_back()
        else:
            self._give_back_earlier()
        if not self._own and not self.starts_inside:
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
