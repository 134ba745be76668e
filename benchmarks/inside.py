"""What one process of `costs.py` does: `python -m benchmarks.inside FIGURE [KERNEL ...]`.

It prints the figure: seconds, or bytes.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

import tilewright as tw
import tilewright.language as tl
from examples import attention, elementwise, matmul

PAGE_BYTES = 4096


@tw.jit
def empty_kernel(a_ptr, b_ptr, c_ptr, n, m, k, scale, BLOCK: tl.constexpr):
    pass


@tw.jit
def small_kernel(x_ptr, NUMBER: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 64))
    tl.store(x_ptr + tl.arange(0, 64), x + NUMBER)


def compile_add() -> None:
    f = tl.float32
    elementwise.add_kernel.warmup(f, f, f, 1024, BLOCK=1024, grid=(1,))


def compile_matmul() -> None:
    f = tl.float32
    sizes, strides = (1024, 1024, 1024), (1024, 1, 1024, 1, 1024, 1)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 4}
    matmul.matmul_kernel.warmup(f, f, f, *sizes, *strides, **blocks, grid=(1,))


def compile_attention() -> None:
    f = tl.float32
    blocks = {"HEAD": 64, "BLOCK_M": 128, "BLOCK_N": 128, "CAUSAL": True}
    attention.attention_kernel.warmup(f, f, f, f, 0.18, 1024, **blocks, grid=(1,))


COMPILE = {"add": compile_add, "matmul": compile_matmul, "attention": compile_attention}


def compile_seconds(*names: str) -> float:
    """CPU time to compile the last of the kernels, after the others."""
    for name in names[:-1]:
        COMPILE[name]()
    before = time.process_time()
    COMPILE[names[-1]]()
    return time.process_time() - before


def launch_seconds() -> float:
    launch = launcher()
    launch(10_000)
    return min(launch(20_000) for _ in range(10))


def launch_growth() -> float:
    return growth(launcher(), 1_000, 10_000)


def compile_growth() -> float:
    """Bytes for each of 500 kernels."""
    x = np.zeros(64, np.float32)
    numbers = iter(range(1_000))

    def compile_many(count: int) -> None:
        for _ in range(count):
            small_kernel[(1,)](x, next(numbers))
        gc.collect()

    return growth(compile_many, 50, 500) / 500


def launcher() -> Callable[[int], float]:
    """A function that launches an empty kernel so many times and returns the time of one."""
    a, b, c = (np.zeros(64, np.float32) for _ in range(3))
    launch = empty_kernel[(1,)]

    def launch_many(count: int) -> float:
        before = time.perf_counter()
        for _ in range(count):
            launch(a, b, c, 5, 7, 9, 2.0, 64)
        return (time.perf_counter() - before) / count

    return launch_many


def growth(work: Callable[[int], object], count_before: int, count: int) -> float:
    """By how many bytes of memory the process grows; work before that does not count."""
    work(count_before)
    before = resident_bytes()
    work(count)
    return resident_bytes() - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * PAGE_BYTES


def main(figure: str, names: Iterable[str]) -> None:
    figures = {
        "compile": partial(compile_seconds, *names),
        "launch": launch_seconds,
        "launch-growth": launch_growth,
        "compile-growth": compile_growth,
    }
    print(figures[figure]())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
