"""Memory for the arrays of one launch, between pages that must not be touched."""

from __future__ import annotations

import ctypes
import mmap
import zlib
from collections.abc import Mapping

import numpy as np

from tilewright.interpreter import MemoryRegion

__all__ = ["Arena"]

_FILL = 0xA5
_LIBC = ctypes.CDLL(None, use_errno=True)


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
        self._places: dict[str, tuple[np.ndarray, int]] = {}
        start = 0
        for name, array in arrays.items():
            self._forbid(start)
            start += page
            span = self._bytes[start : start + spans[name]]
            first = span.size - array.nbytes if zlib.crc32(name.encode()) % 2 else 0
            memory = (ctypes.c_uint8 * array.nbytes).from_address(span.ctypes.data + first)
            # An array over just this memory: a view of all of it could be taken for larger.
            self.arrays[name] = np.frombuffer(memory, np.uint8).view(array.dtype)
            self.arrays[name][:] = array
            self._places[name] = span, first
            start += span.size
        self._forbid(start)

    @property
    def regions(self) -> list[MemoryRegion]:
        return [MemoryRegion(a.ctypes.data, a.nbytes, name) for name, a in self.arrays.items()]

    def overrun(self) -> str:
        """The name of an array beside which something was written; empty if there is none."""
        for name, (span, first) in self._places.items():
            end = first + self.arrays[name].nbytes
            if (span[:first] != _FILL).any() or (span[end:] != _FILL).any():
                return name
        return ""

    def _forbid(self, start: int) -> None:
        address = ctypes.c_void_p(self._base + start)
        if _LIBC.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
