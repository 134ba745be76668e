"""Measure `tilewright.kernels` beside eager PyTorch, torch.compile and the vendors' libraries.

All sides of a row run on the same inputs, are compared, and are timed in turns in one process; the
figures are medians. On a GPU the second-level cache is flushed before each run, and torch.compile
uses its own Triton. The rate of a copy of 1 GB (CPU: 128 MB) is measured with every run. Examples:

    python benchmarks/library.py
    python benchmarks/library.py --rows 'softmax|norm' --device cpu --threads 2
    python benchmarks/library.py --tune --json results/library.json --plot results/library.png
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

try:
    import torch
except ModuleNotFoundError:
    raise SystemExit("benchmarks/library.py needs torch: pip install torch") from None

import tilewright as tw  # noqa: E402 - the path comes first
from benchmarks.library_rows import LibraryRow, all_rows  # noqa: E402
from benchmarks.library_rows.row import COMPILED, COPY, EAGER, LIBRARY, OURS  # noqa: E402
from benchmarks.measure import medians as gpu_medians  # noqa: E402
from benchmarks.report import EQUAL, aligned, shown  # noqa: E402
from benchmarks.rows import keep_freed_memory  # noqa: E402
from benchmarks.workloads.workload import UNITS  # noqa: E402

SIDES = (OURS, EAGER, COMPILED, LIBRARY)
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 128 << 20}
FEWEST_ROUNDS, MOST_ROUNDS = 7, 200


def main() -> None:
    arguments = parse()
    rows = [row for row in all_rows(arguments.device) if re.search(arguments.rows, row.name)]
    if arguments.list:
        print(*(row.name for row in rows), sep="\n")
        return
    if arguments.threads:
        tw.set_num_threads(arguments.threads)
        torch.set_num_threads(arguments.threads)
    if arguments.device == "cpu":
        keep_freed_memory()
    deadline = time.monotonic() + arguments.budget
    copy_gbps = copy_rate(arguments.device)
    print(f"copy: {copy_gbps:.0f} GB/s", file=sys.stderr, flush=True)
    results: list[dict[str, Any]] = []
    for row in rows:
        if time.monotonic() > deadline:
            print(f"out of time: {len(rows) - len(results)} rows left out", file=sys.stderr)
            break
        results.append(measure(row, arguments, copy_gbps))
        print(*results_line(results[-1]), sep="  ", file=sys.stderr, flush=True)
    print(table(results))
    print(summary(results))
    if arguments.json:
        Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"copy_gbps": copy_gbps, "rows": results}, indent=1)
        Path(arguments.json).write_text(text, encoding="utf-8")
    if arguments.plot:
        plot(results, Path(arguments.plot))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default, choices=["cuda", "cpu"])
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows with such a name")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--seconds", type=float, default=1.0, help="to time a row for")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for all rows")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for all sides")
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        help="time torch.compile, too; on the CPU, where it takes minutes, only if asked for",
    )
    parser.add_argument("--tune", action="store_true", help="tune our kernels first")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios (needs matplotlib)")
    arguments = parser.parse_args()
    if arguments.compiled is None:
        arguments.compiled = arguments.device == "cuda"
    return arguments


# ---- measuring ------------------------------------------------------------------------------


def measure(row: LibraryRow, arguments: argparse.Namespace, copy_gbps: float) -> dict[str, Any]:
    """All figures of a row; a side that fails is noted, and the others go on."""
    torch.manual_seed(1234)
    result: dict[str, Any] = {"name": row.name, "unit": row.unit, "goals": dict(row.goals)}
    sides: dict[str, Callable[[], Any]] = {}
    failures: dict[str, str] = {}
    outputs: dict[str, Any] = {}
    made = dict(row.make(arguments.device))
    if not arguments.compiled:
        made.pop(COMPILED, None)
    for name, run in made.items():
        mode = tw.tuning() if arguments.tune and name == OURS else contextlib.nullcontext()
        try:
            with mode:
                outputs[name] = run()
            if name in SIDES:
                sides[name] = run
        except Exception as error:  # noqa: BLE001 - the other sides and rows go on
            failures[name] = f"{type(error).__name__}: {error}"
    errors = differences(outputs)
    for name, error in errors.items():
        if not error <= row.tolerance:  # NaN is wrong, too
            failures[name] = f"wrong by {error:.2g}"
            sides.pop(name, None)
    milliseconds = times(sides, arguments) if sides else {}
    rates = {name: row.amount / (1e-3 * ms) / UNITS[row.unit] for name, ms in milliseconds.items()}
    if row.unit == "GB/s":
        rates[COPY] = copy_gbps
    return result | {"ms": milliseconds, "rates": rates, "errors": errors, "failures": failures}


def differences(outputs: dict[str, Any]) -> dict[str, float]:
    """How far each side is from the reference: the side "exact", else eager PyTorch."""
    right = outputs.get("exact", outputs.get(EAGER, outputs.get(LIBRARY)))
    if right is None:
        return {}
    return {name: difference(found, right) for name, found in outputs.items() if found is not right}


def difference(found: Any, right: Any) -> float:
    if isinstance(right, tuple | list):
        return max(difference(*pair) for pair in zip(found, right, strict=True))
    found, right = found.detach().double(), right.detach().double()
    return float((found - right).abs().max() / right.abs().max().clamp_min(1e-30))


def times(sides: dict[str, Callable[[], Any]], arguments: argparse.Namespace) -> dict[str, float]:
    """The median of each side, in milliseconds."""
    clock = gpu_times if arguments.device == "cuda" else cpu_times
    runs = list(sides.values())
    estimate = 1e-3 * sum(clock(runs, 2))
    rounds = int(min(MOST_ROUNDS, max(FEWEST_ROUNDS, arguments.seconds / max(estimate, 1e-6))))
    return dict(zip(sides, clock(runs, rounds), strict=True))


def gpu_times(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    def numbered(run: Callable[[], Any]) -> Callable[[int], Any]:
        return lambda _: run()

    return gpu_medians([numbered(run) for run in runs], 1, rounds)


def cpu_times(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    taken: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds):
        for place in range(len(runs)):
            index = (place + turn) % len(runs)
            # Threads of OpenMP spin for milliseconds after their work: not into a timed run.
            runs[index]()
            began = time.perf_counter()
            runs[index]()
            taken[index].append(1e3 * (time.perf_counter() - began))
    return [statistics.median(own) for own in taken]


def copy_rate(device: str) -> float:
    """GB/s, read and written, of a copy by PyTorch."""
    count = COPIED_BYTES[device] // 4
    x = torch.randn(count, device=device)
    y = torch.empty_like(x)
    clock = gpu_times if device == "cuda" else cpu_times
    (ms,) = clock([lambda: y.copy_(x)], FEWEST_ROUNDS)
    return 2 * x.nbytes / ms / 1e6


# ---- showing --------------------------------------------------------------------------------


def reached(result: dict[str, Any], side: str) -> float | None:
    """How many times as fast as another side Tilewright is."""
    rates = result["rates"]
    return rates[OURS] / rates[side] if OURS in rates and rates.get(side) else None


def mark(result: dict[str, Any]) -> str:
    """Whether the goals are reached; a side that is missing leaves its goal open."""
    if OURS not in result["rates"]:
        return "fails"
    found = {side: reached(result, side) for side in result["goals"]}
    lacking = [side for side, ratio in found.items() if ratio is None]
    under = [
        side
        for side, ratio in found.items()
        if ratio is not None and ratio < result["goals"][side] * (1 - EQUAL)
    ]
    parts = [f"{word} {', '.join(s)}" for word, s in (("under", under), ("lacks", lacking)) if s]
    return "; ".join(parts) or "ok"


def results_line(result: dict[str, Any]) -> list[str]:
    rates = [shown(result["rates"][side]) if side in result["rates"] else "-" for side in SIDES]
    ratios = []
    for side in (*SIDES[1:], COPY):
        found, goal = reached(result, side), result["goals"].get(side)
        of = f" of {goal:g}" if goal else ""
        ratios.append("-" if found is None else f"{found:.2f}x{of}")
    failures = [f"{name}: {text[:200]}" for name, text in result["failures"].items()]
    return [result["name"], *rates, result["unit"], *ratios, mark(result), "; ".join(failures)]


def table(results: Sequence[dict[str, Any]]) -> str:
    header = ["row", *SIDES, "", *(f"x {side}" for side in (*SIDES[1:], COPY)), "", ""]
    return aligned([header, *map(results_line, results)])


def summary(results: Sequence[dict[str, Any]]) -> str:
    marks = [mark(result) for result in results]
    return f"{marks.count('ok')} of {len(marks)} rows reach their goals"


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw how many times as fast as each other side Tilewright is, as bars."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1 + 0.45 * len(results)))
    others = SIDES[1:]
    for number, side in enumerate(others):
        at = [place + 0.25 * (number - 1) for place in range(len(results))]
        axes.barh(at, [reached(result, side) or 0 for result in results], 0.25, label=side)
    axes.set_yticks(range(len(results)), [result["name"] for result in results])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times as fast")
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
