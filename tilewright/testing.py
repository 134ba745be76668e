"""Checking and measuring kernels: `assert_close`, `do_bench`, `perf_report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.benchmark import do_bench
from tilewright.runtime.gpu_facts import (
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
    nvsmi,
)
from tilewright.runtime.graph_timing import do_bench_cudagraph
from tilewright.runtime.series import Benchmark, Mark, perf_report
from tilewright.spelling import unknown_name

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "do_bench",
    "do_bench_cudagraph",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
]

_NO_PROFILER = "there is no profiler: `do_bench` takes the time by the GPU's clock"
_ABSENT = {
    "cuda_memcheck": "`tilewright.emulate(...)` and `kernel.debug[grid](...)` find such accesses",
    "do_bench_cudagraph_proton": _NO_PROFILER,
    "do_bench_proton": _NO_PROFILER,
    "set_gpu_clock": "`nvidia-smi --lock-gpu-clocks` sets the clocks, with the right to do so",
}


if not TYPE_CHECKING:  # where types are checked, a name that is not there is an error

    def __getattr__(name: str) -> Any:
        raise unknown_name("tilewright.testing", name, __all__, _ABSENT)


def __dir__() -> list[str]:
    return sorted(__all__)


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Raise `AssertionError` unless `|x - y| <= atol + rtol * |y|` everywhere (NaN equals NaN).

    `x` and `y` are arrays, tensors or numbers; `y` is the expected one. The defaults are
    `atol=1e-2`, `rtol=0`. The message shows the element that is furthest off.
    """
    actual, expected = _as_numpy(x), _as_numpy(y)
    atol = 1e-2 if atol is None else atol
    rtol = 0.0 if rtol is None else rtol
    note = f"{err_msg}: " if err_msg else ""
    if actual.shape != expected.shape and 1 not in {actual.size, expected.size}:
        raise AssertionError(f"{note}the shapes differ: {actual.shape} and {expected.shape}")
    actual, expected = np.broadcast_arrays(actual, expected)
    with np.errstate(all="ignore"):
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        distance = np.where(same, 0.0, np.abs(actual - expected))
        allowed = atol + rtol * np.abs(expected)
        excess = np.where(same, -np.inf, distance - allowed)
    wrong = ~same & ~(distance <= allowed)
    if not wrong.any():
        return
    # A NaN on one side only is as far off as can be.
    worst = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), wrong.shape)
    place = f" at {tuple(map(int, worst))}" if wrong.ndim else ""
    raise AssertionError(
        f"{note}{int(wrong.sum())} of {wrong.size} elements are further apart than atol={atol}, "
        f"rtol={rtol}; the worst is{place}: {actual[worst]} instead of {expected[worst]} "
        f"(difference {distance[worst]:.6g}, allowed {allowed[worst]:.6g})"
    )


def _as_numpy(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # NumPy has no type for some of PyTorch's.
        value = value.double() if value.is_floating_point() else value
    array = np.asarray(value)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        return array.astype(np.longdouble)  # fp64 has no place for 64 bits
    return array if array.dtype == np.complex128 else array.astype(np.float64)
