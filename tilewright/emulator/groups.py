"""The threads of a launch: which run together, where each one is, and what it waits for."""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from tilewright.emulator.floats import Array

__all__ = ["LANES", "Group", "Outcome", "Signal", "State", "Step", "lane_bits"]

LANES = 32


class State(enum.IntEnum):
    """What a thread is doing."""

    RUNNING = 0
    CONVERGING = 1  # waits for other lanes of its warp at the same instruction
    BARRIER = 2
    MBARRIER = 3
    DONE = 4


class Signal(enum.Enum):
    """Tells the scheduler to choose again; the instruction has set the places of its threads."""

    RESCHEDULE = 0


class Group:
    """Threads that execute one instruction together.

    `mask` has one bool for each thread of the machine. `where` is what a ufunc takes: True if all
    threads are here.
    """

    __slots__ = ("_lanes", "count", "is_alone", "mask", "stop", "where")

    def __init__(self, mask: Array, *, stop: int = -1, is_alone: bool = False) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self.where: Array | bool = True if self.count == mask.size else mask
        self.stop = stop
        self.is_alone = is_alone
        self._lanes: Array | None = None

    @property
    def lanes(self) -> Array:
        """The indices of the threads."""
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    @property
    def is_full(self) -> bool:
        """Whether every thread of the machine is here."""
        return self.where is True

    def narrow(self, condition: Array) -> Group:
        """Return the threads of this group for which the condition holds."""
        return Group(self.mask & condition)


def lane_bits(mask: Array) -> Array:
    """Return for each warp the bits of its lanes in a mask."""
    packed = np.packbits(mask.reshape(-1, LANES), axis=1, bitorder="little")
    bits: Array = packed.view(np.uint32)[:, 0]
    return bits


# None: the next instruction, same threads. A number: all threads jump there. A group: the next
# instruction, with these threads.
Outcome = None | int | Group | Signal
Step = Callable[[Group], Outcome]
