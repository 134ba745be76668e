"""Arrays whose memory is only lent: they are kept until the kernels launched on them have ended.

A library that gives its memory by DLPack (JAX) uses it again as soon as nobody has the array any
more, on streams of its own, which know nothing of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.locks import Lock
from tilewright.runtime.cuda import Device, Event

__all__ = ["keep_until_done"]

_lock = Lock()
_kept: list[tuple[Event, list[object]]] = []


def keep_until_done(gpu: Device, stream: int, arrays: Iterable[object]) -> None:
    """Keep arrays until what is on a stream has ended.

    They go when this is called again behind that. What is recorded as a graph is left to whoever
    keeps the graph.
    """
    held = list(arrays)
    if not held or gpu.is_capturing(stream):
        return
    event = Event(gpu, is_timed=False)
    event.record(stream)
    with _lock:
        _kept[:] = [(earlier, those) for earlier, those in _kept if not earlier.has_passed()]
        _kept.append((event, held))
