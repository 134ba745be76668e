"""Measure what a launch on the GPU costs the host, and loading kernels from the disk cache.

The launch is `kernel[grid](...)` with 8 and with 20 arguments, on a kernel that does nothing, with
the grid given and computed, beside Triton where that is installed. The launches of one system are
made in short rows, so that the queue of the GPU never makes the host wait. The second part loads
kernels in a new process, all of them in the disk cache of an earlier one.

    python benchmarks/launch.py
    python benchmarks/launch.py --json launch.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - the path comes first

from benchmarks.systems import System, installed, load  # noqa: E402
from benchmarks.workloads.table import Row, all_rows  # noqa: E402

ROW_OF_LAUNCHES = 200
ROUNDS = 50
GRID = (1,)
ROWS = (
    "^(add|row sum|gather|transpose|softmax|layer norm|bias|cumsum|assoc|dropout|histogram)|"
    "^matmul bf16 (pointers|persistent) 1024|^attention bf16 pointers 4096 d"
)


def launches(system: System, device: str) -> dict[str, Callable[[], Any]]:
    """The calls that are timed, by what they are."""
    a, b, c, d, e, f = (torch.zeros(4096, device=device) for _ in range(6))
    kernels = load(system.package, "launching")
    eight, twenty = kernels["eight_arguments_kernel"], kernels["twenty_arguments_kernel"]
    reading = kernels["reading_kernel"]

    # Written out, as programs do: to collect arguments takes Python as long as to launch.
    def with_twenty(kernel: Any) -> Callable[[], Any]:
        return lambda: kernel[GRID](
            a, b, c, d, e, f, 1000, 2000, 3000, 1000, 4, 2000, 5, 3000, 6, 0.5,
            BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8,
        )  # fmt: skip

    return {
        "8 arguments": lambda: eight[GRID](a, b, c, d, 1000, 2000, 3000, BLOCK=128),
        "8 arguments, num_warps": lambda: eight[GRID](
            a, b, c, d, 1000, 2000, 3000, BLOCK=128, num_warps=8
        ),
        "8 arguments, computed grid": lambda: eight[lambda meta: (meta["m"] // 1000,)](
            a, b, c, d, 1000, 2000, 3000, BLOCK=128
        ),
        "20 arguments": with_twenty(twenty),
        "20 arguments, all of them read": with_twenty(reading),
    }


def wait(device: str) -> None:
    """Wait for what was launched."""
    if device == "cuda":
        torch.cuda.synchronize()


def microseconds(run: Callable[[], Any], device: str) -> float:
    """The median time of one launch, of rows between which the GPU catches up."""
    for _ in range(10):
        run()
    times = []
    for _ in range(ROUNDS):
        wait(device)
        started = time.perf_counter()
        for _ in range(ROW_OF_LAUNCHES):
            run()
        times.append((time.perf_counter() - started) / ROW_OF_LAUNCHES * 1e6)
    wait(device)
    return statistics.median(times)


# ---- from the disk cache --------------------------------------------------------------------


def load_kernels(system: System, rows: Sequence[Row], device: str) -> tuple[int, float]:
    """Compile, or load, the kernels of small problems; their number and the milliseconds."""
    calls = []
    for row in rows:
        workload = row.small
        inputs = workload.inputs(device)
        calls.append((workload, inputs, workload.outputs(inputs)))
    wait(device)
    kernels: list[Any] = []
    recording = system.recording(kernels)
    started = time.perf_counter()
    for workload, inputs, outputs in calls:
        workload.launch(recording, workload.configs[0], inputs, outputs)
    wait(device)
    return len(set(map(id, kernels))), (time.perf_counter() - started) * 1e3


def in_new_process(package: str, cache: str, chosen: argparse.Namespace) -> dict[str, float]:
    """What `load_kernels` finds there."""
    command = [sys.executable, __file__, "--load", package]
    command += ["--rows", chosen.rows, "--device", chosen.device]
    variables = {
        "TILEWRIGHT_CACHE_DIR": cache,
        "TRITON_CACHE_DIR": cache,
        "CUDA_CACHE_DISABLE": "1",
    }
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print what the arguments ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default=ROWS, help="whose kernels are loaded, as a pattern")
    parser.add_argument("--device", default="cuda", help="cpu: the same on this machine's CPU")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--load", metavar="PACKAGE", help="only load kernels, for another process")
    chosen = parser.parse_args()
    systems = {system.package: system for system in installed()}
    if chosen.load:
        rows = [row for row in all_rows() if re.search(chosen.rows, row.name)]
        count, milliseconds = load_kernels(systems[chosen.load], rows, chosen.device)
        print(json.dumps({"kernels": count, "ms": milliseconds}))
        return
    figures: dict[str, dict[str, float]] = {}
    for package, system in systems.items():
        for name, run in launches(system, chosen.device).items():
            figures.setdefault(name, {})[package] = microseconds(run, chosen.device)
    for package in systems:
        with tempfile.TemporaryDirectory() as cache:
            cold = in_new_process(package, cache, chosen)
            warm = in_new_process(package, cache, chosen)
        for name, found in (("compiled", cold), ("from the disk cache", warm)):
            label = f"{found['kernels']:.0f} kernels {name}"
            figures.setdefault(label, {})[package] = found["ms"] * 1e3
    place = torch.cuda.get_device_name() if chosen.device == "cuda" else "CPU"
    print(f"{place}, microseconds")
    for name, by_package in figures.items():
        print(f"{name:32}", *(f"{p} {v:10.2f}" for p, v in by_package.items()))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
