"""Finding races in shared memory: accesses that nothing orders, and fences that are missing.

Every thread has a vector clock: for each other agent, the time up to which it knows what that agent
has done. Barriers and mbarriers pass clocks on. An access to a byte races with an earlier one, if
one of them writes and the clock of the later thread does not reach the earlier access. Agents are
the threads, the `cp.async` of each thread, the bulk copies of each mbarrier, the bulk stores of
each thread, and the `wgmma` of each warp. A second clock says what has passed a proxy fence: the
asynchronous proxy may only read what threads wrote before one.

Shadow memory keeps, for each byte, the last write and the last read of four groups of agents, so
that an old read can be forgotten; what is reported is real.
"""

from __future__ import annotations

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.program import Instruction
from tilewright.emulator.report import Finding

__all__ = ["RaceDetector"]

_LANES = 32
_READERS = 4
_SLOTS = 128
_ORDERED = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}
Key = tuple[int, int]


class RaceDetector:
    """Watches the shared memory of one block of `width` threads."""

    def __init__(
        self, width: int, shared_bytes: int, *, races: bool = True, uninitialised: bool = False
    ) -> None:
        self.width, self.shared_bytes = width, shared_bytes
        self.finds_races, self.finds_uninitialised = races, uninitialised
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self._copies, self._barriers = width, 2 * width
        self._stores = 2 * width + _SLOTS
        self._products = 2 * width + 2 * _SLOTS
        self.columns = self._products + width // _LANES
        self._instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        """Forget everything but the findings: a new block begins."""
        self.time = 1
        size = self.shared_bytes
        self._clock: Array = np.zeros((self.width, self.columns), np.int32)
        self._fenced: Array = np.zeros((self.width, self.columns), np.int32)
        self._writer: Array = np.full(size, -1, np.int32)
        self._write_time: Array = np.zeros(size, np.int32)
        self._write_ordered: Array = np.zeros(size, bool)
        self._write_by: Array = np.zeros(size, np.int32)
        self._reader: Array = np.full((_READERS, size), -1, np.int32)
        self._read_time: Array = np.zeros((_READERS, size), np.int32)
        self._read_by: Array = np.zeros((_READERS, size), np.int32)
        self._read_ordered: Array = np.zeros((_READERS, size), bool)
        self._slots: dict[Key, int] = {}
        self._store_slots: dict[int, int] = {}
        self._arrived: dict[Key, tuple[Array, Array]] = {}
        self._ended: dict[Key, tuple[Array, Array]] = {}

    # -- order ------------------------------------------------------------------------------------

    def join(self, origins: Array, receivers: Array) -> None:
        """Let receivers know all that the origins know: a barrier."""
        if not origins.size:
            return
        self._now(origins)
        for clock in (self._clock, self._fenced):
            known = clock[origins].max(0)
            clock[receivers] = np.maximum(clock[receivers], known)

    def join_warps(self, mask: Array) -> None:
        """Join the threads of each warp in a mask."""
        for warp in np.flatnonzero(mask.reshape(-1, _LANES).any(1)):
            lanes = warp * _LANES + np.flatnonzero(mask[warp * _LANES : (warp + 1) * _LANES])
            self.join(lanes, lanes)

    def fence(self, lanes: Array) -> None:
        """Let what threads know pass to the asynchronous proxy."""
        self._now(lanes)
        self._fenced[lanes] = np.maximum(self._fenced[lanes], self._clock[lanes])

    def reset(self, key: Key) -> None:
        """Begin anew with an mbarrier."""
        self._arrived.pop(key, None)
        self._ended.pop(key, None)

    def release(self, key: Key, lanes: Array) -> None:
        """Pass what threads know to an mbarrier, as they arrive."""
        self._now(lanes)
        known = self._clock[lanes].max(0), self._fenced[lanes].max(0)
        if key in self._arrived:
            before = self._arrived[key]
            known = np.maximum(known[0], before[0]), np.maximum(known[1], before[1])
        self._arrived[key] = known

    def end_phase(self, key: Key) -> None:
        """Publish what arrived, the bytes of bulk copies included."""
        nothing = np.zeros(self.columns, np.int32)
        clock, fenced = self._arrived.pop(key, (nothing, nothing))
        clock = clock.copy()
        self.time += 1
        clock[self._slot(key)] = self.time
        self._ended[key] = clock, fenced

    def acquire(self, key: Key, lanes: Array) -> None:
        """Let threads know what an mbarrier has published."""
        if key in self._ended and lanes.size:
            clock, fenced = self._ended[key]
            self._clock[lanes] = np.maximum(self._clock[lanes], clock)
            self._fenced[lanes] = np.maximum(self._fenced[lanes], fenced)

    def copies_done(self, lanes: Array, time: int) -> None:
        """Let threads know that their `cp.async` up to a time are done."""
        columns = self._copies + lanes
        self._clock[lanes, columns] = np.maximum(self._clock[lanes, columns], time)

    def bulk_read_done(self, thread: int, time: int) -> None:
        """Let a thread know that its bulk stores up to a time have read."""
        column = self._store_slot(thread)
        self._clock[thread, column] = max(self._clock[thread, column], time)

    def products_done(self, lanes: Array, time: int) -> None:
        """Let a warp know that its products up to a time have read."""
        column = self._products + int(lanes[0]) // _LANES
        self._clock[lanes, column] = np.maximum(self._clock[lanes, column], time)

    def _now(self, lanes: Array) -> None:
        self.time += 1
        self._clock[lanes, lanes] = self.time

    def _slot(self, key: Key) -> int:
        return self._barriers + self._slots.setdefault(key, len(self._slots)) % _SLOTS

    def _store_slot(self, thread: int) -> int:
        return self._stores + self._store_slots.setdefault(thread, len(self._store_slots)) % _SLOTS

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
        places = (offsets[:, None] + np.arange(itemsize)).reshape(-1)
        threads = np.repeat(lanes, itemsize)
        ordered = instruction.opcode in {"atom", "red"} or bool(
            _ORDERED.intersection(instruction.modifiers)
        )
        columns = threads + self._copies if instruction.opcode == "cp" else threads
        if values is None:
            self._check_read(instruction, places, self._clock, threads, columns, ordered=ordered)
            self._note_read(instruction, places, columns, ordered=ordered)
            return
        if not ordered and instruction.opcode != "cp":
            self._check_collision(instruction, offsets, lanes, values)
        self._check_write(instruction, places, threads, columns, ordered=ordered)
        self._note_write(instruction, places, columns, ordered=ordered)

    def bulk_write(self, instruction: Instruction, thread: int, places: Array, at: int) -> None:
        """Check and note a bulk copy into shared memory; `at` is its mbarrier."""
        self.time += 1
        threads = np.full(places.size, thread)
        columns = np.full(places.size, self._slot((thread // self.width, at)))
        self._check_write(instruction, places, threads, columns)
        self._check_fence(instruction, places, self._fenced[thread])
        self._note_write(instruction, places, columns)

    def bulk_read(self, instruction: Instruction, thread: int, places: Array) -> None:
        """Check and note a bulk copy out of shared memory."""
        self.time += 1
        threads = np.full(places.size, thread)
        columns = np.full(places.size, self._store_slot(thread))
        self._check_read(instruction, places, self._clock, threads, threads)
        self._check_fence(instruction, places, self._fenced[thread])
        self._note_read(instruction, places, columns)

    def matrix_read(self, instruction: Instruction, first_lane: int, places: Array) -> None:
        """Check and note the reads of a warp's `wgmma`."""
        self.time += 1
        lanes = np.arange(first_lane, first_lane + _LANES)
        clock = self._clock[lanes].max(0)[None, :]
        threads = np.zeros(places.size, np.int64)
        columns = np.full(places.size, self._products + first_lane // _LANES)
        own = self._writer[places] // _LANES == first_lane // _LANES
        self._check_read(instruction, places, clock, threads, columns, exempt=own)
        self._check_fence(instruction, places, self._fenced[lanes].max(0))
        self._note_read(instruction, places, columns)

    # -- checks -----------------------------------------------------------------------------------

    def _check_collision(
        self, instruction: Instruction, offsets: Array, lanes: Array, values: Array
    ) -> None:
        """Find threads that write different values to one place with one instruction."""
        order = np.argsort(offsets, kind="stable")
        same = offsets[order][1:] == offsets[order][:-1]
        if not same.any():
            return
        rows = values.reshape(offsets.size, -1)[order]
        differs = same & (rows[1:] != rows[:-1]).any(1)
        for i in np.flatnonzero(differs)[:1]:
            first, second = int(lanes[order[i]]), int(lanes[order[i + 1]])
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
        places: Array,
        clock: Array,
        threads: Array,
        columns: Array,
        *,
        ordered: bool = False,
        exempt: Array | bool = False,
    ) -> None:
        writer, time = self._writer[places], self._write_time[places]
        if self.finds_uninitialised and (writer < 0).any():
            at = int(places[(writer < 0).argmax()])
            message = f"shared byte {at} is read, but nothing has written it"
            self._find("uninitialised", message, instruction, None)
        late = (writer >= 0) & (writer != columns) & (clock[threads, writer] < time) & ~exempt
        if ordered:
            late &= ~self._write_ordered[places]
        self._report(instruction, places, threads, late, writer, self._write_by[places], "reads")

    def _check_write(
        self,
        instruction: Instruction,
        places: Array,
        threads: Array,
        columns: Array,
        *,
        ordered: bool = False,
    ) -> None:
        writer, time = self._writer[places], self._write_time[places]
        late = (writer >= 0) & (writer != columns) & (self._clock[threads, writer] < time)
        if ordered:
            late &= ~self._write_ordered[places]
        self._report(instruction, places, threads, late, writer, self._write_by[places], "writes")
        for slot in range(_READERS):
            reader, time = self._reader[slot][places], self._read_time[slot][places]
            late = (reader >= 0) & (reader != threads) & (self._clock[threads, reader] < time)
            if ordered:
                late &= ~self._read_ordered[slot][places]
            by = self._read_by[slot][places]
            self._report(instruction, places, threads, late, reader, by, "writes", earlier="read")

    def _check_fence(self, instruction: Instruction, places: Array, fenced: Array) -> None:
        """Find bytes that threads wrote with no proxy fence since."""
        writer, time = self._writer[places], self._write_time[places]
        unfenced = (writer >= 0) & (writer < self._barriers) & (fenced[writer] < time)
        if not unfenced.any() or not self.finds_races:
            return
        i = int(unfenced.argmax())
        self._find(
            "missing proxy fence",
            f"shared byte {int(places[i])} was written by thread {int(writer[i]) % self.width}, "
            "with no `fence.proxy.async` before the asynchronous proxy uses it",
            instruction,
            self._instructions[int(self._write_by[places[i]])],
        )

    def _report(
        self,
        instruction: Instruction,
        places: Array,
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
            f"thread {int(threads[i])} {verb} shared byte {int(places[i])}, which {agent}, {why}",
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
        self, instruction: Instruction, places: Array, columns: Array, *, ordered: bool = False
    ) -> None:
        self._writer[places] = columns
        self._write_time[places] = self.time
        self._write_by[places] = self._number(instruction)
        self._write_ordered[places] = ordered
        self._reader[:, places] = -1

    def _note_read(
        self, instruction: Instruction, places: Array, columns: Array, *, ordered: bool = False
    ) -> None:
        slots = columns // _LANES % _READERS
        self._reader[slots, places] = columns
        self._read_time[slots, places] = self.time
        self._read_by[slots, places] = self._number(instruction)
        self._read_ordered[slots, places] = ordered
