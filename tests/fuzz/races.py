"""An interpreter for kernels whose result must not depend on the order of programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.arena import Arena
from tilewright.errors import LaunchError
from tilewright.interpreter import Interpreter, MemoryRegion
from tilewright.ir.core import Op
from tilewright.ir.types import DType
from tilewright.ops import AtomicCas, AtomicRmw

__all__ = ["RaceDetector"]


class RaceDetector(Interpreter):
    """An interpreter that refuses kernels whose result depends on the order of programs.

    For each byte it keeps which program read it, wrote it or changed it atomically: -1 for none,
    -2 for several.
    """

    def __init__(self, grid: tuple[int, int, int], arena: Arena) -> None:
        super().__init__(grid, arena.regions)
        self._is_atomic = False
        self._shadows = [
            (region, {what: np.full(region.size_bytes, -1) for what in ("read", "write", "atomic")})
            for region in arena.regions
        ]

    def evaluate(self, op: Op, lookup: Any) -> tuple[np.ndarray, ...]:
        self._is_atomic = isinstance(op, AtomicRmw | AtomicCas)
        return super().evaluate(op, lookup)

    def read(self, addresses: np.ndarray, dtype: DType) -> np.ndarray:
        values = super().read(addresses, dtype)
        self._note("atomic" if self._is_atomic else "read", addresses, dtype.itemsize)
        return values

    def write(self, addresses: np.ndarray, values: np.ndarray) -> None:
        super().write(addresses, values)
        self._note("atomic" if self._is_atomic else "write", addresses, values.dtype.itemsize)
        if np.unique(addresses).size != addresses.size:
            raise LaunchError("two lanes of one store have the same address")

    def _note(self, what: str, addresses: np.ndarray, itemsize: int) -> None:
        if self.grid == (1, 1, 1):
            return
        x, y, z = self.program_id
        program = x + self.grid[0] * (y + self.grid[1] * z)
        forbidden = {
            "read": ("write", "atomic"),
            "write": ("read", "write", "atomic"),
            "atomic": ("read", "write"),
        }
        for region, users in self._shadows:
            places = _bytes_inside(region, addresses, itemsize)
            for other in forbidden[what]:
                found = users[other][places]
                if ((found != -1) & (found != program)).any():
                    raise LaunchError(
                        f"a race between programs: {what} after {other} in `{region.name}`"
                    )
            before = users[what][places]
            users[what][places] = np.where((before == -1) | (before == program), program, -2)


def _bytes_inside(region: MemoryRegion, addresses: np.ndarray, itemsize: int) -> np.ndarray:
    places = (addresses[:, None] - region.start + np.arange(itemsize)).reshape(-1)
    return places[(places >= 0) & (places < region.size_bytes)]
