"""What is paid besides computing: importing, compiling, launching, and memory.

Each figure is taken in a process of its own, which prints it. Times of compiling are CPU times of a
process that has imported Tilewright and launched nothing before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 5

IMPORT = """
import time
before = time.process_time()
import tilewright
print(time.process_time() - before)
"""

# The kernels are made, and NumPy is imported, before the clock starts.
COMPILE = """
import time
import tilewright.language as tl
from examples import attention, elementwise, matmul
f = tl.float32
kernels = {
    "add": lambda: elementwise.add_kernel.warmup(f, f, f, 1024, BLOCK=1024, grid=(1,)),
    "matmul": lambda: matmul.matmul_kernel.warmup(
        f, f, f, 1024, 1024, 1024, 1024, 1, 1024, 1, 1024, 1,
        BLOCK_M=128, BLOCK_N=128, BLOCK_K=128, GROUP_M=4, grid=(1,),
    ),
    "attention": lambda: attention.attention_kernel.warmup(
        f, f, f, f, 0.18, 1024, HEAD=64, BLOCK_M=128, BLOCK_N=128, CAUSAL=True, grid=(1,),
    ),
}
def seconds(name):
    before = time.process_time()
    kernels[name]()
    return time.process_time() - before
"""

SMALL_KERNELS = """
import time
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def empty_kernel(a_ptr, b_ptr, c_ptr, n, m, k, scale, BLOCK: tl.constexpr):
    pass

@tw.jit
def small_kernel(x_ptr, NUMBER: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 64))
    tl.store(x_ptr + tl.arange(0, 64), x + NUMBER)

arrays = [np.zeros(64, np.float32) for _ in range(3)]
launch = empty_kernel[(1,)]

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def launch_many(count):
    a, b, c = arrays
    before = time.perf_counter()
    for _ in range(count):
        launch(a, b, c, 5, 7, 9, 2.0, 64)
    return (time.perf_counter() - before) / count
"""

LAUNCH = """
launch_many(10_000)
print(min(launch_many(20_000) for _ in range(10)))
"""

LAUNCH_GROWTH = """
launch_many(1_000)
before = resident_bytes()
launch_many(10_000)
print(resident_bytes() - before)
"""

COMPILE_GROWTH = """
import gc
def compile_many(numbers):
    for number in numbers:
        small_kernel[(1,)](arrays[0], number)
    gc.collect()
compile_many(range(50))
before = resident_bytes()
compile_many(range(50, 550))
print((resident_bytes() - before) / 500)
"""


@dataclass(frozen=True)
class Cost:
    """A figure with a limit; `scale` turns what `measure` returns into `unit`."""

    name: str
    limit: float
    unit: str
    scale: float
    measure: Callable[[], float]


def run(code: str, cache: str) -> float:
    """Run Python code in a new process and return the number that it prints last."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(done.stdout.split()[-1])


def in_new_process(code: str, repeats: int = 1) -> Callable[[], float]:
    """Measure with an empty cache directory; the least of several times."""

    def measure() -> float:
        figures = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                figures.append(run(code, cache))
        return min(figures)

    return measure


def from_cache(code: str) -> Callable[[], float]:
    """Measure with a cache directory that an earlier process has filled."""

    def measure() -> float:
        with tempfile.TemporaryDirectory() as cache:
            run(code, cache)
            return min(run(code, cache) for _ in range(REPEATS))

    return measure


def compile_code(name: str, *, is_first: bool) -> str:
    # Something else has started the compiler, where the figure is not of the first kernel.
    before = "" if is_first else f'seconds("{"matmul" if name != "matmul" else "add"}")\n'
    return f'{COMPILE}{before}print(seconds("{name}"))'


COMPILE_LIMITS = {"add": 0.15, "matmul": 0.4, "attention": 0.8}

COSTS = (
    Cost("import tilewright, CPU time", 250, "ms", 1e3, in_new_process(IMPORT, REPEATS)),
    *(
        Cost(
            f"compile {name}, {'first' if is_first else 'later'} in its process, CPU time",
            1e3 * limit,
            "ms",
            1e3,
            in_new_process(compile_code(name, is_first=is_first), REPEATS),
        )
        for name, limit in COMPILE_LIMITS.items()
        for is_first in (True, False)
    ),
    *(
        Cost(
            f"{name} from the disk cache, new process, CPU time",
            10,
            "ms",
            1e3,
            from_cache(compile_code(name, is_first=True)),
        )
        for name in COMPILE_LIMITS
    ),
    Cost(
        "launch an empty kernel, 8 arguments", 2, "us", 1e6, in_new_process(SMALL_KERNELS + LAUNCH)
    ),
    Cost(
        "memory: growth over 10,000 launches",
        256,
        "KB",
        1 / 1024,
        in_new_process(SMALL_KERNELS + LAUNCH_GROWTH),
    ),
    Cost(
        "memory: growth for each of 500 compiles",
        16,
        "KB",
        1 / 1024,
        in_new_process(SMALL_KERNELS + COMPILE_GROWTH),
    ),
)
