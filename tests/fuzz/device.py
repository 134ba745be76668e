"""The arrays of one launch in the memory of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fuzz.arena import Arena
from tilewright import DeviceArray
from tilewright.ir.types import DType, dtype_of_numpy

__all__ = ["DeviceCopy"]


@dataclass
class _Part:
    """An array inside the memory of another."""

    whole: DeviceArray
    start: int
    size_bytes: int
    dtype: DType

    @property
    def device(self) -> str:
        return self.whole.device

    @property
    def extent(self) -> tuple[int, int]:
        return self.data_ptr(), self.size_bytes

    def data_ptr(self) -> int:
        return self.whole.data_ptr() + self.start


class DeviceCopy:
    """A copy of an arena, its arrays as far from each other and aligned as there."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._memory = DeviceArray.from_numpy(arena.image())
        self.arrays: dict[str, Any] = {}
        for name, array in arena.arrays.items():
            dtype = dtype_of_numpy(array.dtype)
            assert dtype is not None
            self.arrays[name] = _Part(self._memory, arena.start_of(name), array.nbytes, dtype)

    def bring_back(self) -> None:
        """Wait for the GPU, and give the arena what is there now."""
        self._arena.take(self._memory.to_numpy())
