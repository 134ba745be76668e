"""What is paid on a GPU besides computing: launching, compiling, and finding compiled kernels.

`python -m benchmarks.gpu_costs launch` and `... compile PACKAGE` are the processes that measure;
they print JSON. `COSTS` has the rows of the table that come from them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from benchmarks.driver_launch import driver_launches
from benchmarks.launch import launches
from benchmarks.systems import LIBRARY, TILEWRIGHT, TRITON, System, installed
from benchmarks.workloads.table import Row, all_rows

__all__ = ["COSTS", "Cost", "Costs", "compiled_rows"]

ROOT = Path(__file__).resolve().parent.parent
CACHES = {TILEWRIGHT: "TILEWRIGHT_CACHE_DIR", TRITON: "TRITON_CACHE_DIR"}
LAUNCHED = ("8 arguments", "20 arguments")
LAUNCHES, TURNS = 200, 40  # fewer launches than the queue of a GPU holds, so that none waits
Sides: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Cost:
    """A figure that is the better the less it is.

    `goal` is the least ratio of Triton's figure to Tilewright's; where there is a `limit`, that is
    the goal.
    """

    name: str
    unit: str
    goal: float = 1.0
    limit: float | None = None

    def result(self, sides: Sides) -> dict[str, Any]:
        """The row of the table."""
        return {**asdict(self), "floor": "", "is_cost": True, "sides": sides}


@dataclass(frozen=True)
class Costs:
    """Figures that are measured together, within some seconds: for each, its sides."""

    rows: tuple[Cost, ...]
    measure: Callable[[float], Sequence[Sides]]


def run(arguments: Sequence[str], seconds: float, **settings: str) -> Any:
    """Run this module in a new process and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_costs", *arguments],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=max(1.0, seconds),
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


# ---- launching


def launch_seconds() -> dict[str, dict[str, float]]:
    """By number of arguments and side, how long a launch keeps the host; the driver alone, too."""
    runs = {system.package: launches(system, "cuda") for system in installed()}
    return {count: in_turns({side: own[count] for side, own in runs.items()}) for count in LAUNCHED}


def in_turns(launch: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    alone = driver_launches(launch[TILEWRIGHT]())
    rows: dict[str, Callable[[], Any]] = {}
    rows.update((side, partial(row_of, run)) for side, run in launch.items())
    rows[LIBRARY] = lambda: alone(LAUNCHES)
    times: dict[str, list[float]] = {side: [] for side in rows}
    for _ in range(TURNS + 1):
        for side, row in rows.items():
            torch.cuda.synchronize()
            before = time.perf_counter()
            row()
            times[side].append((time.perf_counter() - before) / LAUNCHES)
    return {side: statistics.median(own[1:]) for side, own in times.items()}


def row_of(run: Callable[[], Any]) -> None:
    for _ in range(LAUNCHES):
        run()


def launch_costs(seconds: float) -> Sequence[Sides]:
    """The driver's share stands where the library's figures do."""
    return [
        {
            side: {"rate": time * 1e6, **({"config": "cuLaunchKernel"} if side == LIBRARY else {})}
            for side, time in found.items()
        }
        for found in run(["launch"], seconds).values()
    ]


# ---- compiling


def compiled_rows() -> list[Row]:
    """A row for each kind of work: together they use every kernel."""
    kinds: dict[type, Row] = {}
    for row in all_rows():
        kinds.setdefault(type(row.workload), row)
    return list(kinds.values())


def compile_seconds(package: str) -> dict[str, float | str]:
    """By row, how much longer its first launch takes than the second; or what went wrong."""
    system = System(package)
    launches(system, "cuda")[LAUNCHED[0]]()  # what only the first kernel of a process pays
    found: dict[str, float | str] = {}
    for row in compiled_rows():
        config, inputs = row.workload.configs[0], row.workload.inputs("cuda")
        outputs = row.workload.outputs(inputs)
        times = []
        try:
            for _ in range(2):
                torch.cuda.synchronize()
                before = time.perf_counter()
                row.workload.launch(system, config, inputs, outputs)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - before)
            found[row.name] = times[0] - times[1]
        except Exception as error:  # noqa: BLE001 - the others are still worth having
            found[row.name] = f"{type(error).__name__}: {error}"
    return found


def compile_costs(seconds: float) -> Sequence[Sides]:
    """Without a disk cache and with one, in new processes; the rows that all systems compile."""
    deadline = time.monotonic() + seconds
    cold, cached = {}, {}
    for system in installed():
        with tempfile.TemporaryDirectory() as cache:
            for found in (cold, cached):
                found[system.package] = run(
                    ["compile", system.package],
                    deadline - time.monotonic(),
                    **{CACHES[system.package]: cache},
                )
    every = [*cold.values(), *cached.values()]
    common = [row for row in every[0] if all(isinstance(times[row], float) for times in every)]
    return [
        {
            package: {"rate": sum(times[row] for row in common), "rows": times}
            for package, times in found.items()
        }
        for found in (cold, cached)
    ]


COSTS = (
    Costs(
        (
            Cost("launch, 8 arguments", "us", limit=3.0),
            Cost("launch, 20 arguments", "us", limit=4.0),
        ),
        launch_costs,
    ),
    Costs(
        (
            Cost("compile all kernels, cold", "s", goal=1 / 0.6),
            Cost("compile all kernels, from the disk cache", "s"),
        ),
        compile_costs,
    ),
)


def main(figure: str, *packages: str) -> None:
    print(json.dumps(launch_seconds() if figure == "launch" else compile_seconds(*packages)))


if __name__ == "__main__":
    main(*sys.argv[1:])
