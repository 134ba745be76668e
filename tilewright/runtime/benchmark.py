"""How long a function takes, in milliseconds."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.runtime import history
from tilewright.runtime.deferred import Deferred

if TYPE_CHECKING:
    from tilewright.runtime import cuda, gpu_timing
else:
    cuda = Deferred("tilewright.runtime.cuda")
    gpu_timing = Deferred("tilewright.runtime.gpu_timing")

__all__ = ["do_bench", "summary"]

_SUMMARIES: dict[str, Callable[[list[float]], Any]] = {
    "mean": lambda times: sum(times) / len(times),
    "median": lambda times: _quantile(sorted(times), 0.5),
    "min": min,
    "max": max,
    "all": list,
}

_ESTIMATING_RUNS = 5


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Return how long `fn()` takes, in milliseconds.

    It is called for about `warmup` milliseconds first, then timed again and again for about `rep`
    milliseconds: by the clock of the GPU where it starts work on one, with the cache of that one
    written over before each run, else by the host's. With `quantiles` (fractions) these are
    returned, one as a number and several as a list; otherwise what `return_mode` says: "mean",
    "median", "min", "max" or "all" (a list).
    `grad_to_none` are tensors whose gradient is dropped before each call.

    Raises `ValueError` for another `return_mode`.
    """
    _require_mode(return_mode)
    tensors = list(grad_to_none or ())

    def drop_gradients() -> None:
        for tensor in tensors:
            tensor.grad = None

    fn()
    gpu = _gpu_of(fn)
    if gpu is not None:
        times = gpu_timing.GpuTimer(gpu).measure(fn, warmup, rep, drop_gradients)
    else:
        times = _host_times(fn, warmup, rep, drop_gradients)
    return summary(times, quantiles, return_mode)


def summary(times: list[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """Return quantiles of times, or else what `return_mode` says."""
    _require_mode(return_mode)
    if quantiles is not None:
        found = [_quantile(sorted(times), fraction) for fraction in quantiles]
        return found[0] if len(found) == 1 else found
    return _SUMMARIES[return_mode](times)


def _require_mode(return_mode: str) -> None:
    if return_mode not in _SUMMARIES:
        raise ValueError(f"return_mode is one of {', '.join(_SUMMARIES)}, not {return_mode!r}")


def _gpu_of(fn: Callable[[], Any]) -> cuda.Device | None:
    """Return the GPU on which `fn()` starts work, None where it has all done when it returns."""
    before = history.launches()
    fn()
    number = history.last_gpu()
    if history.launches() != before and number is not None:
        return cuda.device(number)
    return gpu_timing.gpu_of_torch() if "torch" in sys.modules else None


def _host_times(
    fn: Callable[[], Any], warmup: float, rep: float, before: Callable[[], Any]
) -> list[float]:
    started = time.perf_counter()
    for _ in range(_ESTIMATING_RUNS):
        fn()
    estimate = max((time.perf_counter() - started) * 1e3 / _ESTIMATING_RUNS, 1e-6)
    for _ in range(max(1, int(warmup / estimate))):
        fn()
    times = []
    for _ in range(max(1, int(rep / estimate))):
        before()
        started = time.perf_counter()
        fn()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def _quantile(ordered: list[float], fraction: float) -> float:
    """Return a quantile, interpolating between the two nearest values."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
