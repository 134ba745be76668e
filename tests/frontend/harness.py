"""Runs a function of the language on NumPy arrays: traced and interpreted, and eagerly."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from tilewright.frontend.context import Evaluated
from tilewright.frontend.eager import run_eagerly
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.tensor import Tensor
from tilewright.frontend.trace import Constant, Runtime, trace
from tilewright.interpreter import Interpreter, MemoryRegion, interpret
from tilewright.ir.core import Function
from tilewright.ir.types import DTYPES, PointerType, TileType, dtype_of_numpy
from tilewright.ir.verifier import verify

INT32, FP32, BOOL = (TileType(DTYPES[name]) for name in ("i32", "fp32", "i1"))


def kernel(fn: FunctionType) -> KernelFunction:
    return KernelFunction(fn)


def type_of(value: Any) -> TileType | None:
    """The type of a runtime argument; None for one that is a constant."""
    if isinstance(value, np.ndarray):
        return TileType(PointerType(dtype_of_numpy(value.dtype)))
    if isinstance(value, np.generic):
        return TileType(dtype_of_numpy(value.dtype))
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT32
    return FP32 if isinstance(value, float) else None


def argument_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(argument_of, value))
    type_ = type_of(value)
    return Constant(value) if type_ is None else Runtime(type_)


def raw(value: Any) -> Any:
    return value.ctypes.data if isinstance(value, np.ndarray) else value


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [] if type_of(value) is None else [value]


def evaluated(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(evaluated, value))
    type_ = type_of(value)
    return value if type_ is None else Tensor(Evaluated(type_, np.asarray(raw(value))))


def bound(function: KernelFunction, args: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(function.arg_names, args, strict=False))


def ir_of(function: KernelFunction, *args: Any, **constants: Any) -> Function:
    """The IR for arguments like these; `constants` are compile-time values."""
    arguments = {name: argument_of(value) for name, value in bound(function, args).items()}
    arguments |= {name: Constant(value) for name, value in constants.items()}
    traced = trace(function, arguments)
    verify(traced)
    return traced


def run_traced(
    function: KernelFunction,
    *args: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    **constants: Any,
) -> tuple[Any, ...]:
    """Trace and interpret; return the runtime values that the last program returns."""
    traced = ir_of(function, *args, **constants)
    return interpret(traced, [raw(v) for v in flat(args)], grid, regions(args))


def copied(value: Any) -> Any:
    """The value, with copies of the arrays in it."""
    if isinstance(value, tuple):
        items = map(copied, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value.copy() if isinstance(value, np.ndarray) else value


def regions(args: tuple[Any, ...]) -> list[MemoryRegion]:
    arrays = [v for v in flat(args) if isinstance(v, np.ndarray)]
    return [MemoryRegion(a.ctypes.data, a.nbytes, f"argument {i}") for i, a in enumerate(arrays)]


def run_eager(
    function: KernelFunction,
    *args: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    **constants: Any,
) -> Any:
    """Run eagerly; return what the last program returns."""
    machine = Interpreter(grid, regions(args))
    values = {n: evaluated(v) for n, v in bound(function, args).items()} | constants
    result = None
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                machine.program_id = (x, y, z)
                result = run_eagerly(function, values, machine)
    return result


def leaves_of(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [leaf for item in result for leaf in leaves_of(item)]
    return [result.value] if isinstance(result, Tensor) else []


def returned(function: KernelFunction, *args: Any, **constants: Any) -> list[Any]:
    """What a function returns, checked to be the same in type and value in both executors."""
    traced = ir_of(function, *args, **constants)
    first = copied(args)
    values = interpret(traced, [raw(v) for v in flat(first)], (1, 1, 1), regions(first))
    args = copied(args)
    eager = leaves_of(run_eager(function, *args, **constants))
    assert [v.type for v in eager] == [v.type for v in traced.body.yields]
    for one, other in zip(values, eager, strict=True):
        np.testing.assert_array_equal(one, other.array)
    return [v.item() if v.ndim == 0 else v.tolist() for v in map(np.asarray, values)]


def stored(
    function: KernelFunction, out: np.ndarray, *args: Any, grid: Any = (1, 1, 1), **constants: Any
) -> np.ndarray:
    """What a kernel stores to its first argument, checked to be the same in both executors."""
    one, other = out.copy(), out.copy()
    run_traced(function, one, *args, grid=grid, **constants)
    run_eager(function, other, *args, grid=grid, **constants)
    np.testing.assert_array_equal(one, other)
    return one
