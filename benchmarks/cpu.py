"""Measure the CPU target beside torch (or NumPy, where torch is not installed).

Every row runs in this process, with the same number of threads for both sides, in turns, so that
other load and changes of clock hit both; the figures are medians. Examples:

    python benchmarks/cpu.py
    python benchmarks/cpu.py --only softmax --only "matmul fp32" --threads 1
    python benchmarks/cpu.py --json results/cpu.json --plot results/cpu.png
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - the path comes first

import tilewright as tw  # noqa: E402
from benchmarks.costs import COSTS, Cost  # noqa: E402
from benchmarks.rows import ROWS, Row, keep_freed_memory, numpy_of, torch  # noqa: E402

FEWEST_ROUNDS = 7
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Measured:
    """One line of the first table; times are medians in milliseconds, `ratio` is theirs / ours."""

    name: str
    threads: int
    ours_ms: float
    theirs_ms: float
    ratio: float
    goal: float
    rate: float
    unit: str
    rounds: int
    ours_least_ms: float
    theirs_least_ms: float

    @property
    def mark(self) -> str:
        """Goals are against torch: beside NumPy, which has its own number of threads, no mark."""
        if torch is None:
            return ""
        return "ok" if self.ratio >= self.goal else "under"


@dataclass(frozen=True)
class Paid:
    """One line of the second table."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def mark(self) -> str:
        return "ok" if self.value <= self.limit else "over"


# ---- measuring ------------------------------------------------------------------------------


def measure(row: Row, threads: int, seconds: float, clock: Callable[[], float]) -> Measured:
    tw.set_num_threads(threads)
    if torch is not None:
        torch.set_num_threads(threads)
    sides = row.make()
    other = sides.torch or sides.numpy
    check(row, sides.tilewright(), other())
    ours: list[float] = []
    theirs: list[float] = []
    turns = [(sides.tilewright, ours), (other, theirs)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ours) < FEWEST_ROUNDS:
        turns.reverse()
        for function, times in turns:
            before = clock()
            function()
            times.append(1e3 * (clock() - before))
    ours_ms, theirs_ms = statistics.median(ours), statistics.median(theirs)
    return Measured(
        name=row.name,
        threads=threads,
        ours_ms=ours_ms,
        theirs_ms=theirs_ms,
        ratio=theirs_ms / ours_ms,
        goal=row.goal,
        rate=1e3 * row.amount / ours_ms,
        unit=row.unit,
        rounds=len(ours),
        ours_least_ms=min(ours),
        theirs_least_ms=min(theirs),
    )


def check(row: Row, ours: Any, theirs: Any) -> None:
    difference = float(np.max(np.abs(numpy_of(ours) - numpy_of(theirs))))
    if not difference <= row.tolerance:
        raise SystemExit(f"{row.name}: results differ by {difference:.3g}")


def pay(cost: Cost) -> Paid:
    return Paid(cost.name, cost.measure() * cost.scale, cost.limit, cost.unit)


# ---- showing --------------------------------------------------------------------------------


def rows_table(measured: Sequence[Measured], baseline: str) -> str:
    header = ["", "threads", "Tilewright, ms", f"{baseline}, ms", "ratio", "goal", "", "rate"]
    return aligned(
        [
            header,
            *(
                [
                    line.name,
                    str(line.threads),
                    f"{line.ours_ms:.2f}",
                    f"{line.theirs_ms:.2f}",
                    f"{line.ratio:.2f}x",
                    f"{line.goal:.2f}x",
                    line.mark,
                    f"{line.rate:.1f} {line.unit}",
                ]
                for line in measured
            ),
        ]
    )


def costs_table(paid: Sequence[Paid]) -> str:
    return aligned(
        [
            ["", "figure", "limit", "", ""],
            *(
                [line.name, f"{line.value:.2f}", f"{line.limit:g}", line.unit, line.mark]
                for line in paid
            ),
        ]
    )


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def align(line: Sequence[str]) -> str:
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "  ".join(cells).rstrip()

    header, *rest = map(align, lines)
    return "\n".join([header, "-" * max(map(len, [header, *rest])), *rest])


def plot(measured: Sequence[Measured], baseline: str, path: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    places = np.arange(len(measured))
    figure, axes = plt.subplots(figsize=(9, 1 + 0.35 * len(measured)))
    axes.barh(places, [line.ratio for line in measured], color="tab:blue", label="measured")
    goals = [line.goal for line in measured]
    axes.scatter(goals, places, marker="|", s=200, color="tab:red", label="goal", zorder=3)
    axes.set_yticks(places, [f"{line.name}, {line.threads} threads" for line in measured])
    axes.invert_yaxis()
    axes.set_xlabel(f"time of {baseline} / time of Tilewright")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=150)
    plt.close(figure)


def write_json(path: Path, lines: Sequence[Measured | Paid], facts: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(line), "mark": line.mark} for line in lines]
    path.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n", encoding="utf-8")


def device() -> str:
    """The name of the processor and its number of usable cores."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return f"{names[0] if names else 'unknown processor'}, {tw.get_num_threads()} cores"


# ---- the command ----------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], help="rows whose name has this text")
    parser.add_argument(
        "--threads", type=int, action="append", default=[], help="1 and 2 if absent"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row and thread count")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what times are taken of")
    parser.add_argument("--all-machines", action="store_true", help="also rows for other machines")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this file")
    return parser.parse_args()


def chosen(asked: Sequence[str], all_of: Sequence[Any]) -> Iterator[Any]:
    return (item for item in all_of if not asked or any(text in item.name for text in asked))


def say(text: str) -> None:
    print(f"[bench] {text}", file=sys.stderr, flush=True)


def main() -> None:
    options = arguments()
    baseline = "NumPy" if torch is None else f"torch {torch.__version__}"
    facts = {"device": device(), "date": time.strftime("%Y-%m-%d"), "against": baseline}
    facts["clock"] = options.clock
    print(", ".join(facts.values()), end="\n\n")
    keep_freed_memory()
    measured: list[Measured] = []
    for row in chosen(options.only, ROWS):
        if not (row.is_supported or options.all_machines):
            say(f"{row.name}: left out, this machine has no {row.needs} (--all-machines runs it)")
            continue
        for threads in options.threads or [1, 2]:
            line = measure(row, threads, options.seconds, CLOCKS[options.clock])
            say(f"{row.name}, {threads} threads: {line.ratio:.2f}x of {row.goal:.2f}x")
            measured.append(line)
    if measured:
        print(rows_table(measured, baseline), end="\n\n", flush=True)
    paid: list[Paid] = []
    for cost in chosen(options.only, COSTS):
        figure = pay(cost)
        say(f"{cost.name}: {figure.value:.2f} of {figure.limit:g} {figure.unit}")
        paid.append(figure)
    if paid:
        print(costs_table(paid))
    if options.json:
        write_json(options.json, [*measured, *paid], facts)
    if options.plot and measured:
        plot(measured, baseline, options.plot)


if __name__ == "__main__":
    main()
