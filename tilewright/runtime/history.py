"""The last kernels that were launched on GPUs: an error shows up only in a later call.

Launchers write here in machine code: a counter, then the numbers of kernels, round and round.
"""

from __future__ import annotations

import ctypes

__all__ = ["address", "launches", "note_launch", "recent_names", "register"]

_SLOTS = 16
_memory = (ctypes.c_uint64 * (1 + _SLOTS))()
_names: list[str] = []


def address() -> int:
    """Return where the counter is."""
    return ctypes.addressof(_memory)


def register(name: str) -> int:
    """Return the number of a new kernel."""
    _names.append(name)
    return len(_names) - 1


def note_launch(number: int) -> None:
    """Write down a launch from Python."""
    count = _memory[0]
    _memory[1 + count % _SLOTS] = number
    _memory[0] = count + 1


def launches() -> int:
    """Return how many launches there were."""
    return int(_memory[0])


def recent_names() -> list[str]:
    """Return the names of the last kernels, the last one first, each once."""
    count = launches()
    numbers = (_memory[1 + i % _SLOTS] for i in range(count - 1, max(-1, count - 1 - _SLOTS), -1))
    return list(dict.fromkeys(_names[number] for number in numbers))
