"""Finding races in shared memory: accesses that nothing orders, and fences that are missing.

Every thread has a vector clock: for each other agent, the time up to which it knows what that agent
has done. Barriers and mbarriers pass clocks on. An access to a byte races with an earlier one, if
one of them writes and the clock of the later thread does not reach the earlier access. Agents are
the threads, the `cp.async` of each thread, the bulk copies of each mbarrier, the bulk stores of
each thread, and the `wgmma` of each warp. A second clock says what has passed a proxy fence: the
asynchronous proxy may only read what threads wrote before one. Of global memory, where there are
copies, that is all that is watched: who has written a byte (`global_writes.py`).

Shadow memory keeps, for each cell, the last write and the last read of four groups of agents, so
that an old read can be forgotten; what is reported is real. A cell is a byte, or several where the
kernel has no access to fewer. Blocks have nothing in common: agents are numbered in each of them.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.global_writes import GlobalWrites
from tilewright.emulator.program import Instruction
from tilewright.emulator.report import Finding

__all__ = ["RaceDetector"]

_LANES = 32
_READERS = 4
_SLOTS = 128
_ORDERED = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
Key = tuple[int, int]


class RaceDetector:
    """Watches the shared memory of `blocks` blocks of `width` threads.

    Threads are numbered through all blocks, places are bytes in the memory of their block.
    """

    def __init__(
        self,
        width: int,
        shared_bytes: int,
        *,
        blocks: int = 1,
        cell_bytes: int = 1,
        races: bool = True,
        uninitialised: bool = False,
        global_writes: GlobalWrites | None = None,
    ) -> None:
        self.width, self.blocks, self.shared_bytes = width, blocks, shared_bytes
        self.cell_bytes = cell_bytes
        self._cells = -(-shared_bytes // cell_bytes)
        self.finds_races, self.finds_uninitialised = races, uninitialised
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self._copies, self._barriers = width, 2 * width
        self._stores = 2 * width + _SLOTS
        self._products = 2 * width + 2 * _SLOTS
        self.columns = self._products + width // _LANES
        # Behind what has passed a fence of shared memory: what of the threads one of global memory.
        self._global_writes, self._global = global_writes, self.columns
        self._instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self.start()

    @classmethod
    def block_bytes(cls, width: int, shared_bytes: int) -> int:
        """Return about how much memory it takes to watch a block."""
        return 16 * width * (width + _SLOTS) + 16 * (1 + _READERS) * shared_bytes + 1

    def start(self) -> None:
        """Forget everything but the findings: new blocks begin."""
        self.time = 1
        size, threads = self.blocks * self._cells, self.blocks * self.width
        self._clock: Array = np.zeros((threads, self.columns), np.int32)
        known = self.columns + (self.width if self._global_writes is not None else 0)
        self._fenced: Array = np.zeros((threads, known), np.int32)
        if self._global_writes is not None:
            self._global_writes.clear()
        # What all threads of a block know since they last met; the rest is nothing but zeros while
        # no asynchronous agent and no fence has been seen.
        self._floor: Array = np.zeros((self.blocks, self.columns), np.int32)
        self._knows_asynchronous = self._has_fenced = False
        self._writer: Array = np.full(size, -1, np.int32)
        self._write_time: Array = np.zeros(size, np.int32)
        self._write_ordered: Array = np.zeros(size, bool)
        self._write_by: Array = np.zeros(size, np.int32)
        self._reader: Array = np.full((_READERS, size), -1, np.int32)
        self._read_time: Array = np.zeros((_READERS, size), np.int32)
        self._read_by: Array = np.zeros((_READERS, size), np.int32)
        self._read_ordered: Array = np.zeros((_READERS, size), bool)
        self._slots: list[dict[int, int]] = [{} for _ in range(self.blocks)]
        self._store_slots: list[dict[int, int]] = [{} for _ in range(self.blocks)]
        self._arrived: dict[Key, tuple[Array, Array]] = {}
        self._ended: dict[Key, tuple[Array, Array]] = {}

    # -- order ------------------------------------------------------------------------------------

    def join_blocks(self, blocks: Array) -> None:
        """Join all threads of each of some blocks."""
        self.time += 1
        self._floor[blocks, : self._copies] = self.time
        by_block = (self.blocks, self.width, self.columns)
        if self._knows_asynchronous:
            known = self._clock.reshape(by_block)[blocks, :, self._copies :].max(1)
            floor = self._floor[blocks, self._copies :]
            self._floor[blocks, self._copies :] = np.maximum(floor, known)
        if self._has_fenced:
            fenced = self._fenced.reshape(self.blocks, self.width, -1)
            fenced[blocks] = fenced[blocks].max(1, keepdims=True)

    def join(self, origins: Array, receivers: Array) -> None:
        """Let receivers know all that the origins know, of their block: a barrier."""
        if not origins.size:
            return
        self._now(origins)
        clock, fenced = self._of_all(origins)
        self._clock[receivers] = np.maximum(self._clock[receivers], clock)
        self._fenced[receivers] = np.maximum(self._fenced[receivers], fenced)

    def join_warps(self, mask: Array) -> None:
        """Join the threads of each warp in a mask."""
        lanes = np.flatnonzero(mask)
        self._now(lanes)
        columns = self.columns if self._knows_asynchronous else self._copies
        clocks = [self._clock[:, :columns], *([self._fenced] if self._has_fenced else [])]
        for clock in clocks:
            rows = clock if mask.all() else np.where(mask[:, None], clock, 0)
            known = rows.reshape(-1, _LANES, clock.shape[1]).max(1)
            clock[lanes] = known[lanes // _LANES]

    def fence(self, lanes: Array, *, shared: bool, everywhere: bool) -> None:
        """Let what threads know of shared and of global memory pass to the asynchronous proxy."""
        self._now(lanes)
        self._has_fenced = True
        known = np.maximum(self._clock[lanes], self._floor[lanes // self.width])
        if everywhere and self._global_writes is not None:
            passed = self._fenced[lanes, self._global :]
            self._fenced[lanes, self._global :] = np.maximum(passed, known[:, : self.width])
        if shared:
            passed = self._fenced[lanes, : self._global]
            self._fenced[lanes, : self._global] = np.maximum(passed, known)

    def reset(self, key: Key) -> None:
        """Begin anew with an mbarrier."""
        self._arrived.pop(key, None)
        self._ended.pop(key, None)

    def release(self, key: Key, lanes: Array) -> None:
        """Pass what threads know to an mbarrier, as they arrive."""
        self._now(lanes)
        known = self._of_all(lanes)
        if key in self._arrived:
            before = self._arrived[key]
            known = np.maximum(known[0], before[0]), np.maximum(known[1], before[1])
        self._arrived[key] = known

    def end_phase(self, key: Key) -> None:
        """Publish what arrived, the bytes of bulk copies included."""
        nothing = np.zeros(self._fenced.shape[1], np.int32)
        clock, fenced = self._arrived.pop(key, (nothing[: self.columns], nothing))
        clock = clock.copy()
        self.time += 1
        clock[self._slot(key)] = self.time
        self._ended[key] = clock, fenced

    def acquire(self, key: Key, lanes: Array) -> None:
        """Let threads know what an mbarrier has published."""
        if key in self._ended and lanes.size:
            clock, fenced = self._ended[key]
            self._knows_asynchronous = self._has_fenced = True
            self._clock[lanes] = np.maximum(self._clock[lanes], clock)
            self._fenced[lanes] = np.maximum(self._fenced[lanes], fenced)

    def copies_done(self, lanes: Array, time: int) -> None:
        """Let threads know that their `cp.async` up to a time are done."""
        self._knows_asynchronous = True
        columns = self._copies + lanes % self.width
        self._clock[lanes, columns] = np.maximum(self._clock[lanes, columns], time)

    def bulk_read_done(self, thread: int, time: int) -> None:
        """Let a thread know that its bulk stores up to a time have read."""
        self._knows_asynchronous = True
        column = self._store_slot(thread)
        self._clock[thread, column] = max(self._clock[thread, column], time)

    def products_done(self, lanes: Array, time: int) -> None:
        """Let a warp know that its products up to a time have read."""
        self._knows_asynchronous = True
        column = self._products + int(lanes[0]) % self.width // _LANES
        self._clock[lanes, column] = np.maximum(self._clock[lanes, column], time)

    def _now(self, lanes: Array) -> None:
        self.time += 1
        self._clock[lanes, lanes % self.width] = self.time

    def _of_all(self, lanes: Array) -> tuple[Array, Array]:
        """What some threads of a block know together, and what of it has passed a proxy fence."""
        floor = self._floor[int(lanes[0]) // self.width]
        return np.maximum(self._clock[lanes].max(0), floor), self._fenced[lanes].max(0)

    def _known(self, threads: Array, agents: Array) -> Array:
        """The time up to which each thread knows what an agent of its block has done."""
        floor = self._floor[threads // self.width, agents]
        return np.asarray(np.maximum(self._clock[threads, agents], floor))

    def _slot(self, key: Key) -> int:
        slots = self._slots[key[0]]
        return self._barriers + slots.setdefault(key[1], len(slots)) % _SLOTS

    def _store_slot(self, thread: int) -> int:
        slots = self._store_slots[thread // self.width]
        return self._stores + slots.setdefault(thread, len(slots)) % _SLOTS

    def _cells_of(self, thread: int, places: Array) -> Array:
        """The cells that hold some bytes of the block of a thread."""
        cells = places if self.cell_bytes == 1 else np.unique(places // self.cell_bytes)
        return np.asarray(cells + thread // self.width * self._cells)

    def _byte(self, cell: int) -> int:
        """The first byte of a cell, in the memory of its block."""
        return cell % self._cells * self.cell_bytes

    # -- accesses ---------------------------------------------------------------------------------

    def access(
        self,
        instruction: Instruction,
        offsets: Array,
        itemsize: int,
        lanes: Array,
        values: Array | None,
    ) -> None:
        """Check and note an access of threads; `values` are what a write stores."""
        self.time += 1
        count = -(-itemsize // self.cell_bytes)
        first = lanes // self.width * self._cells + offsets // self.cell_bytes
        cells = (first[:, None] + np.arange(count)).reshape(-1)
        threads = np.repeat(lanes, count)
        ordered = instruction.opcode in {"atom", "red"} or bool(
            _ORDERED.intersection(instruction.modifiers)
        )
        columns = threads % self.width
        if instruction.opcode == "cp":
            columns += self._copies
        if values is None:
            self._check_read(instruction, cells, threads, columns, ordered=ordered)
            self._note_read(instruction, cells, columns, ordered=ordered)
            return
        if not ordered and instruction.opcode != "cp":
            self._check_collision(instruction, offsets, lanes, values)
        self._check_write(instruction, cells, threads, columns, ordered=ordered)
        self._note_write(instruction, cells, columns, ordered=ordered)

    def bulk_write(self, instruction: Instruction, thread: int, places: Array, at: int) -> None:
        """Check and note a bulk copy into shared memory; `at` is its mbarrier."""
        self.time += 1
        cells = self._cells_of(thread, places)
        threads = np.full(cells.size, thread)
        columns = np.full(cells.size, self._slot((thread // self.width, at)))
        self._check_write(instruction, cells, threads, columns)
        self._check_fence(instruction, cells, self._fenced[thread])
        self._note_write(instruction, cells, columns)

    def bulk_read(self, instruction: Instruction, thread: int, places: Array) -> None:
        """Check and note a bulk copy out of shared memory."""
        self.time += 1
        cells = self._cells_of(thread, places)
        threads = np.full(cells.size, thread)
        columns = np.full(cells.size, self._store_slot(thread))
        self._check_read(instruction, cells, threads, threads % self.width)
        self._check_fence(instruction, cells, self._fenced[thread])
        self._note_read(instruction, cells, columns)

    def global_write(
        self, instruction: Instruction, addresses: Array, itemsize: int, lanes: Array
    ) -> None:
        """Note what threads write to global memory, where copies may come to it."""
        if self._global_writes is not None and self.finds_races:
            self.time += 1
            number = self._number(instruction)
            self._global_writes.note(addresses, itemsize, lanes, self.time, number)

    def global_copy(
        self, instruction: Instruction, thread: int, addresses: Array, itemsize: int
    ) -> None:
        """Find bytes of a copy that threads of its block wrote with no proxy fence since."""
        if self._global_writes is None or not self.finds_races:
            return
        for write in self._global_writes.of(addresses, itemsize):
            writer = write.thread % self.width
            is_own = write.thread // self.width == thread // self.width
            if is_own and self._fenced[thread, self._global + writer] < write.time:
                message = (
                    f"the byte at {write.address:#x} was written by thread {writer}, with no "
                    "`fence.proxy.async` of global memory before the asynchronous proxy uses it"
                )
                earlier = self._instructions[write.by]
                self._find("missing proxy fence", message, instruction, earlier)
                return

    def matrix_read(self, instruction: Instruction, first_lane: int, places: Array) -> None:
        """Check and note the reads of a warp's `wgmma`."""
        self.time += 1
        lanes = np.arange(first_lane, first_lane + _LANES)
        clock, fenced = self._of_all(lanes)
        cells = self._cells_of(first_lane, places)
        threads = np.full(cells.size, first_lane)
        warp = first_lane % self.width // _LANES
        columns = np.full(cells.size, self._products + warp)
        own = self._writer[cells] // _LANES == warp
        self._check_read(instruction, cells, threads, columns, clock=clock, exempt=own)
        self._check_fence(instruction, cells, fenced)
        self._note_read(instruction, cells, columns)

    # -- checks -----------------------------------------------------------------------------------

    def _check_collision(
        self, instruction: Instruction, offsets: Array, lanes: Array, values: Array
    ) -> None:
        """Find threads that write different values to one place with one instruction."""
        where = lanes // self.width * self.shared_bytes + offsets
        order = np.argsort(where, kind="stable")
        same = where[order][1:] == where[order][:-1]
        if not same.any():
            return
        rows = values.reshape(offsets.size, -1)[order]
        differs = same & (rows[1:] != rows[:-1]).any(1)
        for i in np.flatnonzero(differs)[:1]:
            first, second = (int(lanes[order[j]]) % self.width for j in (i, i + 1))
            self._find(
                "race",
                f"threads {first} and {second} write different values to shared byte "
                f"{int(offsets[order[i]])} at once",
                instruction,
                None,
            )

    def _check_read(
        self,
        instruction: Instruction,
        cells: Array,
        threads: Array,
        columns: Array,
        *,
        clock: Array | None = None,
        ordered: bool = False,
        exempt: Array | bool = False,
    ) -> None:
        writer, time = self._writer[cells], self._write_time[cells]
        if self.finds_uninitialised and (writer < 0).any():
            at = self._byte(int(cells[(writer < 0).argmax()]))
            message = f"shared byte {at} is read, but nothing has written it"
            self._find("uninitialised", message, instruction, None)
        known = self._known(threads, writer) if clock is None else clock[writer]
        late = (writer >= 0) & (writer != columns) & (known < time) & np.logical_not(exempt)
        if ordered:
            late &= ~self._write_ordered[cells]
        self._report(instruction, cells, threads, late, writer, self._write_by[cells], "reads")

    def _check_write(
        self,
        instruction: Instruction,
        cells: Array,
        threads: Array,
        columns: Array,
        *,
        ordered: bool = False,
    ) -> None:
        writer, time = self._writer[cells], self._write_time[cells]
        late = (writer >= 0) & (writer != columns) & (self._known(threads, writer) < time)
        if ordered:
            late &= ~self._write_ordered[cells]
        self._report(instruction, cells, threads, late, writer, self._write_by[cells], "writes")
        readers = self._reader[:, cells]
        own = threads % self.width
        for slot in np.flatnonzero(((readers >= 0) & (readers != own)).any(1)):
            reader, time = readers[slot], self._read_time[slot][cells]
            late = (reader >= 0) & (reader != own) & (self._known(threads, reader) < time)
            if ordered:
                late &= ~self._read_ordered[slot][cells]
            by = self._read_by[slot][cells]
            self._report(instruction, cells, threads, late, reader, by, "writes", earlier="read")

    def _check_fence(self, instruction: Instruction, cells: Array, fenced: Array) -> None:
        """Find bytes that threads wrote with no proxy fence since."""
        writer, time = self._writer[cells], self._write_time[cells]
        unfenced = (writer >= 0) & (writer < self._barriers) & (fenced[writer] < time)
        if not unfenced.any() or not self.finds_races:
            return
        i = int(unfenced.argmax())
        self._find(
            "missing proxy fence",
            f"shared byte {self._byte(int(cells[i]))} was written by thread "
            f"{int(writer[i]) % self.width}, "
            "with no `fence.proxy.async` before the asynchronous proxy uses it",
            instruction,
            self._instructions[int(self._write_by[cells[i]])],
        )

    def _report(
        self,
        instruction: Instruction,
        cells: Array,
        threads: Array,
        late: Array,
        other: Array,
        by: Array,
        verb: str,
        earlier: str = "wrote",
    ) -> None:
        if not self.finds_races or not late.any():
            return
        i = int(late.argmax())
        agent, why = self._agent(int(other[i]), earlier)
        self._find(
            "race",
            f"thread {int(threads[i]) % self.width} {verb} shared byte "
            f"{self._byte(int(cells[i]))}, which {agent}, {why}",
            instruction,
            self._instructions[int(by[i])],
        )

    def _agent(self, column: int, earlier: str) -> tuple[str, str]:
        if column < self._copies:
            return f"thread {column} {earlier}", "with no barrier between"
        if column < self._barriers:
            thread = column - self._copies
            return f"cp.async of thread {thread} writes", "with no wait and barrier between"
        if column < self._stores:
            return "a bulk copy writes", "before the phase of its mbarrier was waited for"
        if column < self._products:
            return "a bulk store may still read", "before its group was waited for"
        return "wgmma may still read", "before `wgmma.wait_group`"

    def unfenced_register(self, instruction: Instruction, register: str) -> None:
        """Note a product whose registers were written with no fence since."""
        self._find(
            "race",
            f"register {register} was written with no `wgmma.fence` before this wgmma uses it",
            instruction,
            None,
        )

    def register_in_flight(
        self, instruction: Instruction, other: Instruction, register: str
    ) -> None:
        """Note a use of a register of a product in flight."""
        self._find(
            "race",
            f"register {register} belongs to a wgmma in flight: wait for its group first",
            instruction,
            other,
        )

    def _find(
        self, kind: str, message: str, instruction: Instruction, other: Instruction | None
    ) -> None:
        key = (kind, instruction.line, other.line if other else 0)
        if key in self.findings:
            self.findings[key].count += 1
        else:
            self.findings[key] = Finding(kind, message, instruction, other)

    # -- notes ------------------------------------------------------------------------------------

    def _number(self, instruction: Instruction) -> int:
        if instruction.line not in self._numbers:
            self._numbers[instruction.line] = len(self._instructions)
            self._instructions.append(instruction)
        return self._numbers[instruction.line]

    def _note_write(
        self, instruction: Instruction, cells: Array, columns: Array, *, ordered: bool = False
    ) -> None:
        self._writer[cells] = columns
        self._write_time[cells] = self.time
        self._write_by[cells] = self._number(instruction)
        self._write_ordered[cells] = ordered
        self._reader[:, cells] = -1

    def _note_read(
        self, instruction: Instruction, cells: Array, columns: Array, *, ordered: bool = False
    ) -> None:
        slots = columns // _LANES % _READERS
        self._reader[slots, cells] = columns
        self._read_time[slots, cells] = self.time
        self._read_by[slots, cells] = self._number(instruction)
        self._read_ordered[slots, cells] = ordered
