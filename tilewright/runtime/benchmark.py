"""How long a function takes, in milliseconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["do_bench"]

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
    milliseconds. With `quantiles` (fractions) these are returned, one as a number and several as a
    list; otherwise what `return_mode` says: "mean", "median", "min", "max" or "all" (a list).
    `grad_to_none` are tensors whose gradient is dropped before each call.

    Raises `ValueError` for another `return_mode`.
    """
    if return_mode not in _SUMMARIES:
        raise ValueError(f"return_mode is one of {', '.join(_SUMMARIES)}, not {return_mode!r}")
    tensors = list(grad_to_none or ())
    fn()
    started = time.perf_counter()
    for _ in range(_ESTIMATING_RUNS):
        fn()
    estimate = max((time.perf_counter() - started) * 1e3 / _ESTIMATING_RUNS, 1e-6)
    for _ in range(max(1, int(warmup / estimate))):
        fn()
    times = []
    for _ in range(max(1, int(rep / estimate))):
        for tensor in tensors:
            tensor.grad = None
        started = time.perf_counter()
        fn()
        times.append((time.perf_counter() - started) * 1e3)
    if quantiles is not None:
        found = [_quantile(sorted(times), fraction) for fraction in quantiles]
        return found[0] if len(found) == 1 else found
    return _SUMMARIES[return_mode](times)


def _quantile(ordered: list[float], fraction: float) -> float:
    """Return a quantile, interpolating between the two nearest values."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
