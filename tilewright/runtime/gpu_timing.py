"""How long functions take on a GPU, by its own clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import c_size_t, c_ubyte, c_uint64, c_void_p
from typing import Any

from tilewright.runtime.cuda import Device, Event, current_stream, device, driver
from tilewright.runtime.device_array import Memory

__all__ = ["GpuTimer", "gpu_of_torch"]

# How many times the second-level cache is written over between two runs.
_CACHES = 4
_ESTIMATING_RUNS = 5


class GpuTimer:
    """Measures functions that start work on a GPU's current stream.

    Before each run memory larger than the second-level cache is written, so that a run finds none
    of the arrays of the one before there.
    """

    def __init__(self, gpu: Device) -> None:
        self._gpu = gpu
        self._size = max(_CACHES * gpu.l2_bytes, 1)
        self._memory, self._address = self._allocated()

    def _allocated(self) -> tuple[Any, int]:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            # It may be sitting on all the memory there is.
            place = f"cuda:{self._gpu.number}"
            tensor = torch.empty(self._size, dtype=torch.int8, device=place)
            return tensor, int(tensor.data_ptr())
        memory = Memory(self._gpu, self._size)
        return memory, memory.address

    def measure(
        self, fn: Callable[[], Any], warmup: float, rep: float, before: Callable[[], Any]
    ) -> list[float]:
        """Return the milliseconds of single runs.

        `fn` is called for about `warmup` milliseconds first, then timed for about `rep`, cleaning
        the cache included; `before()` is called before each timed run.
        """
        stream = current_stream(self._gpu.number)
        estimate = max(self._total(fn, _ESTIMATING_RUNS, stream) / _ESTIMATING_RUNS, 1e-3)
        for _ in range(max(1, int(warmup / estimate))):
            fn()
        pairs = []
        for _ in range(max(1, int(rep / estimate))):
            before()
            pair = Event(self._gpu), Event(self._gpu)
            self._clean(stream)
            pair[0].record(stream)
            fn()
            pair[1].record(stream)
            pairs.append(pair)
        self._gpu.synchronize("measuring")
        return [end.milliseconds_since(start) for start, end in pairs]

    def _total(self, fn: Callable[[], Any], count: int, stream: int) -> float:
        start, end = Event(self._gpu), Event(self._gpu)
        start.record(stream)
        for _ in range(count):
            self._clean(stream)
            fn()
        end.record(stream)
        self._gpu.synchronize("measuring")
        return end.milliseconds_since(start)

    def _clean(self, stream: int) -> None:
        with self._gpu.active():
            driver().call(
                "cuMemsetD8Async",
                *(c_uint64(self._address), c_ubyte(0), c_size_t(self._size), c_void_p(stream)),
                doing="writing over the cache",
            )


def gpu_of_torch() -> Device | None:
    """Return the GPU on which PyTorch has work to do right now."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    gpu = device(int(torch.cuda.current_device()))
    return None if gpu.is_idle(current_stream(gpu.number)) else gpu
