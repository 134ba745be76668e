"""Runs one kernel by every executor, on equal inputs, and compares what it leaves in memory.

The text of a kernel is a module that says how to launch it:

    GRID = (2, 1, 1)
    ARRAYS = {"x": ("fp32", 64, "whole")}  # parameter: dtype, number of elements, kind of data
    SCALARS = {"n": 37, "SIZE": 16}  # the other parameters
    TOLERANCES = {"y": 1e-5}  # arrays that need not agree bit for bit, and the relative error
"""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.fuzz.arena import Arena
from tilewright.errors import CompileError, LaunchError, TilewrightError
from tilewright.frontend.trace import trace
from tilewright.interpreter import Interpreter, MemoryRegion
from tilewright.ir.core import Function, Op
from tilewright.ir.types import DTYPES, DType, dtype_of_numpy
from tilewright.ir.verifier import verify
from tilewright.ops import AtomicCas, AtomicRmw
from tilewright.passes.pipeline import optimize, prepare_for_cpu
from tilewright.runtime.arguments import leaves, specialize

__all__ = ["Outcome", "check", "make_array"]

_NUMBER_OF_MODULES = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What came of a kernel: `kind` is "agrees", "invalid", or names the fault."""

    kind: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind != "agrees"


class Difference(Exception):
    """Two executors left different memory behind."""


def make_array(name: str, dtype: DType, size: int, data: str) -> np.ndarray:
    """Elements of a kind, the same for the same name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.is_bool():
        return rng.integers(0, 2, size).astype(bool)
    if data == "zeros":
        return np.zeros(size, dtype.numpy)
    if data in {"whole", "small"}:
        low, high = (-8, 9) if data == "whole" else (0, 4)
        low = 0 if dtype.is_int() and not dtype.is_int_signed() else low
        return rng.integers(low, high, size).astype(dtype.numpy)
    if not dtype.is_floating():
        low, high = dtype.integer_range
        return rng.integers(low, high, size, dtype.numpy, endpoint=True)
    values = rng.normal(size=size) * np.exp2(rng.integers(-6, 7, size))
    if data == "special":
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-40, 6e-8, 3e38, 65504.0]
        values = np.where(rng.random(size) < 0.4, rng.choice(special, size), values)
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype.numpy)


class _Launch:
    """A kernel with its arguments; each executor runs it on memory of its own."""

    def __init__(self, module: ModuleType) -> None:
        self.kernel: Any = module.kernel
        self.grid: tuple[int, int, int] = module.GRID
        self.scalars: Mapping[str, Any] = module.SCALARS
        self.tolerances: Mapping[str, float] = module.TOLERANCES
        self.initial = {
            name: make_array(name, DTYPES[dtype], size, data)
            for name, (dtype, size, data) in module.ARRAYS.items()
        }

    def run_eagerly(self, arena: Arena) -> None:
        self.kernel.debug[self.grid](**arena.arrays, **self.scalars, sanitize_overflow=False)

    def run_compiled(self, arena: Arena, **options: int) -> None:
        self.kernel[self.grid](**arena.arrays, **self.scalars, **options)

    def trace(self, arena: Arena) -> tuple[Function, list[Any]]:
        """The kernel's tile IR, and its runtime arguments."""
        values, _ = self.kernel.binder.bind(**arena.arrays, **self.scalars)
        arguments = list(map(specialize, self.kernel.params, values))
        function = trace(self.kernel, {a.name: a.specialization.traced for a in arguments})
        verify(function)
        runtime = [a.value for a in leaves(arguments) if a.specialization.element is not None]
        return function, runtime

    def interpret(self, function: Function, values: list[Any], arena: Arena) -> None:
        machine = _RaceDetector(self.grid, arena)
        signed = [
            np.asarray(v).astype(p.type.element.numpy)
            for p, v in zip(function.params, values, strict=True)
        ]
        with np.errstate(all="ignore"):
            for place in itertools.product(*map(range, reversed(self.grid))):
                machine.program_id = tuple(reversed(place))
                machine.call(function, *signed)

    def arena(self) -> Arena:
        return Arena(self.initial)

    def compare(self, expected: Arena, got: Arena, executor: str) -> None:
        for name, want in expected.arrays.items():
            have = got.arrays[name]
            wrong = _wrong_elements(want, have, self.tolerances.get(name, 0.0))
            if wrong.any():
                first = int(np.argmax(wrong))
                raise Difference(
                    f"{executor}: {int(wrong.sum())} of {wrong.size} elements of `{name}` differ, "
                    f"first at {first}: {want[first]!r} expected, {have[first]!r} found"
                )
        overrun = got.overrun()
        if overrun:
            raise Difference(f"{executor}: wrote outside `{overrun}`")


def _wrong_elements(want: np.ndarray, have: np.ndarray, tolerance: float) -> np.ndarray:
    raw = f"u{want.dtype.itemsize}"
    wrong = want.view(raw) != have.view(raw)
    element = dtype_of_numpy(want.dtype)
    if element is not None and element.is_floating():
        a, b = want.astype(np.float64), have.astype(np.float64)
        wrong &= ~(np.isnan(a) & np.isnan(b))
        if tolerance:
            with np.errstate(all="ignore"):
                wrong &= ~(np.abs(a - b) <= tolerance * (1 + np.abs(a)))
    return wrong


