"""What is in flight: mbarriers, copies that complete later, and matrix products.

A copy is carried out as late as the program allows: when a thread waits for it, or at the end. A
kernel that reads too early then reads what was there before, as it may on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright.emulator.floats import Array

__all__ = ["AsyncState", "BulkCopy", "MBarrier", "PendingCopy", "Product"]


@dataclass
class MBarrier:
    """A barrier object: a phase ends when no arrival and no byte is pending."""

    expected: int
    pending: int
    transactions: int = 0
    phase: int = 0
    loads: list[Callable[[], None]] = field(default_factory=list)

    def complete(self) -> bool:
        """End the phase if nothing is pending; return whether it ended."""
        if self.pending > 0 or self.transactions != 0:
            return False
        self.pending, self.phase = self.expected, self.phase + 1
        return True


@dataclass
class PendingCopy:
    """`cp.async` of some threads: what will be written, and the group of each thread."""

    lanes: Array
    groups: Array
    index: Array
    values: Array
    itemsize: int
    time: int
    written: Array


@dataclass
class BulkCopy:
    """A copy out of shared memory that belongs to a bulk group of a thread."""

    thread: int
    group: int
    time: int
    run: Callable[[], None]


@dataclass
class Product:
    """A `wgmma` in flight: its threads, and the registers that must be left alone."""

    mask: Array
    registers: frozenset[str]
    line: int
    group: int
    time: int


class AsyncState:
    """All that is in flight in the blocks of a machine."""

    def __init__(self, width: int) -> None:
        self.mbarriers: dict[tuple[int, int], MBarrier] = {}
        self.copy_group: Array = np.zeros(width, np.int64)
        self.copies: list[PendingCopy] = []
        self.bulk_group: Array = np.zeros(width, np.int64)
        self.bulk_copies: list[BulkCopy] = []
        self.product_group: Array = np.zeros(width, np.int64)
        self.products: list[Product] = []

    def drain(self) -> None:
        """Carry out the copies to global memory that nothing has waited for."""
        for copy in self.bulk_copies:
            copy.run()
        self.bulk_copies.clear()
