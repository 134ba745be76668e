"""Measure the GPU target beside Triton and the libraries of torch, on the same kernel files.

Each kernel of `benchmarks/kernels/` is compiled by Tilewright and, where it is installed, by
Triton, checked against torch in higher precision, and timed in turns with the library in one
process. Each system runs with the configuration that is fastest for it. Examples:

    python benchmarks/gpu.py --list
    python benchmarks/gpu.py --rows 'softmax|matmul bf16' --quick
    python benchmarks/gpu.py --budget 450 --json results/gpu.json --plot results/gpu.png
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

try:
    import torch
except ModuleNotFoundError:
    raise SystemExit(
        "benchmarks/gpu.py needs torch, and a GPU that it sees; `make bench` installs it, and "
        "measures the CPU target where there is no GPU"
    ) from None

from benchmarks.gpu_costs import COSTS, Cost  # noqa: E402
from benchmarks.measure import compile_row  # noqa: E402
from benchmarks.report import plot, shown, summary, table  # noqa: E402
from benchmarks.systems import TILEWRIGHT, TRITON, installed  # noqa: E402
from benchmarks.workloads.table import Row, all_rows  # noqa: E402

SECONDS, QUICK_SECONDS = 1.5, 0.3  # to time a row for
SETS, QUICK_SETS = 3, 1
QUICK_CONFIGS = 3  # as many configurations are tried at most
LONGEST_STEP = 120.0  # seconds without a word from the measuring process: a kernel hangs


class Measuring:
    """The process that measures; another is started where one was lost."""

    def __init__(self, rows: Sequence[Row], *, is_quick: bool, deadline: float) -> None:
        self.pending: list[tuple[str, list[str]]] = [(row.name, []) for row in rows]
        self.settings = {
            "seconds": QUICK_SECONDS if is_quick else SECONDS,
            "sets": QUICK_SETS if is_quick else SETS,
            "most_configs": most_configs(is_quick),
        }
        self.deadline = deadline
        self.failures: dict[tuple[str, str], str] = {}

    def results(self) -> Iterator[dict[str, Any]]:
        """Each row's figures, as soon as they are there, until the deadline."""
        while self.pending and time.monotonic() < self.deadline:
            yield from self._run_process()

    def _run_process(self) -> Iterator[dict[str, Any]]:
        job = json.dumps({"rows": self.pending, **self.settings})
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.measure", job],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=forward, args=(process.stdout, messages), daemon=True).start()
        name, side = self.pending[0][0], "inputs"
        failure = ""
        while True:
            patience = min(LONGEST_STEP, self.deadline - time.monotonic())
            try:
                message = messages.get(timeout=max(0.0, patience))
            except queue.Empty:
                failure = failure or f"nothing happened for {patience:.0f} s"
                process.kill()
                process.wait()
                break
            if message is None:
                process.wait()
                break
            if "row" in message:
                del self.pending[0]
                yield self._with_failures(message["row"])
            elif "lost" in message:
                failure = message["failure"]
            else:
                name, side = message["begins"], message["side"]
        if self.pending and time.monotonic() < self.deadline:
            self._leave_out(name, side, failure or f"ended with status {process.returncode}")

    def _leave_out(self, name: str, side: str, failure: str) -> None:
        """Go on without the side that ended the process, or without the row."""
        say(f"{name}: {side}: the process was lost: {first_line(failure)}")
        self.failures[name, side] = failure
        row, left_out = self.pending[0]
        if row == name and side in {TILEWRIGHT, TRITON} and side not in left_out:
            self.pending[0] = (row, [*left_out, side])
        else:
            del self.pending[0]

    def _with_failures(self, result: dict[str, Any]) -> dict[str, Any]:
        for (name, side), failure in self.failures.items():
            if name == result["name"] and side not in result["sides"]:
                result["sides"][side] = {"failure": failure, "tried": []}
        return result


def most_configs(is_quick: bool) -> int | None:
    return QUICK_CONFIGS if is_quick else None


