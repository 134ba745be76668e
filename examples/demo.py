"""The demonstration: kernels on NumPy arrays, checked, and timed beside NumPy and torch.

Run it with `python -m examples.demo`. It ends with 1 if a result is wrong.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from examples import attention, matmul, rows, seed_matmul

try:
    import torch
except ImportError:
    torch = None

SECONDS_FOR_EACH_SIDE = 1.0
FEWEST_ROUNDS, MOST_ROUNDS = 2, 10
RUNS_IN_A_TURN = 3
PAUSE_SECONDS = 0.1


@dataclass
class Case:
    """One line of the table.

    `operations` are billions of floating-point operations, or of bytes moved, as `unit` says.
    `sides` are functions that compute the same thing, by name; `out` is what Tilewright's wrote.
    """

    name: str
    operations: float
    unit: str
    tolerance: float
    out: np.ndarray
    expected: Callable[[], np.ndarray]
    sides: dict[str, Callable[[], Any]]


# ---- what is shown --------------------------------------------------------------------------


def matmul_cases(generator: np.random.Generator) -> list[Case]:
    size = 1024
    a, b = generator.random((2, size, size), dtype=np.float32)
    results = np.empty((2, size, size), np.float32)
    others = with_torch(torch_matmul, a, b)
    others["NumPy"] = lambda: a @ b

    def case(name: str, out: np.ndarray, launch: Callable[[], None]) -> Case:
        return Case(
            name=f"matmul {size}³, {name}",
            operations=2e-9 * size**3,
            unit="GFLOP/s",
            # Sums of 1024 products of about 1/4, rounded at each step.
            tolerance=2e-3,
            out=out,
            expected=lambda: a.astype(np.float64) @ b,
            sides={"Tilewright": launch, **others},
        )

    tuned = matmul.autotuned_matmul_kernel
    return [
        case("tiles of 32", results[0], lambda: seed_matmul.matmul(a, b, results[0])),
        case("autotuned", results[1], lambda: matmul.matmul(a, b, results[1], tuned)),
    ]


def softmax_case(generator: np.random.Generator) -> Case:
    x = generator.standard_normal((4096, 4096), dtype=np.float32)
    out = np.empty_like(x)

    def with_numpy(x: np.ndarray = x) -> np.ndarray:
        numerator = np.exp(x - x.max(axis=1, keepdims=True))
        return numerator / numerator.sum(axis=1, keepdims=True)

    return Case(
        name="softmax 4096 x 4096",
        operations=2e-9 * x.nbytes,
        unit="GB/s",
        tolerance=1e-7,
        out=out,
        expected=lambda: with_numpy(x.astype(np.float64)),
        sides={
            "Tilewright": lambda: rows.softmax(x, out),
            "NumPy": with_numpy,
            **with_torch(torch_softmax, x),
        },
    )


def layer_norm_case(generator: np.random.Generator) -> Case:
    x = generator.standard_normal((4096, 4096), dtype=np.float32)
    weight, bias, mean, rstd = generator.standard_normal((4, 4096), dtype=np.float32)
    out = np.empty_like(x)

    def with_numpy(x: np.ndarray = x) -> np.ndarray:
        centered = x - x.mean(axis=1, keepdims=True)
        variance = (centered * centered).mean(axis=1, keepdims=True)
        return centered / np.sqrt(variance + 1e-5) * weight + bias

    return Case(
        name="layer norm 4096 x 4096",
        operations=2e-9 * x.nbytes,
        unit="GB/s",
        tolerance=2e-5,
        out=out,
        expected=lambda: with_numpy(x.astype(np.float64)),
        sides={
            "Tilewright": lambda: rows.layer_norm(x, weight, bias, out, mean, rstd),
            "NumPy": with_numpy,
            **with_torch(torch_layer_norm, x, weight, bias),
        },
    )


def attention_case(generator: np.random.Generator) -> Case:
    shape = (1, 8, 1024, 64)
    q, k, v = generator.standard_normal((3, *shape), dtype=np.float32)
    out = np.empty_like(q)

    def with_numpy(q: np.ndarray = q) -> np.ndarray:
        logits = q @ k.swapaxes(-1, -2) * q.dtype.type(shape[-1] ** -0.5)
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return p @ v / p.sum(axis=-1, keepdims=True)

    return Case(
        name=f"flash attention {shape}",
        operations=4e-9 * shape[0] * shape[1] * shape[2] ** 2 * shape[3],
        unit="GFLOP/s",
        tolerance=5e-6,
        out=out,
        expected=lambda: with_numpy(q.astype(np.float64)),
        sides={
            "Tilewright": lambda: attention.attention(q, k, v, out),
            "NumPy": with_numpy,
            **with_torch(torch_attention, q, k, v),
        },
    )


# Functions, because torch need not be there when the cases are made.


def torch_matmul(a: Any, b: Any) -> Any:
    return torch.matmul(a, b)


def torch_softmax(x: Any) -> Any:
    return torch.softmax(x, 1)


def torch_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[1],), weight, bias)


def torch_attention(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def with_torch(function: Callable[..., Any], *arrays: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The side of torch, on the same memory; nothing where it is not installed."""
    if torch is None:
        return {}
    tensors = [torch.from_numpy(array) for array in arrays]
    return {"torch": lambda: function(*tensors)}


