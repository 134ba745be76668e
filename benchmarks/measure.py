"""The process that measures rows on the GPU: `python -m benchmarks.measure JOB`, JOB as JSON.

It prints a line of JSON when it begins something and one for each row. Errors of a kernel may leave
the GPU's context unusable: then the process says so with its exit status, and `gpu.py` starts
another for what is left.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.systems import LIBRARY, TILEWRIGHT, System, installed
from benchmarks.workloads.table import Row, all_rows
from benchmarks.workloads.workload import UNITS, Config

__all__ = ["compile_row", "find_row"]

CONTEXT_LOST = 3  # the exit status
FLUSHED_BYTES = 256 << 20  # several times the second-level cache
CYCLES_PER_SECOND = 2e9  # as fast as the clocks of GPUs go: with a slower one the wait is longer
HEAD_START = 1e-4  # seconds
HOST_TRIALS = 3
TRIAL_ROUNDS = 5
FEWEST_ROUNDS, MOST_ROUNDS = 9, 200
DEVICE = "cuda"
SEED = 1234


class Side:
    """One of the columns: how it runs, what was found out about it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run: Callable[[int], Any] | None = None
        self.found: dict[str, Any] = {"failure": "", "tried": []}


class Measurement:
    """One row, on this process's GPU."""

    def __init__(self, row: Row, *, sets: int, most_configs: int | None) -> None:
        torch.manual_seed(SEED)
        self.row, self.workload = row, row.workload
        self.configs = row.workload.configs_on(capability())[:most_configs]
        self.inputs = [self.workload.inputs(DEVICE) for _ in range(sets)]
        self.outputs = [self.workload.outputs(inputs) for inputs in self.inputs]
        self.right = self.workload.reference(self.inputs[0])

    def system_side(self, system: System) -> Side:
        """Check and time each configuration, and keep the fastest that is right."""
        side = Side(system.package)
        best_ms = float("inf")
        for config in self.configs:
            trial = self.trial(system, config)
            side.found["tried"].append(trial)
            if trial["failure"]:
                side.found["failure"] = side.found["failure"] or trial["failure"]
            elif trial["ms"] < best_ms:
                best_ms = trial["ms"]
                side.run = functools.partial(self.launch, system, config)
                side.found |= {key: trial[key] for key in ("config", "error", "kernels")}
        if side.run is not None:
            side.found["failure"] = ""
        return side

    def launch(self, system: System, config: Config, number: int) -> None:
        self.workload.launch(system, config, self.inputs[number], self.outputs[number])

    def trial(self, system: System, config: Config) -> dict[str, Any]:
        """Launch with a configuration; what happened, as JSON takes it."""
        trial: dict[str, Any] = {"config": dict(config), "failure": ""}
        for output in self.outputs[0]:
            output.zero_()
        kernels: list[Any] = []
        began = time.perf_counter()
        try:
            recording = system.recording(kernels)
            self.workload.launch(recording, config, self.inputs[0], self.outputs[0])
            torch.cuda.synchronize()
            trial["first_s"] = time.perf_counter() - began
            trial["kernels"] = [
                {"registers": kernel.n_regs, "spills": kernel.n_spills} for kernel in kernels
            ]
            trial["error"] = self.workload.error(self.outputs[0], self.right)
            if not trial["error"] <= self.workload.tolerance:
                trial["failure"] = f"wrong by {trial['error']:.2g}"
                return trial
            run = functools.partial(self.launch, system, config)
            (trial["ms"],) = medians([run], len(self.inputs), TRIAL_ROUNDS)
        except Exception as error:  # noqa: BLE001 - the other configurations and rows go on
            trial["failure"] = f"{type(error).__name__}: {error}"
            leave_if_context_is_lost(self.row, system.package, trial["failure"])
        return trial

    def library_side(self) -> Side:
        side = Side(LIBRARY)

        try:
            functions = [self.workload.library(inputs) for inputs in self.inputs]
            if functions[0] is None:
                side.found["failure"] = "has none"
            else:
                functions[0]()
                side.run = lambda number: functions[number]()
                side.found["config"] = self.workload.library_name
        except Exception as error:  # noqa: BLE001 - as above
            side.found["failure"] = f"{type(error).__name__}: {error}"
            leave_if_context_is_lost(self.row, LIBRARY, side.found["failure"])
        return side