def paid(costs: Sequence[Cost], deadline: float) -> Iterator[dict[str, Any]]:
    """The figures of what is paid besides computing, as far as there is time."""
    for group in COSTS:
        if not set(group.rows) & set(costs):
            continue
        try:
            sides = group.measure(deadline - time.monotonic())
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            say(f"{group.rows[0].name}: {error}")
            continue
        for cost, own in zip(group.rows, sides, strict=True):
            if cost in costs:
                yield cost.result(own)


def forward(stream: Any, messages: queue.Queue[dict[str, Any] | None]) -> None:
    with stream:
        for line in stream:
            if line.startswith("{"):
                messages.put(json.loads(line))
    messages.put(None)


def compile_ahead(rows: Sequence[Row], jobs: int, most: int | None, deadline: float) -> None:
    """Fill the systems' disk caches, many kernels at a time, in at most half of the time."""
    packages = [system.package for system in installed()]
    spawning = multiprocessing.get_context("spawn")  # the GPU's driver does not survive a fork
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawning) as pool:
        tasks = [
            pool.submit(compile_row, row.name, package, most)
            for row in rows
            for package in packages
        ]
        patience = max(0.0, deadline - time.monotonic()) / 2
        done, late = concurrent.futures.wait(tasks, timeout=patience)
        for task in late:
            task.cancel()
    failed = sum(1 for task in done if task.exception() or task.result())
    say(f"compiled ahead for {len(done)} of {len(tasks)} pairs of row and system; {failed} failed")


def report_line(result: dict[str, Any]) -> str:
    """What is said when a row is done."""
    parts = []
    for name, side in result["sides"].items():
        if "rate" in side:
            config = side.get("config", "")
            if isinstance(config, dict):
                config = " ".join(f"{key}={value}" for key, value in config.items())
            parts.append(f"{name} {shown(side['rate'])}{f' ({config})' * bool(config)}")
        else:
            parts.append(f"{name}: {first_line(side['failure'])}")
    return f"{result['name']}: {'; '.join(parts)}"


def first_line(text: str) -> str:
    """The first line of a message, and the last where that says more."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="", metavar="REGEX", help="rows whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument(
        "--quick", action="store_true", help="one set of inputs, few rounds, few configurations"
    )
    parser.add_argument("--budget", type=float, default=3600, metavar="SECONDS", help="stop then")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="to compile ahead; 0 leaves that out"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this file")
    return parser.parse_args()


def say(text: str) -> None:
    print(f"[bench] {text}", file=sys.stderr, flush=True)


def write_json(path: Path, results: Sequence[dict[str, Any]], facts: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, "rows": results}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    options = arguments()
    deadline = time.monotonic() + options.budget
    rows = [row for row in all_rows() if re.search(options.rows, row.name)]
    costs = [cost for group in COSTS for cost in group.rows if re.search(options.rows, cost.name)]
    if options.list:
        print("\n".join(line.name for line in (*rows, *costs)))
        return
    if not torch.cuda.is_available():
        raise SystemExit(
            "benchmarks/gpu.py needs a GPU, and a torch that sees it; `make bench` chooses the "
            "target, benchmarks/cpu.py measures that of the CPU"
        )
    facts = {
        "device": torch.cuda.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        **{system.package: system.version for system in installed()},
    }
    print(", ".join(f"{key} {value}" for key, value in facts.items()), end="\n\n", flush=True)
    if options.jobs and rows:
        compile_ahead(rows, options.jobs, most_configs(options.quick), deadline)
    measuring = Measuring(rows, is_quick=options.quick, deadline=deadline)
    results = []
    for result in itertools.chain(measuring.results(), paid(costs, deadline)):
        say(report_line(result))
        results.append(result)
        if options.json:
            write_json(options.json, results, facts)
    print(table(results), summary(results), sep="\n\n")
    if measuring.pending:
        say(f"no time for {', '.join(name for name, _ in measuring.pending)}")
    if options.plot and results:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
