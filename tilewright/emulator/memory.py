"""The memories of a launch: global buffers, and the spaces that a generic address can lead to.

Global addresses are the real addresses of NumPy's data, so that pointers inside arrays work. The
other spaces have windows in the generic address space, above anything a process can map.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.program import EmulatorError

__all__ = [
    "CONSTANT_START",
    "LOCAL_WINDOW",
    "PARAMETER_WINDOW",
    "SHARED_BASE",
    "SHARED_WINDOW",
    "Buffer",
    "GlobalMemory",
    "OutOfBounds",
    "typed",
    "window_of",
]

CONSTANT_START = 1 << 12
SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
PARAMETER_WINDOW = 1 << 58
SHARED_BASE = 1024  # the system keeps what is below
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}


def window_of(space: str) -> int:
    """Return the generic address at which a space begins (0 for global memory)."""
    return _WINDOWS.get(space, 0)


def typed(memory: Array, itemsize: int) -> Array:
    """View bytes as items of 1 to 16 bytes: shape (n,), or (n, 2) for 16."""
    usable = memory[: memory.size - memory.size % itemsize]
    if itemsize == 16:
        return usable.view(np.uint64).reshape(-1, 2)
    return usable.view(f"u{itemsize}")


@dataclass
class Buffer:
    """An array that kernels may touch; `data` are its bytes."""

    name: str
    start: int
    data: Array
    writable: bool = True
    owner: Any = None  # keeps the memory alive

    @property
    def end(self) -> int:
        return self.start + self.data.size

    @classmethod
    def of(cls, array: Array, name: str) -> Buffer:
        """Take all bytes that a (possibly strided) array spans."""
        low, high = np.lib.array_utils.byte_bounds(array)
        return cls.at(low, high - low, name, writable=array.flags.writeable, owner=array)

    @classmethod
    def at(
        cls, start: int, size: int, name: str, *, writable: bool = True, owner: Any = None
    ) -> Buffer:
        """Take `size` bytes at an address; `owner` is what has to live as long."""
        raw = (ctypes.c_uint8 * size).from_address(start)
        return cls(name, start, np.frombuffer(memoryview(raw), np.uint8), writable, owner)

    @classmethod
    def everything(cls) -> Buffer:
        """Stand for all memory of the process: for addresses of which nothing is known."""
        return cls("memory", _Everything.start, np.asarray(_Everything()))


class _Everything:
    """What lies behind every address that a process can have, as NumPy's protocol describes it."""

    start = 1 << 12
    __array_interface__: ClassVar[dict[str, Any]] = {
        "version": 3,
        "typestr": "|u1",
        "shape": ((1 << 47) - (1 << 12),),
        "data": (start, False),
    }


class GlobalMemory:
    """Buffers by address. An access outside all of them is an error."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._last: Buffer | None = None

    def add(self, buffer: Buffer) -> int:
        """Make a buffer reachable; return its address."""
        if buffer.data.size:
            self.buffers.append(buffer)
            self.buffers.sort(key=lambda item: (item.start, item.data.size))
        return buffer.start

    def read(self, addresses: Array, itemsize: int) -> Array:
        """Return the items at addresses (checked to be aligned)."""
        buffer = self._single(addresses, itemsize)
        if buffer is not None:
            return _gather(buffer, addresses, itemsize)
        shape = (addresses.size, 2) if itemsize == 16 else (addresses.size,)
        result: Array = np.empty(shape, np.uint64 if itemsize == 16 else f"u{itemsize}")
        for part, lanes in self._parts(addresses, itemsize, writing=False):
            result[lanes] = _gather(part, addresses[lanes], itemsize)
        return result

    def write(self, addresses: Array, values: Array, itemsize: int) -> None:
        """Store items; of equal addresses the last one wins."""
        buffer = self._single(addresses, itemsize)
        if buffer is not None and buffer.writable:
            _scatter(buffer, addresses, values, itemsize)
            return
        for part, lanes in self._parts(addresses, itemsize, writing=True):
            _scatter(part, addresses[lanes], values[lanes], itemsize)

    def span(self, address: int, size_bytes: int, *, writing: bool = False) -> Array:
        """Return a range of bytes as a view."""
        one = np.array([address], np.uint64)
        for part, _ in self._parts(one, size_bytes, writing=writing):
            first = address - part.start
            return part.data[first : first + size_bytes]
        return np.empty(0, np.uint8)

    def _single(self, addresses: Array, itemsize: int) -> Buffer | None:
        low, high = int(addresses.min()), int(addresses.max())
        last = self._last
        if last is not None and last.start <= low and high + itemsize <= last.end:
            return last
        for buffer in self.buffers:
            if buffer.start <= low and high + itemsize <= buffer.end:
                self._last = buffer
                return buffer
        return None

    def _parts(
        self, addresses: Array, itemsize: int, *, writing: bool
    ) -> list[tuple[Buffer, Array]]:
        parts: list[tuple[Buffer, Array]] = []
        left = np.ones(addresses.size, bool)
        for buffer in self.buffers:
            if writing and not buffer.writable:
                continue
            inside = left & (addresses >= np.uint64(buffer.start))
            inside &= addresses + np.uint64(itemsize) <= np.uint64(buffer.end)
            if inside.any():
                parts.append((buffer, np.flatnonzero(inside)))
                left &= ~inside
        if left.any():
            lane = int(np.flatnonzero(left)[0])
            raise OutOfBounds(lane, self._describe(int(addresses[lane]), itemsize, writing=writing))
        return parts

    def _describe(self, address: int, itemsize: int, *, writing: bool) -> str:
        what = f"{'write' if writing else 'read'} of {itemsize} bytes"
        if not self.buffers:
            return f"out-of-bounds {what} at address {address:#x}"

        def distance(buffer: Buffer) -> int:
            return max(buffer.start - address, address - buffer.end, 0)

        nearest = min(self.buffers, key=distance)
        offset = address - nearest.start
        if 0 <= offset <= nearest.data.size - itemsize:
            return f"{what} to the read-only `{nearest.name}`"
        return (
            f"out-of-bounds {what} at byte {offset} of `{nearest.name}`, "
            f"which has {nearest.data.size} bytes"
        )


class OutOfBounds(EmulatorError):
    """An access outside of memory; `lane` is its position among the accesses."""

    def __init__(self, lane: int, message: str) -> None:
        super().__init__(message)
        self.lane = lane


def _gather(buffer: Buffer, addresses: Array, itemsize: int) -> Array:
    offsets = (addresses - np.uint64(buffer.start)).astype(np.int64)
    if itemsize == 1 or not (buffer.start % itemsize or buffer.data.size % itemsize):
        result: Array = typed(buffer.data, itemsize)[offsets // itemsize]
        return result
    raw = buffer.data[offsets[:, None] + np.arange(itemsize)]
    items = raw.view(np.uint64) if itemsize == 16 else raw.view(f"u{itemsize}")[:, 0]
    return np.asarray(items)


def _scatter(buffer: Buffer, addresses: Array, values: Array, itemsize: int) -> None:
    offsets = (addresses - np.uint64(buffer.start)).astype(np.int64)
    if itemsize == 1 or not (buffer.start % itemsize or buffer.data.size % itemsize):
        typed(buffer.data, itemsize)[offsets // itemsize] = values
        return
    raw: Any = np.ascontiguousarray(values).view(np.uint8).reshape(addresses.size, itemsize)
    buffer.data[offsets[:, None] + np.arange(itemsize)] = raw
