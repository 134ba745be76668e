"""Which thread has written a byte of global memory last, and when, for copies that ask later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.memory import Buffer, GlobalMemory

__all__ = ["GlobalWrites", "Write"]

_MOST_BYTES = 1 << 30  # of a buffer that is watched


class Write(NamedTuple):
    """A byte that was written: where, by which thread, when, and by which instruction."""

    address: int
    thread: int
    time: int
    by: int


class GlobalWrites:
    """The last writes of threads to the bytes of all buffers."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._notes: dict[int, tuple[Array, Array, Array]] = {}

    def clear(self) -> None:
        """Forget everything: new blocks begin."""
        self._notes.clear()

    def note(self, addresses: Array, itemsize: int, threads: Array, time: int, by: int) -> None:
        """Note that threads write items."""
        for buffer, chosen in self._parts(addresses, itemsize):
            if buffer.start not in self._notes:
                size = buffer.data.size  # pages that stay 0 take no memory
                notes = (np.zeros(size, np.int32), np.zeros(size, np.int32))
                self._notes[buffer.start] = (*notes, np.zeros(size, np.int32))
            thread, when, instruction = self._notes[buffer.start]
            places = _bytes(addresses[chosen], itemsize, buffer)
            thread[places] = np.repeat(threads[chosen], itemsize)
            when[places] = time
            instruction[places] = by

    def of(self, addresses: Array, itemsize: int) -> list[Write]:
        """Return the latest write of each thread to some items."""
        found = []
        for buffer, chosen in self._parts(addresses, itemsize):
            if buffer.start not in self._notes:
                continue
            thread, when, by = self._notes[buffer.start]
            places = _bytes(addresses[chosen], itemsize, buffer)
            places = places[when[places] > 0]
            places = places[np.argsort(when[places], kind="stable")][::-1]
            _, first = np.unique(thread[places], return_index=True)
            found += [
                Write(buffer.start + int(at), int(thread[at]), int(when[at]), int(by[at]))
                for at in places[first]
            ]
        return found

    def _parts(self, addresses: Array, itemsize: int) -> list[tuple[Buffer, Array]]:
        parts = []
        for buffer in self._memory.buffers:
            if buffer.data.size <= _MOST_BYTES:
                within = (addresses >= buffer.start) & (addresses + itemsize <= buffer.end)
                if within.any():
                    parts.append((buffer, np.flatnonzero(within)))
        return parts


def _bytes(addresses: Array, itemsize: int, buffer: Buffer) -> Array:
    first = (addresses - np.uint64(buffer.start)).astype(np.int64)
    return np.asarray((first[:, None] + np.arange(itemsize)).reshape(-1))
