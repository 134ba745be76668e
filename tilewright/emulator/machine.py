"""The state of some thread blocks that run side by side: registers, memories, barriers.

All threads of all blocks lie in one row; a register is an array with a value for each of them.
Warps are 32 neighbours in that row; a block that is no multiple of 32 is filled up with threads
that have ended already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilewright.emulator.asynchrony import AsyncState
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import LANES, Group, Outcome, Signal, State, lane_bits
from tilewright.emulator.memory import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    GlobalMemory,
    OutOfBounds,
    typed,
    window_of,
)
from tilewright.emulator.profile import Profile
from tilewright.emulator.program import EmulatorError, Instruction, Kernel, Variable
from tilewright.emulator.races import RaceDetector

__all__ = ["BARRIERS", "CLUSTER_BARRIER", "Machine", "Shape"]

BARRIERS = 16
CLUSTER_BARRIER = BARRIERS  # one more, which all threads of a cluster of one block share
_WINDOW_SHIFT = np.uint64(56)
_SPACE_OF_WINDOW = {
    0: "global",
    SHARED_WINDOW >> 56: "shared",
    LOCAL_WINDOW >> 56: "local",
    PARAMETER_WINDOW >> 56: "param",
}


@dataclass(frozen=True)
class Shape:
    """The shape of a launch, x first, and how much shared memory a block has."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    blocks_at_once: int
    dynamic_shared_bytes: int = 0

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def padded_threads(self) -> int:
        return -(-self.threads // LANES) * LANES


@dataclass
class _Layout:
    """Where the variables of a space are."""

    size: int
    addresses: dict[str, int] = field(default_factory=dict)

    def place(self, variable: Variable) -> None:
        self.size += -self.size % variable.alignment
        self.addresses[variable.name] = self.size
        self.size += variable_bytes(variable)


class Machine:
    """Registers, memories and places of the threads of `shape.blocks_at_once` blocks."""

    def __init__(
        self,
        kernel: Kernel,
        shape: Shape,
        memory: GlobalMemory,
        symbols: dict[str, int],
        parameters: Array,
    ) -> None:
        self.kernel, self.shape, self.memory, self.parameters = kernel, shape, memory, parameters
        self.blocks, self.threads_per_block = shape.blocks_at_once, shape.padded_threads
        self.width = self.blocks * self.threads_per_block
        self.symbols = dict(symbols)
        self._lay_out(kernel)
        self.shared: Array = np.zeros(self.blocks * self.shared_bytes, np.uint8)
        self.local: Array = np.zeros(self.width * self.local_bytes, np.uint8)
        self._banks: dict[str, Array] = {}
        threads = np.arange(self.width)
        self.block_of_thread = threads // self.threads_per_block
        self.thread_in_block = threads % self.threads_per_block
        self.shared_start = self.block_of_thread * self.shared_bytes
        self.local_start = threads * self.local_bytes
        self.carry: Array = np.zeros(self.width, bool)
        self.pc: Array = np.zeros(self.width, np.int32)
        self.state: Array = np.zeros(self.width, np.int8)
        self.live: Array = np.zeros(self.width, bool)
        self.waiting_for: Array = np.zeros(self.width, np.int64)
        self.released: Array = np.zeros(self.width, bool)
        self.timed_out: Array = np.zeros(self.width, bool)
        self.has_tried: Array = np.zeros(self.width, bool)
        self.votes: Array = np.zeros(self.width, bool)
        self.barrier_arrived: Array = np.zeros((self.blocks, BARRIERS + 1), np.int64)
        self.barrier_goal: Array = np.zeros((self.blocks, BARRIERS + 1), np.int64)
        self.barrier_votes: Array = np.zeros((self.blocks, BARRIERS + 1), np.int64)
        self.barrier_size: Array = np.zeros((self.blocks, BARRIERS + 1), np.int64)
        self.barrier_members: Array = np.zeros((BARRIERS + 1, self.width), bool)
        self.asynchronous = AsyncState(self.width)
        self.races: RaceDetector | None = None
        self.profile: Profile | None = None
        self.print: Callable[[str], None] = print
        self.progress = 0
        self.ends = 0  # how often threads have ended
        self.polls = 0  # how often threads have looked at what other blocks may change
        self.has_polled: Array = np.zeros(self.blocks, bool)
        self.changes = 0  # of what other blocks may look at
        self.has_woken = False  # whether a thread runs that the scheduler does not know of
        self.time = 1
        self.specials = self._make_specials()
        self.block_ids: list[tuple[int, int, int]] = []

    @property
    def clock(self) -> int:
        """The race detector's time, or 0."""
        return 0 if self.races is None else self.races.time

    def _lay_out(self, kernel: Kernel) -> None:
        shared, local = _Layout(SHARED_BASE), _Layout(0)
        for variable in kernel.variables:
            if not variable.is_external:
                (shared if variable.space == "shared" else local).place(variable)
        dynamic = [item for item in kernel.variables if item.is_external]
        start = shared.size
        for variable in dynamic:
            start = max(start, shared.size + -shared.size % variable.alignment)
        for variable in dynamic:
            shared.addresses[variable.name] = start
        # As on the device: what aligns the dynamic part is taken from its bytes.
        self.shared_end = shared.size + self.shape.dynamic_shared_bytes
        self.shared_bytes = -(-self.shared_end // 1024) * 1024
        self.local_bytes = -(-local.size // 16) * 16
        self.symbols |= shared.addresses | local.addresses
        self.symbols |= {item.name: item.offset for item in kernel.parameters}
        self.spaces = {item.name: item.space for item in kernel.variables}
        self.spaces |= dict.fromkeys((item.name for item in kernel.parameters), "entry")

    def _make_specials(self) -> dict[str, Array]:
        x, y, _ = self.shape.block
        thread = self.thread_in_block
        lane = (thread % LANES).astype(np.uint32)
        one = np.uint32(1)
        parts: dict[str, Any] = {
            "tid.x": thread % x,
            "tid.y": thread // x % y,
            "tid.z": thread // (x * y),
            "laneid": lane,
            "warpid": thread // LANES,
            "lanemask_eq": one << lane,
            "lanemask_lt": (one << lane) - one,
            "lanemask_le": ((one << lane) - one) | (one << lane),
            "lanemask_gt": ~(((one << lane) - one) | (one << lane)),
            "lanemask_ge": ~((one << lane) - one),
            "nwarpid": np.full(self.width, self.threads_per_block // LANES),
            "nsmid": np.full(self.width, 132),
            "dynamic_smem_size": np.full(self.width, self.shape.dynamic_shared_bytes),
            "total_smem_size": np.full(self.width, self.shared_end),
            "reserved_smem_offset_end": np.full(self.width, SHARED_BASE),
        }
        for axis, name in enumerate("xyz"):
            parts[f"ntid.{name}"] = np.full(self.width, self.shape.block[axis])
            parts[f"nctaid.{name}"] = np.full(self.width, self.shape.grid[axis])
            parts[f"nclusterid.{name}"] = parts[f"nctaid.{name}"]
            parts[f"ctaid.{name}"] = np.zeros(self.width, np.uint32)
            parts[f"cluster_nctaid.{name}"] = np.ones(self.width, np.uint32)
            parts[f"cluster_ctaid.{name}"] = np.zeros(self.width, np.uint32)
        parts["cluster_nctarank"] = np.ones(self.width, np.uint32)
        specials = {name: values.astype(np.uint32) for name, values in parts.items()}
        for name in "xyz":
            specials[f"clusterid.{name}"] = specials[f"ctaid.{name}"]
        return specials

    def special(self, name: str) -> Array:
        """Return a special register (32 bits; what is not modelled is 0)."""
        return self.specials.setdefault(name, np.zeros(self.width, np.uint32))

    def row(self, name: str, bits: int) -> Array:
        """Return the storage of a register: one unsigned value, or bool, for each thread."""
        if name not in self._banks:
            self._banks[name] = np.zeros(self.width, bool if bits == 1 else f"u{bits // 8}")
        return self._banks[name]

    # -- starting and ending ----------------------------------------------------------------------

    def start(self, block_ids: Sequence[tuple[int, int, int]]) -> None:
        """Put new blocks in place; there may be fewer than fit."""
        self.block_ids = list(block_ids)
        self.pc[:] = 0
        present = self.block_of_thread < len(block_ids)
        self.live[:] = present & (self.thread_in_block < self.shape.threads)
        self.state[:] = np.where(self.live, State.RUNNING, State.DONE)
        for flags in (self.released, self.timed_out, self.has_tried, self.carry):
            flags[:] = False
        self.barrier_arrived[:] = 0
        self.barrier_members[:] = False
        self.shared[:] = 0xFF  # what nobody has written is no number
        for axis, name in enumerate("xyz"):
            ids = np.zeros(self.blocks, np.uint32)
            ids[: len(block_ids)] = [block[axis] for block in block_ids]
            self.specials[f"ctaid.{name}"][:] = ids[self.block_of_thread]
        self.asynchronous = AsyncState(self.width)
        if self.races is not None:
            self.races.start()

    def poll(self, lanes: Array) -> None:
        """Note that threads look at what other blocks may change, maybe to wait for that."""
        self.polls += 1
        self.has_polled[self.block_of_thread[lanes]] = True

    def end_threads(self, group: Group) -> Signal:
        """Let threads end; barriers and warps no longer wait for them."""
        self.live &= ~group.mask
        self.state[group.mask] = State.DONE
        self.progress += 1
        self.changes += 1
        self.ends += 1
        for block in np.unique(self.block_of_thread[group.lanes]):
            for barrier in range(BARRIERS + 1):
                if self.barrier_arrived[block, barrier]:
                    self.try_release(int(block), barrier)
        self.wake(State.CONVERGING)
        return Signal.RESCHEDULE

    def wake(self, state: State, block: int | None = None) -> bool:
        """Let threads in a state try again; return whether there are any."""
        chosen = self.state == state
        if block is not None:
            chosen &= self.block_of_thread == block
        self.state[chosen] = State.RUNNING
        self.has_woken |= bool(chosen.any())
        return bool(chosen.any())

    # -- warps ------------------------------------------------------------------------------------

    def converge(self, group: Group, pc: int, members: Any = None) -> Outcome:
        """Wait until the lanes of `members` (default: all that live) are at this instruction.

        Returns the group itself, the group of those that may go on, or a signal.
        """
        if group.is_full:
            return group
        here = group.mask | ((self.state == State.CONVERGING) & (self.pc == pc))
        missing = (lane_bits(self.live) & ~lane_bits(here)).repeat(LANES)
        if members is not None:
            missing = missing & members
        ready = here & (missing == 0)
        if np.array_equal(ready, group.mask):
            return group
        rest = here & ~ready
        self.state[rest] = State.CONVERGING
        self.pc[rest] = pc
        self.state[ready] = State.RUNNING
        self.pc[ready] = pc
        if not ready.any():
            return Signal.RESCHEDULE
        return Group(ready)

    # -- barriers ---------------------------------------------------------------------------------

    def arrive(self, group: Group, barrier: Any, goal: Any, pc: int) -> Signal:
        """Count whole warps at a barrier (`goal` 0: all threads); a negative pc waits for none."""
        if self._all_meet(group, barrier, goal, pc):
            return Signal.RESCHEDULE
        lanes = group.lanes
        ids = np.broadcast_to(barrier, (self.width,))[lanes].astype(np.int64)
        goals = np.broadcast_to(goal, (self.width,))[lanes].astype(np.int64)
        if (ids > BARRIERS).any():
            raise EmulatorError(f"there is no barrier {int(ids.max())}: a block has {BARRIERS}")
        self.barrier_members[ids, lanes] = True
        keys = self.block_of_thread[lanes] * (BARRIERS + 1) + ids
        for key in np.unique(keys):
            block, index = divmod(int(key), BARRIERS + 1)
            chosen = keys == key
            self._count_arrivals(block, index, int(goals[chosen][0]), lanes[chosen])
        if pc >= 0:
            self.pc[lanes] = pc
            self.waiting_for[lanes] = ids
            self.state[lanes] = State.BARRIER
        for key in np.unique(keys):
            self.try_release(*divmod(int(key), BARRIERS + 1))
        return Signal.RESCHEDULE

    def _all_meet(self, group: Group, barrier: Any, goal: Any, pc: int) -> bool:
        """Open a barrier of several blocks at once, where all their threads come together."""
        if np.ndim(barrier) or np.ndim(goal) or pc < 0 or barrier >= BARRIERS:
            return False
        index, by_block = int(barrier), (self.blocks, self.threads_per_block)
        sizes = np.count_nonzero(group.mask.reshape(by_block), axis=1)
        blocks = np.flatnonzero(sizes)
        missing = np.count_nonzero(self.live.reshape(by_block), axis=1) - sizes
        others = missing[blocks].any() or self.barrier_arrived[blocks, index].any()
        if others or (goal and (sizes[blocks] != goal).any()):
            return False
        self.pc[group.mask] = pc
        self.released[group.mask] = True
        votes = (self.votes & group.mask).reshape(by_block)
        self.barrier_votes[blocks, index] = np.count_nonzero(votes, axis=1)[blocks]
        self.barrier_size[blocks, index] = sizes[blocks]
        self.progress += 1
        if self.races is not None:
            self.races.join_blocks(blocks)
        return True

    def _count_arrivals(self, block: int, barrier: int, goal: int, lanes: Array) -> None:
        already = self.barrier_arrived[block, barrier]
        if already and goal != self.barrier_goal[block, barrier]:
            raise EmulatorError(
                f"barrier {barrier} is used with {goal or 'all'} threads, while others wait at it "
                f"for {self.barrier_goal[block, barrier] or 'all'}"
            )
        self.barrier_goal[block, barrier] = goal
        arrived = already + np.unique(lanes // LANES).size * LANES
        if goal and arrived > goal:
            raise EmulatorError(f"{arrived} threads are at barrier {barrier}, which takes {goal}")
        self.barrier_arrived[block, barrier] = arrived

    def try_release(self, block: int, barrier: int) -> None:
        """Open a barrier if all have arrived."""
        first = block * self.threads_per_block
        own = slice(first, first + self.threads_per_block)
        members = self.barrier_members[barrier, own].copy()
        goal = self.barrier_goal[block, barrier]
        if goal:
            if self.barrier_arrived[block, barrier] < goal:
                return
        elif (self.live[own] & ~members).any():
            return
        waiting = (self.state[own] == State.BARRIER) & (self.waiting_for[own] == barrier)
        self.state[own][waiting] = State.RUNNING
        self.released[own][members if barrier == CLUSTER_BARRIER else waiting] = True
        self.barrier_votes[block, barrier] = np.count_nonzero(self.votes[own] & members)
        self.barrier_size[block, barrier] = np.count_nonzero(members)
        self.barrier_arrived[block, barrier] = 0
        self.barrier_members[barrier, own] = False
        self.progress += 1
        if self.races is not None:
            origins, receivers = np.flatnonzero(members), np.flatnonzero(waiting)
            self.races.join(first + origins, first + receivers)

    # -- memory -----------------------------------------------------------------------------------

    def load(
        self, space: str, addresses: Array, itemsize: int, lanes: Array, instruction: Instruction
    ) -> Array:
        """Return the items that threads `lanes` read."""
        memory, index = self._locate(space, addresses, itemsize, lanes, instruction)
        if isinstance(memory, np.ndarray):
            result: Array = typed(memory, itemsize)[index]
            return result
        if isinstance(memory, GlobalMemory):
            with _naming_threads(lanes):
                return memory.read(index, itemsize)
        parts = [self.load(name, a, itemsize, lanes[i], instruction) for name, a, i in memory]
        result = np.empty((lanes.size, *parts[0].shape[1:]), parts[0].dtype)
        for (_, _, chosen), part in zip(memory, parts, strict=True):
            result[chosen] = part
        return result

    def store(
        self,
        space: str,
        addresses: Array,
        values: Array,
        itemsize: int,
        lanes: Array,
        instruction: Instruction,
    ) -> None:
        """Write the items of threads `lanes`; of equal addresses the highest thread wins."""
        memory, index = self._locate(space, addresses, itemsize, lanes, instruction, values)
        self.progress += 1
        if isinstance(memory, np.ndarray):
            typed(memory, itemsize)[index] = values
        elif isinstance(memory, GlobalMemory):
            with _naming_threads(lanes):
                memory.write(index, values, itemsize)
        else:
            for name, part, chosen in memory:
                self.store(name, part, values[chosen], itemsize, lanes[chosen], instruction)

    def index_shared(
        self, addresses: Array, itemsize: int, lanes: Array, instruction: Instruction
    ) -> Array:
        """Return where in `shared` the items are that a copy will write."""
        addresses = addresses & np.uint64(SHARED_WINDOW - 1)
        return self._locate("shared", addresses, itemsize, lanes, instruction, addresses)[1]

    def shared_bytes_at(
        self, block: int, address: int, size: int, *, alignment: int, what: str
    ) -> Array:
        """Return a range of a block's shared memory as a view."""
        if address % alignment:
            raise EmulatorError(f"{what} {address} is not a multiple of {alignment}")
        if address < SHARED_BASE or address + size > self.shared_end:
            raise EmulatorError(
                f"{what}: bytes {address} to {address + size} are outside of shared memory, which "
                f"is {SHARED_BASE} to {self.shared_end}"
            )
        start = block * self.shared_bytes + address
        return self.shared[start : start + size]

    def _locate(
        self,
        space: str,
        addresses: Array,
        itemsize: int,
        lanes: Array,
        instruction: Instruction,
        values: Array | None = None,
    ) -> tuple[Array | GlobalMemory | list[tuple[str, Array, Array]], Array]:
        what = "read" if values is None else "write"
        misaligned = (addresses & np.uint64(itemsize - 1)) != 0
        if misaligned.any():
            lane = int(np.flatnonzero(misaligned)[0])
            raise OutOfBounds(
                int(lanes[lane]),
                f"misaligned {what} of {itemsize} bytes at {self.describe(addresses[lane], space)}",
            )
        if space == "generic":
            windows = addresses >> _WINDOW_SHIFT
            kinds = np.unique(windows)
            names = [_SPACE_OF_WINDOW.get(int(kind), "global") for kind in kinds]
            if len(names) > 1:
                parts: list[tuple[str, Array, Array]] = []
                for kind, name in zip(kinds, names, strict=True):
                    chosen = np.flatnonzero(windows == kind)
                    parts.append((name, addresses[chosen] - np.uint64(window_of(name)), chosen))
                return parts, addresses
            space = names[0]
            addresses = addresses - np.uint64(window_of(space))
        if space == "global":
            counts_once = values is None or instruction.opcode not in {"atom", "red"}
            if self.profile is not None and counts_once:
                self.profile.global_access(instruction, addresses, itemsize, lanes)
            if self.races is not None and values is not None:
                self.races.global_write(instruction, addresses, itemsize, lanes)
            return self.memory, addresses
        return self._locate_inside(space, addresses, itemsize, lanes, instruction, values)

    def _locate_inside(
        self,
        space: str,
        addresses: Array,
        itemsize: int,
        lanes: Array,
        instruction: Instruction,
        values: Array | None = None,
    ) -> tuple[Array, Array]:
        if space == "shared":
            memory, starts = self.shared, self.shared_start[lanes]
            low, high = SHARED_BASE, self.shared_end
        elif space == "local":
            memory, starts, low, high = self.local, self.local_start[lanes], 0, self.local_bytes
        else:
            memory, low, high = self.parameters, 0, self.parameters.size
            starts = np.zeros(lanes.size, np.int64)
        offsets = addresses.astype(np.int64)
        outside = (offsets < low) | (offsets + itemsize > high)
        if outside.any():
            lane = int(np.flatnonzero(outside)[0])
            what = "read" if values is None else "write"
            raise OutOfBounds(
                int(lanes[lane]),
                f"out-of-bounds {what} of {itemsize} bytes at byte {offsets[lane]} of {space} "
                f"memory, which is {low} to {high}",
            )
        if space == "shared":
            if self.profile is not None:
                self.profile.shared_access(instruction, offsets, itemsize, lanes)
            if self.races is not None:
                self.races.access(instruction, offsets, itemsize, lanes, values)
        return memory, (starts + offsets) // itemsize

    def describe(self, address: Any, space: str) -> str:
        """Name an address for a message."""
        value = int(address)
        for buffer in self.memory.buffers:
            if space in {"global", "generic"} and buffer.start <= value < buffer.end:
                return f"byte {value - buffer.start} of `{buffer.name}` (address {value:#x})"
        return f"{space} address {value:#x}"

    def thread_name(self, thread: int) -> str:
        """Return a thread's place in its block, and the block's in the grid."""
        x, y, _ = self.shape.block
        index = int(self.thread_in_block[thread])
        block = int(self.block_of_thread[thread])
        where = self.block_ids[block] if block < len(self.block_ids) else (0, 0, 0)
        return f"thread {(index % x, index // x % y, index // (x * y))} of block {where}"


@contextmanager
def _naming_threads(lanes: Array) -> Iterator[None]:
    """Let an error name the thread, not the position among the accesses."""
    try:
        yield
    except OutOfBounds as error:
        raise OutOfBounds(int(lanes[error.lane]), error.message) from None


def variable_bytes(variable: Variable) -> int:
    """Return the size of a variable."""
    digits = "".join(c for c in variable.type if c.isdigit())
    return max(1, int(digits) // 8) * variable.count
