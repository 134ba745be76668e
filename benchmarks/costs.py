"""What is paid besides computing: importing, compiling, launching, and memory.

Each figure is taken in a process of its own, which prints it. Times of compiling are CPU times that
begin when Tilewright and the kernels are imported; the first kernel of a process pays for loading
LLVM, or for what finding it in the disk cache takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 5

TIMED_IMPORT = """
import time
before = time.process_time()
import tilewright
print(time.process_time() - before)
"""
IMPORT = ("-c", TIMED_IMPORT)
INSIDE = ("-m", "benchmarks.inside")


@dataclass(frozen=True)
class Cost:
    """A figure with a limit; `scale` turns what `measure` returns into `unit`."""

    name: str
    limit: float
    unit: str
    scale: float
    measure: Callable[[], float]


def run(arguments: Sequence[str], cache: str) -> float:
    """Run Python in a new process and return the number that it prints."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


def in_new_process(*arguments: str, repeats: int = 1) -> Callable[[], float]:
    """Measure with an empty cache directory; the least of several times."""

    def measure() -> float:
        figures = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                figures.append(run(arguments, cache))
        return min(figures)

    return measure


def from_cache(*arguments: str) -> Callable[[], float]:
    """Measure with a cache directory that an earlier process has filled."""

    def measure() -> float:
        with tempfile.TemporaryDirectory() as cache:
            run(arguments, cache)
            return min(run(arguments, cache) for _ in range(REPEATS))

    return measure


def compile_costs(name: str, limit_ms: float) -> Iterator[Cost]:
    compiling = (*INSIDE, "compile")
    another = "matmul" if name == "add" else "add"
    first = in_new_process(*compiling, name, repeats=REPEATS)
    later = in_new_process(*compiling, another, name, repeats=REPEATS)
    yield Cost(f"compile {name}, first of its process, CPU time", limit_ms, "ms", 1e3, first)
    yield Cost(f"compile {name}, after another, CPU time", limit_ms, "ms", 1e3, later)
    cached, cached_later = from_cache(*compiling, name), from_cache(*compiling, another, name)
    yield Cost(f"{name} from the disk cache, first of its process", 10, "ms", 1e3, cached)
    yield Cost(f"{name} from the disk cache, after another", 10, "ms", 1e3, cached_later)


def inside(name: str, limit: float, unit: str, scale: float, figure: str) -> Cost:
    return Cost(name, limit, unit, scale, in_new_process(*INSIDE, figure))


COSTS = (
    Cost("import tilewright, CPU time", 250, "ms", 1e3, in_new_process(*IMPORT, repeats=REPEATS)),
    *compile_costs("add", 150),
    *compile_costs("matmul", 400),
    *compile_costs("attention", 800),
    inside("launch an empty kernel, 8 arguments", 2, "us", 1e6, "launch"),
    inside("memory: growth over 10,000 launches", 256, "KB", 1 / 1024, "launch-growth"),
    inside("memory: growth for each of 500 compiles", 16, "KB", 1 / 1024, "compile-growth"),
)
