"""Memory for the arrays of one launch, between pages that must not be touched."""

from __future__ import annotations

import ctypes
import mmap
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.interpreter import MemoryRegion

__all__ = ["Arena"]

_FILL = 0xA5
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Place:
    """The pages of an array, and where it starts in them."""

    pages: slice
    first: int


class Arena:
    """Copies of arrays, each in pages of its own with an inaccessible page on either side.

    Half of the arrays begin where their pages do, the others end there: an access behind the end
    or before the start stops the process, or changes the filling, which `overrun` finds.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        page = mmap.PAGESIZE
        spans = {name: -(-max(a.nbytes, 1) // page) * page for name, a in arrays.items()}
        self._memory = mmap.mmap(-1, sum(spans.values()) + page * (len(spans) + 1))
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._bytes[:] = _FILL
        self._base = self._bytes.ctypes.data
        self.arrays: dict[str, np.ndarray] = {}
        self._places: dict[str, _Place] = {}
        self._is_overrun = False
        start = 0
        for name, array in arrays.items():
            self._forbid(start)
            start += page
            end = start + spans[name]
            first = end - array.nbytes if zlib.crc32(name.encode()) % 2 else start
            memory = (ctypes.c_uint8 * array.nbytes).from_address(self._base + first)
            # An array over just this memory: a view of all of it could be taken for larger.
            self.arrays[name] = np.frombuffer(memory, np.uint8).view(array.dtype)
            self.arrays[name][:] = array
            self._places[name] = _Place(slice(start, end), first)
            start = end
        self._forbid(start)

    @property
    def regions(self) -> list[MemoryRegion]:
        return [MemoryRegion(a.ctypes.data, a.nbytes, name) for name, a in self.arrays.items()]

    def start_of(self, name: str) -> int:
        """Where an array starts in `image`."""
        return self._places[name].first

    def image(self) -> np.ndarray:
        """A copy of all bytes; those that are not to be touched hold the filling."""
        image = np.full(self._bytes.size, _FILL, np.uint8)
        for place in self._places.values():
            image[place.pages] = self._bytes[place.pages]
        return image

    def take(self, image: np.ndarray) -> None:
        """Take the bytes of an image, of which a kernel has changed some."""
        between = np.ones(image.size, bool)
        for place in self._places.values():
            between[place.pages] = False
            self._bytes[place.pages] = image[place.pages]
        self._is_overrun = bool((image[between] != _FILL).any())

    def overrun(self) -> str:
        """The name of an array beside which something was written; empty if there is none."""
        for name, place in self._places.items():
            start, end = place.first, place.first + self.arrays[name].nbytes
            beside = self._bytes[place.pages.start : start], self._bytes[end : place.pages.stop]
            if any((part != _FILL).any() for part in beside):
                return name
        return "the arrays" if self._is_overrun else ""

    def _forbid(self, start: int) -> None:
        address = ctypes.c_void_p(self._base + start)
        if _LIBC.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
