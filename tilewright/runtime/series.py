"""Series of measurements: `perf_report`, its tables and its plots."""

from __future__ import annotations

import csv
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.errors import Unsupported

__all__ = ["Benchmark", "Mark", "perf_report"]


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

        Returns the tables as pandas data frames, one for a single benchmark, with `return_df`.
        Plots need matplotlib. Files are written to the directory `save_path`: a table, and a plot
        where there is matplotlib. Raises `Unsupported` where a package is missing.
        """
        single = isinstance(self.benchmarks, Benchmark)
        benchmarks = (
            [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else self.benchmarks
        )
        frame = _package("pandas", "tables to return") if return_df else None
        if show_plots:
            _package("matplotlib.pyplot", "plots")
        tables = []
        for benchmark in benchmarks:
            table = _measure(self.fn, benchmark, kwargs)
            tables.append(table)
            shown = table.of([*benchmark.x_names, *benchmark.line_names])
            if print_data:
                print(f"{benchmark.plot_name}:\n{shown}")  # noqa: T201 - asked for
            if save_path:
                shown.save(Path(save_path), f"{benchmark.plot_name}.csv")
            if show_plots or (save_path and benchmark.plot_name and _has("matplotlib")):
                _plot(benchmark, table, show=show_plots, directory=save_path)
        if frame is None:
            return None
        made = [frame.DataFrame(table.rows, columns=table.columns) for table in tables]
        return made[0] if single else made


class Table(NamedTuple):
    """Rows of values under names."""

    columns: list[str]
    rows: list[list[Any]]

    def __str__(self) -> str:
        lines = [["", *self.columns]]
        lines += [[str(i), *map(_text, row)] for i, row in enumerate(self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
            for line in lines
        )

    def column(self, name: str) -> list[Any]:
        """Return the values under a name."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def of(self, columns: list[str]) -> Table:
        """Return the same with these columns only."""
        places = [self.columns.index(name) for name in columns]
        return Table(columns, [[row[place] for place in places] for row in self.rows])

    def save(self, directory: Path, name: str) -> None:
        """Write a file of values with commas between them."""
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.columns, *self.rows])


def _text(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _measure(fn: Callable[..., Any], benchmark: Benchmark, kwargs: dict[str, Any]) -> Table:
    names = list(benchmark.line_names)
    bounds = [f"{name}-{bound}" for name in names for bound in ("min", "max")]
    rows = []
    for x in benchmark.x_vals:
        xs = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
        if len(xs) != len(benchmark.x_names):
            raise ValueError(f"{x!r} does not have a value for each of {benchmark.x_names}")
        settings = {**dict(zip(benchmark.x_names, xs, strict=True)), **benchmark.args, **kwargs}
        results = [fn(**settings, **{benchmark.line_arg: value}) for value in benchmark.line_vals]
        triples = [r if isinstance(r, tuple | list) else (r, None, None) for r in results]
        lowest_and_highest = [bound for _, low, high in triples for bound in (low, high)]
        rows.append([*xs, *(middle for middle, _, _ in triples), *lowest_and_highest])
    return Table([*benchmark.x_names, *names, *bounds], rows)


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _package(name: str, purpose: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise Unsupported(
            f"perf_report: {purpose} need {package}, which is not installed",
            hint="pip install 'tilewright[plot]'",
        ) from None


def _plot(benchmark: Benchmark, table: Table, *, show: bool, directory: str) -> None:
    plots = _package("matplotlib.pyplot", "plots")
    figure, axes = plots.subplots()
    first = benchmark.x_names[0]
    along = table.column(first)
    for number, name in enumerate(benchmark.line_names):
        color, line = benchmark.styles[number] if benchmark.styles else (None, None)
        axes.plot(along, table.column(name), label=name, color=color, linestyle=line)
        low, high = table.column(f"{name}-min"), table.column(f"{name}-max")
        if None not in {*low, *high}:
            axes.fill_between(along, low, high, alpha=0.15, color=color)
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or first)
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        figure.savefig(Path(directory) / f"{benchmark.plot_name}.png")
    if show:
        plots.show()
    plots.close(figure)
