"""Runs one kernel by every executor, on equal inputs, and compares what it leaves in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.executors import EMULATED
from tests.fuzz.arena import Arena
from tests.fuzz.launch import Difference, Launch, load_module
from tilewright.errors import CompileError, LaunchError, TilewrightError
from tilewright.ir.core import Function
from tilewright.passes.pipeline import optimize, prepare_for_cpu
from tilewright.target import NVIDIA_TARGETS

__all__ = ["COMPILED", "CPU", "EXECUTORS", "GPU", "Outcome", "check"]

CPU, GPU = "cpu", "gpu"
_ARCHITECTURES = tuple(target.architecture for target in NVIDIA_TARGETS)
EXECUTORS = (CPU, GPU, *_ARCHITECTURES)
# What runs compiled kernels, unless it is said: no test may need a GPU.
COMPILED = (CPU, *EMULATED)


Executor = tuple[str, Callable[[Arena], None]]


@dataclass(frozen=True)
class Outcome:
    """What came of a kernel: `kind` is "agrees", "invalid", or names the fault."""

    kind: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind != "agrees"


def check(
    source: str, *, on: Sequence[str] = COMPILED, stages: bool = False, like: str = ""
) -> Outcome:
    """Run a kernel by every executor and say whether they agree.

    Eager mode and the interpreter are always among them; `on` names the others: "cpu", "gpu", and
    architectures to emulate. With `stages`, the IR is interpreted after every stage of the
    compiler, which shows where a difference comes from. `like` is the text of a kernel whose
    results in eager mode are the right ones.
    """
    with tempfile.TemporaryDirectory() as directory:
        try:
            launch = Launch(load_module(source, Path(directory)))
            model = Launch(load_module(like, Path(directory))) if like else launch
        except Exception as error:  # noqa: BLE001 - a text that was cut too far raises anything
            return Outcome("invalid", _shown(error))
        return _check(launch, model, on, stages=stages)


def _check(launch: Launch, model: Launch, on: Sequence[str], *, stages: bool) -> Outcome:
    expected, traced = model.arena(), launch.arena()
    eager_error = _error_of(lambda: model.run_eagerly(expected))
    function = None

    def interpret() -> None:
        nonlocal function
        function, values = launch.trace(traced)
        launch.interpret(function, values, traced)

    traced_error = _error_of(interpret)
    if isinstance(traced_error, CompileError | LaunchError) and (
        eager_error is not None or not isinstance(traced_error, CompileError)
    ):
        return Outcome("invalid", _shown(traced_error))
    if isinstance(traced_error, CompileError):
        return Outcome(f"refused: {traced_error.message}", _shown(traced_error))
    for name, error in (("eager mode", eager_error), ("interpreter", traced_error)):
        if error is not None:
            return Outcome(f"{name} fails: {type(error).__name__}", _shown(error))
    executors = [*(_stages(launch, function) if stages else ()), *_executors(launch, on)]
    if model is not launch:
        executors.insert(0, ("eager mode", launch.run_eagerly))
    try:
        launch.compare(expected, traced, "interpreter")
        for name, run in executors:
            arena = launch.arena()
            error = _error_of(lambda r=run, a=arena: r(a))
            if error is not None:
                return Outcome(f"{name} fails: {type(error).__name__}", _shown(error))
            launch.compare(expected, arena, name)
    except Difference as difference:
        return Outcome(f"{str(difference).partition(':')[0]} differs", str(difference))
    return Outcome("agrees")


def _stages(launch: Launch, function: Function) -> Iterator[Executor]:
    stages: list[tuple[str, Callable[[Function], Function]]] = [
        ("optimized IR", optimize),
        ("IR for the CPU", lambda f: prepare_for_cpu(optimize(f))),
    ]
    for name, passes in stages:

        def run(arena: Arena, passes: Callable[[Function], Function] = passes) -> None:
            launch.interpret(passes(function), launch.trace(arena)[1], arena)

        yield name, run


def _executors(launch: Launch, on: Sequence[str]) -> Iterator[Executor]:
    for name in on:
        if name == GPU:
            yield "GPU", launch.run_on_gpu
        elif name in _ARCHITECTURES:
            yield name, partial(launch.run_emulated, architecture=name)
        else:
            yield "CPU", launch.run_compiled
            yield "CPU", partial(launch.run_compiled, num_warps=8, num_stages=1)


def _error_of(run: Any) -> Exception | None:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - every fault of an executor is reported
        return error
    return None


def _shown(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, TilewrightError) and error.__traceback__ is not None:
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        text += f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})"
    return text
