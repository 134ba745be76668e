"""Runs a small tile function on the interpreter and on the CPU target, over the same inputs."""

import struct
from collections.abc import Callable, Sequence

import numpy as np

from tilewright import ops
from tilewright.codegen.cpu.compile import generate
from tilewright.codegen.llvm import compile_to_object, host, load_object
from tilewright.interpreter import interpret
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Op, Param, Value
from tilewright.ir.types import DTYPES, DType, PointerType, TileType, dtype_of_numpy
from tilewright.ops.math import MathFunction
from tilewright.passes.pipeline import optimize, prepare_for_cpu
from tilewright.runtime.pool import run_packed

INT32 = DTYPES["i32"]


def offsets(emit: Callable[[Op], Op], shape: tuple[int, ...]) -> Value:
    """Row-major element numbers of a tile of `shape`."""
    total: Value = emit(ops.Full(0, TileType(INT32, shape)))
    stride = 1
    for axis in reversed(range(len(shape))):
        line: Value = emit(ops.Arange(0, shape[axis]))
        for _ in range(axis):
            line = emit(ops.ExpandDims(line, 0))
        for _ in range(len(shape) - 1 - axis):
            line = emit(ops.ExpandDims(line, len(line.shape)))
        scaled = emit(ops.Mul(line, emit(ops.Full(stride, line.type))))
        total = emit(ops.Add(total, emit(ops.Broadcast(scaled, shape))))
        stride *= shape[axis]
    return total


def pointers(emit: Callable[[Op], Op], base: Value, shape: tuple[int, ...]) -> Value:
    """The addresses of a row-major array of `shape`; a scalar's is the base itself."""
    if not shape:
        return base
    return emit(ops.PointerAdd(emit(ops.Broadcast(base, shape)), offsets(emit, shape)))


def tile_function(
    inputs: Sequence[TileType],
    build: Callable[..., Value | Sequence[Value]],
) -> Function:
    """A function that loads tiles, calls `build(emit, *tiles)` and stores what that returns."""
    params = [Param(TileType(PointerType(t.element)), f"x{i}") for i, t in enumerate(inputs)]  # type: ignore[arg-type]
    builder = Builder(Block())
    emit = builder.emit
    tiles = [
        emit(ops.Load(pointers(emit, p, t.shape))) for p, t in zip(params, inputs, strict=True)
    ]
    built = build(emit, *tiles)
    results = [built] if isinstance(built, Value) else list(built)
    for number, value in enumerate(results):
        out = Param(TileType(PointerType(value.type.element)), f"out{number}")  # type: ignore[arg-type]
        params.append(out)
        emit(ops.Store(pointers(emit, out, value.shape), value))
    builder.block.params = tuple(params)
    function = Function("tile_function", builder.block)
    function.results = [v.type for v in results]  # type: ignore[attr-defined]
    return function


def run_on_cpu(function: Function, arguments: Sequence[int], grid=(1, 1, 1)) -> None:
    kernel = generate(prepare_for_cpu(optimize(function)), host())
    loaded = load_object(compile_to_object(kernel.llvm_ir, host=host(), level=1))
    packed = b"".join(struct.pack("<q", a) for a in arguments)

    def fail(code: int) -> None:
        raise AssertionError(kernel.assertions[code - 1])

    run_packed(loaded.address(kernel.symbol), packed, grid, kernel.scratch_bytes, on_error=fail)


def compiled_run(function: Function, arrays: Sequence[np.ndarray]) -> None:
    """Run one program on the target under test; the tests of another one put theirs here."""
    run_on_cpu(function, [a.ctypes.data for a in arrays])


def ulp_bound(function: type[MathFunction]) -> float:
    """What the target under test may be off by; the tests of another one put theirs here."""
    return function.max_ulp


def _interpreted(function: Function, arrays: Sequence[np.ndarray]) -> None:
    interpret(function, [a.ctypes.data for a in arrays])


def run_both(
    arrays: Sequence[np.ndarray],
    build: Callable[..., Value | Sequence[Value]],
    dtypes: Sequence[DType] | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (expected, computed) for each result."""
    kinds = dtypes or [dtype_of_numpy(a.dtype) for a in arrays]
    types = [TileType(d, a.shape) for d, a in zip(kinds, arrays, strict=True)]  # type: ignore[arg-type]
    function = tile_function(types, build)
    sides = []
    for run in (_interpreted, compiled_run):
        # A result may overrun only into the guard, which must stay as it is.
        inputs = [np.ascontiguousarray(a).copy() for a in arrays]
        outputs = [np.full(t.size + 64, 1, t.element.numpy) for t in function.results]  # type: ignore[attr-defined]
        run(function, [*inputs, *outputs])
        for out, type_ in zip(outputs, function.results, strict=True):  # type: ignore[attr-defined]
            assert (out[type_.size :] == np.ones((), out.dtype)).all(), "wrote past the end"
        sides.append(
            [o[: t.size].reshape(t.shape) for o, t in zip(outputs, function.results, strict=True)]  # type: ignore[attr-defined]
        )
    return list(zip(*sides, strict=True))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, except that any NaN equals any other."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    raw = f"u{a.dtype.itemsize}"
    equal = np.ascontiguousarray(a).view(raw) == np.ascontiguousarray(b).view(raw)
    if dtype_of_numpy(a.dtype) is not None and dtype_of_numpy(a.dtype).is_floating():  # type: ignore[union-attr]
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        equal |= np.isnan(wide_a) & np.isnan(wide_b)
    return bool(equal.all())


def ulp_difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance in units of the last place of `b`; NaN and infinities must agree.

    A subnormal number counts as 0 where the other one is 0: some instructions flush it.
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    special = ~np.isfinite(wide_a) | ~np.isfinite(wide_b)
    if not same_bits(a[special], b[special]):
        return float("inf")
    spacing = np.spacing(np.abs(b[~special])).astype(np.float64)
    distance = np.abs(wide_a[~special] - wide_b[~special]) / spacing
    flushed = (a[~special] == 0) & (np.abs(b[~special]) < np.finfo(b.dtype).tiny)
    distance = distance[~flushed]
    return float(distance.max()) if distance.size else 0.0