# ---- checking and timing --------------------------------------------------------------------


@dataclass
class Result:
    """What came out of a case: the largest error, and the median time of each side."""

    case: Case
    error: float
    milliseconds: dict[str, float]

    @property
    def is_right(self) -> bool:
        return self.error <= self.case.tolerance


def show(case: Case) -> Result:
    say(f"{case.name}: compiling")
    started = time.perf_counter()
    case.sides["Tilewright"]()
    seconds = time.perf_counter() - started
    error = float(np.max(np.abs(case.out - case.expected())))
    say(f"{case.name}: first launch {seconds:.2f} s, largest error {error:.1e}; timing")
    return Result(case, error, measure(case.sides))


def measure(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median times in milliseconds, taken in turns, so that a change of clock hits all alike.

    Before its turn a side waits, since the threads of the one before go on spinning for a while.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    started = time.perf_counter()
    for number in range(MOST_ROUNDS):
        for name, function in sides.items():
            time.sleep(PAUSE_SECONDS)
            function()  # warms up
            for _ in range(RUNS_IN_A_TURN):
                before = time.perf_counter()
                function()
                times[name].append(1e3 * (time.perf_counter() - before))
        is_late = time.perf_counter() - started > SECONDS_FOR_EACH_SIDE * len(sides)
        if number + 1 >= FEWEST_ROUNDS and is_late:
            break
    return {name: statistics.median(taken) for name, taken in times.items()}


# ---- the table ------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> str:
    names = ["Tilewright", "NumPy", *(["torch"] if torch is not None else [])]
    header = ["", *(f"{name}, ms" for name in names), "rate"]
    header += [f"{name} / Tilewright" for name in names[1:]]
    header += ["largest error", "allowed", ""]
    lines = [header]
    for result in results:
        case, taken = result.case, result.milliseconds
        ours = taken["Tilewright"]
        cells = [case.name, *(f"{taken[name]:.2f}" for name in names)]
        cells += [f"{case.operations / ours * 1e3:.1f} {case.unit}"]
        cells += [f"{taken[name] / ours:.2f}x" for name in names[1:]]
        cells += [f"{result.error:.1e}", f"{case.tolerance:.0e}"]
        lines.append([*cells, "ok" if result.is_right else "WRONG"])
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def align(line: Sequence[str]) -> str:
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "  ".join(cells).rstrip()

    header, *rest = map(align, lines)
    return "\n".join([header, "-" * len(header), *rest])


def say(text: str) -> None:
    print(f"[demo] {text}", flush=True)


def main() -> int:
    threads = tw.get_num_threads()
    if torch is not None:
        torch.set_num_threads(threads)
    say(f"Tilewright {tw.__version__} on the CPU, {threads} threads")
    generator = np.random.default_rng(0)
    cases = [
        *matmul_cases(generator),
        softmax_case(generator),
        layer_norm_case(generator),
        attention_case(generator),
    ]
    results = [show(case) for case in cases]
    print(f"\n{table(results)}")
    print("\nErrors are absolute, against float64. Ratios above 1x: Tilewright is faster.")
    wrong = [result.case.name for result in results if not result.is_right]
    if wrong:
        print(f"WRONG: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
