"""The text of a kernel as something to launch, on inputs that are the same each time.

The text is a module:

    GRID = (2, 1, 1)
    ARRAYS = {"x": ("fp32", 64, "whole")}  # parameter: dtype, number of elements, kind of data
    SCALARS = {"n": 37, "SIZE": 16}  # the other parameters
    DESCRIPTORS = {"d": ("x", (4, 10), (16, 1), (4, 16), "zero")}  # of an array: as their class
    OPTIONS = {"num_warps": 2}  # of launches on GPUs; left out: none
    TOLERANCES = {"y": 1e-5}  # arrays that need not agree bit for bit, and the relative error
"""

from __future__ import annotations

import importlib.util
import itertools
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tilewright as tw
from tests.fuzz.arena import Arena
from tests.fuzz.device import DeviceCopy
from tests.fuzz.races import RaceDetector
from tilewright.frontend.trace import trace
from tilewright.ir.core import Function
from tilewright.ir.types import DTYPES, DType, dtype_of_numpy
from tilewright.ir.verifier import verify
from tilewright.runtime.arguments import leaves, specialize
from tilewright.tools.tensor_descriptor import TensorDescriptor

__all__ = ["Difference", "Launch", "load_module", "make_array"]

# Kinds of whole numbers: the smallest, and one more than the largest.
_WHOLE = {"whole": (-8, 9), "small": (0, 4), "digits": (-2, 3), "exponents": (126, 129)}
_NUMBER_OF_MODULES = itertools.count()


class Difference(Exception):
    """Two executors left different memory behind."""


def make_array(name: str, dtype: DType, size: int, data: str) -> np.ndarray:
    """Elements of a kind, the same for the same name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.is_bool():
        return rng.integers(0, 2, size).astype(bool)
    if data == "zeros":
        return np.zeros(size, dtype.numpy)
    if data in _WHOLE:
        low, high = _WHOLE[data]
        low = max(low, 0) if dtype.is_int() and not dtype.is_int_signed() else low
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


class Launch:
    """A kernel with its arguments; each executor runs it on memory of its own."""

    def __init__(self, module: ModuleType) -> None:
        self.kernel: Any = module.kernel
        self.grid: tuple[int, int, int] = module.GRID
        self.scalars: Mapping[str, Any] = module.SCALARS
        self.descriptors: Mapping[str, Any] = getattr(module, "DESCRIPTORS", {})
        self.options: Mapping[str, Any] = getattr(module, "OPTIONS", {})
        self.tolerances: Mapping[str, float] = module.TOLERANCES
        self.initial = {
            name: make_array(name, DTYPES[dtype], size, data)
            for name, (dtype, size, data) in module.ARRAYS.items()
        }

    def _arguments(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name; an array that only a descriptor is made of is no parameter."""
        parameters = {parameter.name for parameter in self.kernel.params}
        passed = {name: array for name, array in arrays.items() if name in parameters}
        made = {
            name: TensorDescriptor(arrays[base], *map(list, sizes), padding)
            for name, (base, *sizes, padding) in self.descriptors.items()
        }
        return {**passed, **made, **self.scalars}

    def run_eagerly(self, arena: Arena) -> None:
        self.kernel.debug[self.grid](**self._arguments(arena.arrays), sanitize_overflow=False)

    def run_compiled(self, arena: Arena, **options: Any) -> None:
        self.kernel[self.grid](**self._arguments(arena.arrays), **options)

    def run_emulated(self, arena: Arena, architecture: str) -> None:
        with tw.emulate(architecture, races=True):
            self.run_compiled(arena, **self.options)

    def run_on_gpu(self, arena: Arena) -> None:
        copy = DeviceCopy(arena)
        self.kernel[self.grid](**self._arguments(copy.arrays), **self.options)
        copy.bring_back()

    def trace(self, arena: Arena) -> tuple[Function, list[Any]]:
        """The kernel's tile IR, and its runtime arguments."""
        values, _ = self.kernel.binder.bind(**self._arguments(arena.arrays))
        arguments = list(map(specialize, self.kernel.params, values))
        function = trace(self.kernel, {a.name: a.specialization.traced for a in arguments})
        verify(function)
        runtime = [a.value for a in leaves(arguments) if a.specialization.element is not None]
        return function, runtime

    def interpret(self, function: Function, values: list[Any], arena: Arena) -> None:
        machine = RaceDetector(self.grid, arena)
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
