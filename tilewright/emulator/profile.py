"""Counting what memory accesses cost: wavefronts of shared memory, sectors of global memory."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.program import Instruction
from tilewright.emulator.report import LineCounts

__all__ = ["Profile"]

_LANES = 32
_BANKS = 32
_SECTOR_BITS = 5


class Profile:
    """Counts by source line."""

    def __init__(self) -> None:
        self._lines: dict[tuple[tuple[str, int], ...], LineCounts] = {}

    @property
    def lines(self) -> list[LineCounts]:
        """The counts, in the order of the lines."""
        return [self._lines[key] for key in sorted(self._lines)]

    def _line(self, instruction: Instruction) -> LineCounts:
        source = instruction.source or ("PTX line", instruction.line)
        key = (source, *instruction.callers)
        if key not in self._lines:
            place = instruction.source_text() or f"PTX line {instruction.line}"
            self._lines[key] = LineCounts(place, instruction.location())
        return self._lines[key]

    def global_access(
        self, instruction: Instruction, addresses: Array, itemsize: int, lanes: Array
    ) -> None:
        """Count the sectors that each warp touches."""
        counts = self._line(instruction)
        warps = (lanes // _LANES).astype(np.uint64)
        sectors = addresses >> np.uint64(_SECTOR_BITS)
        touched = np.unique((warps << np.uint64(42)) | sectors)
        per_warp = np.bincount(lanes // _LANES)
        present = per_warp[per_warp > 0]
        actual = np.bincount((touched >> np.uint64(42)).astype(np.int64))
        ideal = -(-present * itemsize // (1 << _SECTOR_BITS))
        counts.global_accesses += present.size
        counts.sectors += touched.size
        counts.ideal_sectors += int(np.minimum(ideal, actual[actual > 0]).sum())

    def shared_access(
        self, instruction: Instruction, offsets: Array, itemsize: int, lanes: Array
    ) -> None:
        """Count wavefronts: 32 lanes of 4 bytes, 16 of 8 or 8 of 16 go at once."""
        counts = self._line(instruction)
        lanes_at_once = _LANES * 4 // max(itemsize, 4)
        phases = lanes // lanes_at_once
        words_each = max(1, itemsize // 4)
        words = (offsets[:, None] // 4 + np.arange(words_each)).reshape(-1)
        owner = np.repeat(phases, words_each).astype(np.int64)
        distinct = np.unique((owner << 32) | words)
        bank = (distinct >> 32) * _BANKS + (distinct & (_BANKS - 1))
        used, depth = np.unique(bank, return_counts=True)
        phase = used // _BANKS
        starts = np.flatnonzero(np.r_[True, phase[1:] != phase[:-1]])
        counts.shared_accesses += np.unique(lanes // _LANES).size
        counts.wavefronts += int(np.maximum.reduceat(depth, starts).sum())
        counts.ideal_wavefronts += starts.size