def medians(runs: Sequence[Callable[[int], Any]], sets: int, rounds: int) -> list[float]:
    """The median time of each, in milliseconds, taken in turns, in an order that goes round.

    Between emptying the cache and the first event the GPU waits for longer than the host takes to
    launch: the work is then all in its queue, and no time of the host is part of the figures.
    """
    cache = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device=DEVICE)
    waiting = int(CYCLES_PER_SECOND * (HEAD_START + 2 * max(map(host_seconds, runs))))
    events: list[list[Any]] = [[] for _ in runs]
    for turn in range(rounds + 1):
        for place in range(len(runs)):
            index = (place + turn) % len(runs)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cache.zero_()
            torch.cuda._sleep(waiting)  # noqa: SLF001 - there is no public one
            start.record()
            runs[index](turn % sets)
            end.record()
            events[index].append((start, end))
    torch.cuda.synchronize()
    return [statistics.median(start.elapsed_time(end) for start, end in own[1:]) for own in events]


def host_seconds(run: Callable[[int], Any]) -> float:
    """How long a launch keeps the host; the least of a few, as the first may do more."""
    times = []
    for _ in range(HOST_TRIALS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run(0)
        times.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    return min(times)


def measure(
    row: Row, systems: Sequence[System], *, seconds: float, sets: int, most_configs: int | None
) -> dict[str, Any]:
    """All figures of a row."""
    say(begins=row.name, side="inputs")
    measurement = Measurement(row, sets=sets, most_configs=most_configs)
    sides = []
    for system in systems:
        say(begins=row.name, side=system.package)
        sides.append(measurement.system_side(system))
    say(begins=row.name, side=LIBRARY)
    sides.append(measurement.library_side())
    running = [side for side in sides if side.run is not None]
    runs = [side.run for side in running if side.run is not None]
    if runs:
        estimate = sum(medians(runs, sets, 2)) * 1e-3
        rounds = int(min(MOST_ROUNDS, max(FEWEST_ROUNDS, seconds / estimate)))
        for side, ms in zip(running, medians(runs, sets, rounds), strict=True):
            rate = row.workload.amount / (ms * 1e-3) / UNITS[row.workload.unit]
            side.found |= {"ms": ms, "rate": rate, "rounds": rounds}
    return {
        "name": row.name,
        "goal": row.goal,
        "floor": row.floor,
        "unit": row.workload.unit,
        "sides": {side.name: side.found for side in sides},
    }


def leave_if_context_is_lost(row: Row, side: str, failure: str) -> None:
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001 - every call fails from now on
        say(lost=row.name, side=side, failure=failure)
        sys.exit(CONTEXT_LOST)


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def capability() -> tuple[int, int]:
    return torch.cuda.get_device_capability(DEVICE)


def find_row(name: str) -> Row:
    return next(row for row in all_rows() if row.name == name)


def compile_row(name: str, package: str, most_configs: int | None) -> str:
    """Compile a row's kernels for a system, for the disk cache; return what went wrong."""
    workload = find_row(name).workload
    system = System(package).compiling()
    # Tilewright compiles for the device of the arrays; what is in them does not matter.
    device = DEVICE if package == TILEWRIGHT else "meta"
    try:
        inputs = workload.inputs("meta")
        inputs = tuple(torch.empty_like(array, device=device) for array in inputs)
        outputs = workload.outputs(inputs)
        for config in workload.configs_on(capability())[:most_configs]:
            workload.launch(system, config, inputs, outputs)
    except Exception as error:  # noqa: BLE001 - measuring meets it again, and reports it
        return f"{type(error).__name__}: {error}"
    return ""


def main(job: dict[str, Any]) -> None:
    settings = {key: job[key] for key in ("seconds", "sets", "most_configs")}
    for name, left_out in job["rows"]:
        systems = [system for system in installed() if system.package not in left_out]
        result = measure(find_row(name), systems, **settings)
        say(row=result)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
