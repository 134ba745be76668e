"""How long functions take on a GPU when their launches are recorded and played back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.errors import Unsupported
from tilewright.runtime.benchmark import summary

__all__ = ["do_bench_cudagraph"]

_ESTIMATING_RUNS = 5
_PLAYBACKS = 10


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Return how long `fn()` takes on PyTorch's GPU, in milliseconds, without the host's part.

    As many runs as take `rep` milliseconds are recorded in a CUDA graph, which is played back ten
    times; caches are not written over in between. `grad_to_none`, `quantiles` and `return_mode` are
    those of `do_bench`.

    Raises `Unsupported` where PyTorch has no GPU, `ValueError` for another `return_mode`.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        raise Unsupported(
            "do_bench_cudagraph records launches on PyTorch's GPU, and there is none",
            hint="do_bench measures on every target",
        )
    tensors = list(grad_to_none or ())

    def run(count: int) -> None:
        for _ in range(count):
            for tensor in tensors:
                tensor.grad = None
            fn()

    with torch.cuda.stream(torch.cuda.Stream()):
        run(1)  # compiles
        estimate = max(_elapsed(torch, lambda: run(_ESTIMATING_RUNS)) / _ESTIMATING_RUNS, 1e-3)
        count = max(1, int(rep / estimate))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run(count)
        graph.replay()
        times = [_elapsed(torch, graph.replay) / count for _ in range(_PLAYBACKS)]
    return summary(times, quantiles, return_mode)


def _elapsed(torch: Any, work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))
