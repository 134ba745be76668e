"""Checking and measuring kernels: `assert_close`, `do_bench`, `perf_report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
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


# ---- comparing ------------------------------------------------------------------------------


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


# ---- measuring series -----------------------------------------------------------------------


@dataclass
class Benchmark:
    """A series of measurements: one line for each value of `line_arg`, along `x_names`.

    The measured function gets `x_names` (each set to the same x where the x are numbers),
    `line_arg` and `args`. It returns a number, or a number with a lower and an upper bound.
    """

    x_names: list[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: dict[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a measuring function, so that `function.run(print_data=True)` runs the series."""
    return lambda fn: Mark(fn, benchmarks)


class Mark:
    """A measuring function with its series; see `perf_report`."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure every series; print, plot and save as asked.

        Returns the tables (pandas data frames, one for a single benchmark) with `return_df`.
        Needs pandas, and matplotlib to plot. Files are written to the directory `save_path`.
        """
        single = isinstance(self.benchmarks, Benchmark)
        benchmarks = (
            [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else self.benchmarks
        )
        tables = []
        for benchmark in benchmarks:
            table = self._measure(benchmark, kwargs)
            tables.append(table)
            if (show_plots or save_path) and benchmark.plot_name:
                _plot(benchmark, table, show=show_plots, directory=save_path)
            shown = table[[*benchmark.x_names, *benchmark.line_names]]
            if print_data:
                print(f"{benchmark.plot_name}:")  # noqa: T201 - asked for
                print(shown.to_string())  # noqa: T201
            if save_path:
                Path(save_path).mkdir(parents=True, exist_ok=True)
                shown.to_csv(Path(save_path) / f"{benchmark.plot_name}.csv", index=False)
        if not return_df:
            return None
        return tables[0] if single else tables

    def _measure(self, benchmark: Benchmark, kwargs: dict[str, Any]) -> Any:
        import pandas as pd

        names = list(benchmark.line_names)
        columns = [
            *benchmark.x_names,
            *names,
            *(f"{name}-{bound}" for name in names for bound in ("min", "max")),
        ]
        rows = []
        for x in benchmark.x_vals:
            xs = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
            if len(xs) != len(benchmark.x_names):
                raise ValueError(f"{x!r} does not have a value for each of {benchmark.x_names}")
            settings = {**dict(zip(benchmark.x_names, xs, strict=True)), **benchmark.args, **kwargs}
            results = [
                self.fn(**settings, **{benchmark.line_arg: value}) for value in benchmark.line_vals
            ]
            triples = [r if isinstance(r, tuple | list) else (r, None, None) for r in results]
            bounds = [bound for _, low, high in triples for bound in (low, high)]
            rows.append([*xs, *(middle for middle, _, _ in triples), *bounds])
        return pd.DataFrame(rows, columns=columns)


def _plot(benchmark: Benchmark, table: Any, *, show: bool, directory: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    first = benchmark.x_names[0]
    for number, name in enumerate(benchmark.line_names):
        color, line = benchmark.styles[number] if benchmark.styles else (None, None)
        axes.plot(table[first], table[name], label=name, color=color, linestyle=line)
        low, high = table[f"{name}-min"], table[f"{name}-max"]
        if low.notna().all() and high.notna().all():
            axes.fill_between(
                table[first], low.astype(float), high.astype(float), alpha=0.15, color=color
            )
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or first)
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        figure.savefig(Path(directory) / f"{benchmark.plot_name}.png")
    if show:
        plt.show()
    plt.close(figure)
