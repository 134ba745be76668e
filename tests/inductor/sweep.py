"""Runs the graphs of `graphs.py` in eager mode and compiled, and compares.

`python -m tests.inductor.sweep [--device cuda] [--part 1/8] [words...]` prints a line for each
graph whose name has one of the words, and how many are equal.
"""

import argparse
import copy
import sys
import time
from typing import Any

import torch
import torch._inductor.config as inductor
from torch._inductor import metrics

from tests.inductor.graphs import GRAPHS, Graph, Inputs

__all__ = ["check", "configured"]

# Kernels from Inductor's templates, in place of a library.
_TEMPLATES = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    # Not on the CPU: what Inductor 2.13 writes there to measure a fusion is not Python.
    "benchmark_epilogue_fusion": False,
}


def configured(*, threads: int = 1):
    """Inside, Inductor makes Triton's kernels on the CPU too; `threads` processes compile them."""
    return inductor.patch(cpu_backend="triton", compile_threads=threads)


def check(name: str, device: str) -> int:
    """Compile a graph and compare it with eager mode; return how many kernels were made."""
    graph = GRAPHS[name]
    torch._dynamo.reset()
    metrics.reset()
    options = dict(graph.options)
    if graph.templates:
        options.update(_TEMPLATES)
    with inductor.patch(**options):
        expected = _run(graph, graph.function, device)
        actual = _run(graph, torch.compile(graph.function, fullgraph=True), device)
    tolerance = {} if graph.tolerance is None else dict.fromkeys(("rtol", "atol"), graph.tolerance)
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    return metrics.generated_kernel_count


def _run(graph: Graph, function: Any, device: str) -> list[Any]:
    """Return the results of a function, and its gradients where these are compared."""
    arguments = graph.inputs(Inputs(device))
    torch.manual_seed(0)
    results = _flat(function(*arguments))
    if not graph.grads:
        return results
    sum(result.square().sum() for result in results).backward()
    return [*results, *(a.grad for a in arguments if getattr(a, "requires_grad", False))]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _flat(item)]
    return [copy.copy(value)]


def main() -> int:
    """Run the graphs that the arguments ask for; the status is 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="1/1", help="which of how many parts of the list")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    names = [n for n in GRAPHS if not given.words or any(word in n for word in given.words)]
    failed = 0
    for name in names[part - 1 :: parts]:
        started = time.perf_counter()
        try:
            with configured():
                said = f"{check(name, given.device)} kernels"
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            failed += 1
            said = f"DIFFERS {type(error).__name__}: {error}"
        print(f"{name} {time.perf_counter() - started:.1f} s {said}", flush=True)
    total = len(names[part - 1 :: parts])
    print(f"{total - failed} of {total} graphs are equal on {given.device}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
