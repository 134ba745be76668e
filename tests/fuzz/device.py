"""The arrays of one launch in the memory of a GPU."""

from __future__ import annotations

from typing import Any

from tests.executors import DevicePart
from tests.fuzz.arena import Arena
from tilewright import DeviceArray
from tilewright.ir.types import dtype_of_numpy

__all__ = ["DeviceCopy"]


class DeviceCopy:
    """A copy of an arena, its arrays as far from each other and aligned as there."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._memory = DeviceArray.from_numpy(arena.image())
        self.arrays: dict[str, Any] = {}
        for name, array in arena.arrays.items():
            dtype = dtype_of_numpy(array.dtype)
            assert dtype is not None
            self.arrays[name] = DevicePart(self._memory, arena.start_of(name), array.nbytes, dtype)

    def bring_back(self) -> None:
        """Wait for the GPU, and give the arena what is there now."""
        self._arena.take(self._memory.to_numpy())
