"""Floating-point arithmetic of all widths, packed pairs included.

Approximate functions (`ex2.approx`, `rsqrt.approx`, `div.full`, ...) give the correctly rounded
result or one within an ulp of it: at least as accurate as the hardware's, not bit-equal to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, Value, numpy_type, opcode
from tilewright.emulator.floats import (
    FORMATS,
    Array,
    add_to_odd,
    decode,
    encode,
    flush,
    fma32,
    fma64,
    two_product,
    two_sum,
)
from tilewright.emulator.groups import Group, Step
from tilewright.emulator.program import Instruction

__all__ = ["arithmetic", "divide", "fused", "maximum", "minimum", "unit_range"]

_CANONICAL = np.uint32(0x7FFFFFFF)
_MODES = ("rn", "rz", "rm", "rp", "rna")
_DIRECT: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_Function = Callable[..., Array]


def _mode(instruction: Instruction) -> str:
    return next((mode for mode in _MODES if instruction.has(mode)), "rn")


def _spread(value: Value, lane: str) -> Array:
    """View packed words as rows of lanes."""
    lanes = np.atleast_1d(np.asarray(value)).view(lane)
    return lanes.reshape(-1, np.asarray(value).dtype.itemsize // np.dtype(lane).itemsize)


def _lane_type(type: str) -> tuple[str, bool]:
    """Return the element type of a (packed) type, and whether it is packed."""
    return (type[:-2], True) if type.endswith("x2") else (type, False)


def _bind(
    binder: Binder, instruction: Instruction, compute: _Function, type: str | None = None
) -> Step:
    """Make a step of a function on bits (16-bit lanes) or on float32 or float64 values."""
    type = type or instruction.type
    lane, packed = _lane_type(type)
    storage = numpy_type(lane) if lane in {"f32", "f64"} else np.dtype(np.uint16)
    target = binder.target(instruction.operands[0], type)
    sources = [binder.value(operand, type) for operand in instruction.operands[1:]]
    if packed:
        out = target.view(storage).reshape(-1, 2)
        views = [_spread(source, storage.str) for source in sources]

        def packed_step(group: Group) -> None:
            np.copyto(out, compute(*views), where=group.mask[:, None])

        return packed_step
    out = target.view(storage)
    flat = [np.asarray(source).view(storage) for source in sources]

    def step(group: Group) -> None:
        np.copyto(out, compute(*flat), where=group.where)

    return step


def _narrow_operands(instruction: Instruction) -> str:
    """Return the type of all sources but the last, where they are narrower than the result."""
    types = [m for m in instruction.modifiers if m in {"f32", "f16", "bf16"}]
    return types[1] if len(types) == 2 and types[0] == "f32" else ""


def _bind_mixed(binder: Binder, instruction: Instruction, narrow: str, compute: _Function) -> Step:
    """Make a step of a function on float32 values, all but the last of which come narrower."""
    out = binder.target(instruction.operands[0], "f32").view(np.float32)
    *first, last = instruction.operands[1:]
    bits = [np.asarray(binder.value(operand, narrow)).view(np.uint16) for operand in first]
    addend = np.asarray(binder.value(last, "f32")).view(np.float32)
    finished = _finish(instruction, compute)

    def step(group: Group) -> None:
        wide = [decode(x, narrow).astype(np.float32) for x in bits]
        np.copyto(out, finished(*wide, addend), where=group.where)

    return step


def _finish(instruction: Instruction, compute: _Function) -> _Function:
    """Add flushing, saturation, relu and the canonical NaN to a function on float32 values."""
    flushes, saturates = instruction.has("ftz"), instruction.has("sat")
    relu = instruction.has("relu")

    def finished(*values: Array) -> Array:
        result = compute(*(map(flush, values) if flushes else values))
        if flushes:
            result = flush(result)
        if saturates:
            result = unit_range(result)
        if relu:
            result = np.where(np.isnan(result), result, np.maximum(result, np.float32(0)))
        is_nan = np.isnan(result)
        if is_nan.any():
            result = np.where(is_nan, _CANONICAL, np.asarray(result).view(np.uint32))
            result = result.view(np.float32)
        return result

    return finished


def _narrow(lane: str, instruction: Instruction, exact: _Function) -> _Function:
    """Make a function on the bits of f16 or bf16 from one on exact float64 values."""
    mode, saturates, relu = _mode(instruction), instruction.has("sat"), instruction.has("relu")
    sign_bit = np.uint16(0x8000)
    smallest = np.uint16(1 << FORMATS[lane].mantissa_bits if instruction.has("ftz") else 0)

    def flushed(bits: Array) -> Array:
        return np.where((bits & ~sign_bit) < smallest, bits & sign_bit, bits)

    def compute(*bits: Array) -> Array:
        return flushed(rounded(*map(flushed, bits)) if smallest else rounded(*bits))

    def rounded(*bits: Array) -> Array:
        values = exact(*(decode(part, lane).astype(np.float64) for part in bits))
        if saturates:
            values = unit_range(values)
        if relu:
            values = np.where(np.isnan(values), values, np.maximum(values, 0.0))
        return encode(values, lane, mode)

    return compute


def unit_range(values: Array) -> Array:
    """Return values clamped to 0 and 1 (`.sat`); NaN and -0 become +0."""
    one = values.dtype.type(1)
    return np.asarray(np.where(values > 0, np.minimum(values, one), values.dtype.type(0)))


def minimum(x: Array, y: Array, *, nan: bool = False, magnitude: bool = False) -> Array:
    """Return the smaller float; -0 is below +0; NaN only if both are NaN, or `nan` is set."""
    return _extreme(x, y, np.fmin, np.bitwise_or, nan=nan, magnitude=magnitude)


def maximum(x: Array, y: Array, *, nan: bool = False, magnitude: bool = False) -> Array:
    """Return the larger float; as `minimum`."""
    return _extreme(x, y, np.fmax, np.bitwise_and, nan=nan, magnitude=magnitude)


def _extreme(x: Array, y: Array, pick: Any, of_zeros: Any, *, nan: bool, magnitude: bool) -> Array:
    result = np.asarray(pick(x, y))
    raw = f"u{result.dtype.itemsize}"
    zeros = (x == 0) & (y == 0)
    if np.any(zeros):
        signs = of_zeros(np.asarray(x).view(raw), np.asarray(y).view(raw)).view(result.dtype)
        result = np.where(zeros, signs, result)
    if magnitude:
        sign = np.signbit(x) ^ np.signbit(y)
        result = np.copysign(pick(np.abs(x), np.abs(y)), np.where(sign, -1, 1)).astype(result.dtype)
    if nan:
        result = np.where(np.isnan(x) | np.isnan(y), result.dtype.type(np.nan), result)
    return result


def arithmetic(binder: Binder, instruction: Instruction) -> Step:
    """Make the step of add, sub, mul, min, max, neg and abs."""
    name = instruction.opcode
    lane, _ = _lane_type(instruction.type)
    if name in {"neg", "abs"}:
        return _bind(binder, instruction, _sign(name, lane, instruction))
    if name in {"min", "max"}:
        pick = partial(
            minimum if name == "min" else maximum,
            nan=instruction.has("NaN"),
            magnitude=instruction.has("xorsign"),
        )

        def extreme(*values: Array) -> Array:
            result = values[0]
            for value in values[1:]:
                result = pick(result, value)
            return result

        if lane in {"f16", "bf16"}:
            return _bind(binder, instruction, _narrow(lane, instruction, extreme))
        if lane == "f64":
            return _bind(binder, instruction, extreme)
        return _bind(binder, instruction, _finish(instruction, extreme))
    if narrow := _narrow_operands(instruction):
        return _bind_mixed(binder, instruction, narrow, _DIRECT[name])
    return _bind(binder, instruction, _rounded(name, lane, instruction))


def _sign(name: str, lane: str, instruction: Instruction) -> _Function:
    if lane in {"f16", "bf16"}:
        bit = np.uint16(0x8000)
        if name == "abs":
            return lambda x: x & ~bit
        nan, infinity = np.uint16(FORMATS[lane].nan), np.uint16(FORMATS[lane].infinity)
        return lambda x: np.where((x & ~bit) > infinity, nan, x ^ bit)
    operation: Any = np.negative if name == "neg" else np.abs
    if instruction.has("ftz"):
        return lambda x: operation(flush(x))
    return lambda x: np.asarray(operation(x))


def _rounded(name: str, lane: str, instruction: Instruction) -> _Function:
    operation, mode = _DIRECT[name], _mode(instruction)
    if lane in {"f16", "bf16"}:
        if name == "mul":
            return _narrow(lane, instruction, operation)  # exact in float64
        sign = -1.0 if name == "sub" else 1.0
        return _narrow(lane, instruction, lambda x, y: add_to_odd(x, sign * y))
    if mode == "rn":
        return operation if lane == "f64" else _finish(instruction, operation)
    if lane == "f64":
        return partial(_directed64, name, mode)

    def directed(x: Array, y: Array) -> Array:
        wide_x, wide_y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if name == "mul":
            total = wide_x * wide_y
        else:
            total = add_to_odd(wide_x, -wide_y if name == "sub" else wide_y)
        return encode(total, "f32", mode).view(np.float32)

    return _finish(instruction, directed)


def _directed64(name: str, mode: str, x: Array, y: Array) -> Array:
    """Round a float64 sum or product to a side: step from the nearest by the sign of its error."""
    if name == "mul":
        nearest, error = two_product(np.asarray(x), np.asarray(y))
    else:
        nearest, error = two_sum(np.asarray(x), np.asarray(-y if name == "sub" else y))
    if mode == "rz":
        toward = np.zeros(nearest.shape)
        steps = (error != 0) & (np.signbit(error) != np.signbit(nearest))
    else:
        toward = np.full(nearest.shape, np.inf if mode == "rp" else -np.inf)
        steps = error > 0 if mode == "rp" else error < 0
    return np.where(steps, np.nextafter(nearest, toward), nearest)


@opcode("fma")
def fused(binder: Binder, instruction: Instruction, pc: int) -> Step:
    """Make the step of a fused multiply-add."""
    if narrow := _narrow_operands(instruction):
        return _bind_mixed(binder, instruction, narrow, fma32)
    lane, _ = _lane_type(instruction.type)
    mode = _mode(instruction)
    if lane in {"f16", "bf16"}:
        return _bind(
            binder, instruction, _narrow(lane, instruction, lambda x, y, z: add_to_odd(x * y, z))
        )
    if lane == "f64":
        return _bind(binder, instruction, fma64)
    if mode == "rn":
        return _bind(binder, instruction, _finish(instruction, fma32))

    def directed(x: Array, y: Array, z: Array) -> Array:
        product = np.multiply(x, y, dtype=np.float64)
        total = add_to_odd(np.asarray(product), np.asarray(z, np.float64))
        return encode(total, "f32", mode).view(np.float32)

    return _bind(binder, instruction, _finish(instruction, directed))


def divide(binder: Binder, instruction: Instruction) -> Step:
    """Make the step of a division; approximate forms round correctly, too."""
    mode = _mode(instruction)
    if instruction.type == "f64":
        return _bind(binder, instruction, np.divide)
    if mode == "rn":
        return _bind(binder, instruction, _finish(instruction, np.divide))

    def directed(x: Array, y: Array) -> Array:
        wide_x, wide_y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        return encode(wide_x / wide_y, "f32", mode).view(np.float32)

    return _bind(binder, instruction, _finish(instruction, directed))


def _tanh(x: Array) -> Array:
    return np.asarray(np.tanh(x))


_FUNCTIONS: dict[str, Any] = {
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": _tanh,
}


@opcode(*_FUNCTIONS)
def _function(binder: Binder, instruction: Instruction, pc: int) -> Step:
    """Functions of one argument, computed in float64 and rounded once more."""
    lane, _ = _lane_type(instruction.type)
    function = _FUNCTIONS[instruction.opcode]
    mode = _mode(instruction)
    if lane in {"f16", "bf16"}:
        return _bind(binder, instruction, _narrow(lane, instruction, function))
    if lane == "f64":
        return _bind(binder, instruction, function)

    def compute(x: Array) -> Array:
        wide = np.asarray(function(np.asarray(x, np.float64)))
        if mode == "rn":
            return np.asarray(wide.astype(np.float32))
        return encode(wide, "f32", mode).view(np.float32)

    return _bind(binder, instruction, _finish(instruction, compute))


@opcode("copysign")
def _copy_sign(binder: Binder, instruction: Instruction, pc: int) -> Step:
    return _bind(binder, instruction, lambda sign, value: np.copysign(value, sign))


@opcode("testp")
def _test(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], "pred")
    x = binder.value(instruction.operands[1], type)
    smallest = np.finfo(numpy_type(type)).smallest_normal
    tests: dict[str, _Function] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= smallest),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }
    test = tests[instruction.modifiers[0]]

    def step(group: Group) -> None:
        np.copyto(target, test(x), where=group.where)

    return step
