"""The last kernels that were launched on GPUs: an error shows up only in a later call.

Launchers write here in machine code: a counter, then the numbers of kernels, round and round.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

__all__ = ["address", "last_gpu", "launches", "note_launch", "recent_names", "register"]

_SLOTS = 16
_memory = (ctypes.c_uint64 * (1 + _SLOTS))()
_kernels: list[tuple[str, int]] = []


def address() -> int:
    """Return where the counter is."""
    return ctypes.addressof(_memory)


def register(name: str, gpu: int) -> int:
    """Return the number of a new kernel on a GPU."""
    _kernels.append((name, gpu))
    return len(_kernels) - 1


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
    return list(dict.fromkeys(name for name, _ in _recent()))


def last_gpu() -> int | None:
    """Return the number of the GPU of the last launch, None where there was none."""
    return next((gpu for _, gpu in _recent()), None)


def _recent() -> Iterator[tuple[str, int]]:
    count = launches()
    for i in range(count - 1, max(-1, count - 1 - _SLOTS), -1):
        yield _kernels[_memory[1 + i % _SLOTS]]