class _RaceDetector(Interpreter):
    """An interpreter that refuses kernels whose result depends on the order of programs.

    For each byte it keeps which program read it, wrote it or changed it atomically: -1 for none,
    -2 for several.
    """

    def __init__(self, grid: tuple[int, int, int], arena: Arena) -> None:
        super().__init__(grid, arena.regions)
        self._is_atomic = False
        self._shadows = [
            (region, {what: np.full(region.size_bytes, -1) for what in ("read", "write", "atomic")})
            for region in arena.regions
        ]

    def evaluate(self, op: Op, lookup: Any) -> tuple[np.ndarray, ...]:
        self._is_atomic = isinstance(op, AtomicRmw | AtomicCas)
        return super().evaluate(op, lookup)

    def read(self, addresses: np.ndarray, dtype: DType) -> np.ndarray:
        values = super().read(addresses, dtype)
        self._note("atomic" if self._is_atomic else "read", addresses, dtype.itemsize)
        return values

    def write(self, addresses: np.ndarray, values: np.ndarray) -> None:
        super().write(addresses, values)
        self._note("atomic" if self._is_atomic else "write", addresses, values.dtype.itemsize)
        if np.unique(addresses).size != addresses.size:
            raise LaunchError("two lanes of one store have the same address")

    def _note(self, what: str, addresses: np.ndarray, itemsize: int) -> None:
        if self.grid == (1, 1, 1):
            return
        x, y, z = self.program_id
        program = x + self.grid[0] * (y + self.grid[1] * z)
        forbidden = {
            "read": ("write", "atomic"),
            "write": ("read", "write", "atomic"),
            "atomic": ("read", "write"),
        }
        for region, users in self._shadows:
            places = _bytes_inside(region, addresses, itemsize)
            for other in forbidden[what]:
                found = users[other][places]
                if ((found != -1) & (found != program)).any():
                    raise LaunchError(
                        f"a race between programs: {what} after {other} in `{region.name}`"
                    )
            before = users[what][places]
            users[what][places] = np.where((before == -1) | (before == program), program, -2)


def _bytes_inside(region: MemoryRegion, addresses: np.ndarray, itemsize: int) -> np.ndarray:
    places = (addresses[:, None] - region.start + np.arange(itemsize)).reshape(-1)
    return places[(places >= 0) & (places < region.size_bytes)]


def load_module(source: str, directory: Path) -> ModuleType:
    """Execute the text of a kernel from a file, where its source can be found."""
    name = f"fuzz_kernel_{next(_NUMBER_OF_MODULES)}"
    path = directory / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(source: str, *, stages: bool = False, like: str = "") -> Outcome:
    """Run a kernel by every executor and say whether they agree.

    With `stages`, the IR is interpreted after every stage of the compiler, which shows where a
    difference comes from. `like` is the text of a kernel that should leave the same results.
    """
    with tempfile.TemporaryDirectory() as directory:
        try:
            launch = _Launch(load_module(source, Path(directory)))
            model = _Launch(load_module(like, Path(directory))) if like else launch
        except Exception as error:  # noqa: BLE001 - a text that was cut too far raises anything
            return Outcome("invalid", _shown(error))
        outcome = _check(launch, stages=stages)
        if like and not outcome.is_fault:
            expected, got = launch.arena(), launch.arena()
            model.run_compiled(expected)
            launch.run_compiled(got)
            try:
                launch.compare(expected, got, "variant")
            except Difference as difference:
                outcome = Outcome("variant differs", f"{difference}\n\nof:\n{like}")
        return outcome


def _check(launch: _Launch, *, stages: bool) -> Outcome:
    expected, traced = launch.arena(), launch.arena()
    eager_error = _error_of(lambda: launch.run_eagerly(expected))
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
    executors = _executors(launch, function, stages=stages)
    try:
        launch.compare(expected, traced, "interpreter")
        for name, arena, run in executors:
            error = _error_of(run)
            if error is not None:
                return Outcome(f"{name} fails: {type(error).__name__}", _shown(error))
            launch.compare(expected, arena, name)
    except Difference as difference:
        return Outcome(f"{str(difference).partition(':')[0]} differs", str(difference))
    return Outcome("agrees")


def _executors(launch: _Launch, function: Any, *, stages: bool) -> Iterator[tuple[str, Arena, Any]]:
    if stages:
        for name, passes in (
            ("optimized IR", optimize),
            ("IR for the CPU", lambda f: prepare_for_cpu(optimize(f))),
        ):
            arena = launch.arena()
            values = launch.trace(arena)[1]
            yield (
                name,
                arena,
                lambda p=passes, v=values, a=arena: launch.interpret(p(function), v, a),
            )
    for options in ({}, {"num_warps": 8, "num_stages": 1}):
        arena = launch.arena()
        yield "CPU", arena, lambda o=options, a=arena: launch.run_compiled(a, **o)


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
