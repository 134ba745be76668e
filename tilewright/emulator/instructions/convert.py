"""`cvt` between all types, packed narrow floats included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, Value, numpy_type, opcode
from tilewright.emulator.floats import FORMATS, Array, decode, encode, flush
from tilewright.emulator.groups import Group, Step
from tilewright.emulator.instructions.floating import unit_range
from tilewright.emulator.instructions.integer import elementwise, is_float
from tilewright.emulator.program import EmulatorError, Instruction

__all__ = ["write_extended"]

_INTEGER_ROUNDING: dict[str, Any] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_MODES = ("rn", "rna", "rz", "rm", "rp", "rs")


def write_extended(target: Array, type: str) -> Callable[[Array], Array]:
    """Return a function that widens values of a type to a destination: by their sign, or by 0."""
    dtype = numpy_type(type)
    if target.dtype.itemsize <= dtype.itemsize:
        return lambda values: values
    wide = np.dtype(f"i{target.dtype.itemsize}")
    if dtype.kind == "i":
        return lambda values: values.astype(wide).view(target.dtype)
    if dtype.kind == "f":
        return lambda values: values.view(f"u{dtype.itemsize}").astype(target.dtype)
    return lambda values: values.astype(target.dtype)


@opcode("cvt")
def _convert(binder: Binder, instruction: Instruction, pc: int) -> Step:
    to, source = instruction.modifiers[-2:]
    if instruction.has("pack"):
        return _pack_integers(binder, instruction)
    if to.endswith("x2"):
        return _convert_packed(binder, instruction, to, source)
    operand = binder.value(instruction.operands[1], source, of_wider=True)
    storage = binder.storage(instruction.operands[0])
    convert = _scalar_conversion(instruction, to, source)
    extend = write_extended(storage, to)

    def step(group: Group) -> None:
        np.copyto(storage, _as_unsigned(extend(convert(operand))), where=group.where)

    return step


def _as_unsigned(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _scalar_conversion(instruction: Instruction, to: str, source: str) -> Callable[[Value], Array]:
    if is_float(to):
        return _to_float(instruction, to, source)
    if is_float(source):
        return _float_to_integer(instruction, to, source)
    dtype = numpy_type(to)
    if not instruction.has("sat"):
        return lambda values: np.asarray(values).astype(dtype)
    limits, from_limits = np.iinfo(dtype), np.iinfo(numpy_type(source))
    low, high = max(limits.min, from_limits.min), min(limits.max, from_limits.max)
    return lambda values: np.clip(values, low, high).astype(dtype)


def _float_values(values: Value, type: str) -> Array:
    """Return float64 values of an operand of a float type."""
    if type in {"f32", "f64", "f16"}:
        return np.asarray(values, np.float64)
    return decode(np.atleast_1d(np.asarray(values)), type).astype(np.float64)


def _float_to_integer(instruction: Instruction, to: str, source: str) -> Callable[[Value], Array]:
    """Round, clamp to the range, and give 0 or the highest bit for NaN, as the hardware does."""
    round = next((f for m, f in _INTEGER_ROUNDING.items() if instruction.has(m)), np.trunc)
    dtype, flushes = numpy_type(to), instruction.has("ftz")
    limits = np.iinfo(dtype)

    def convert(values: Value) -> Array:
        exact = _float_values(flush(np.asarray(values)) if flushes else values, source)
        whole = round(exact)
        too_large, too_small = (
            whole >= 2.0 ** (dtype.itemsize * 8 - (dtype.kind == "i")),
            whole < float(limits.min),
        )
        inside = np.where(too_large | too_small | np.isnan(whole), 0.0, whole)
        result = np.where(too_large, limits.max, inside.astype(dtype))
        result = np.where(too_small, limits.min, result)
        gives_top_bit = dtype.itemsize == 8 or (dtype.itemsize == 4 and source == "f64")
        of_nan = 1 << (8 * dtype.itemsize - 1) if gives_top_bit else 0
        raw = np.where(np.isnan(exact), np.uint64(of_nan).astype(dtype), result.astype(dtype))
        return np.asarray(raw)

    return convert


def _to_float(instruction: Instruction, to: str, source: str) -> Callable[[Value], Array]:
    mode = next((m for m in _MODES if instruction.has(m)), "rn")
    to_integral = next((f for m, f in _INTEGER_ROUNDING.items() if instruction.has(m)), None)
    saturates, relu, flushes = (instruction.has(m) for m in ("sat", "relu", "ftz"))
    finite = instruction.has("satfinite")
    if mode == "rs":
        raise EmulatorError("conversions with stochastic rounding are not modelled")

    def prepare(values: Value) -> Array:
        exact = _float_values(values, source) if is_float(source) else _integer_values(values)
        if flushes and source == "f32":
            exact = flush(exact.astype(np.float32)).astype(np.float64)
        if to_integral is not None:
            exact = to_integral(exact)
        if saturates:
            exact = unit_range(exact)
        if relu:
            exact = np.where(np.isnan(exact), exact, np.maximum(exact, 0.0))
        return exact

    def convert(values: Value) -> Array:
        if not is_float(source) and to in {"f64", "f32"} and mode == "rn":
            return np.asarray(values).astype(numpy_type(to))
        exact = prepare(values)
        if to == "f64":
            return exact
        bits = encode(exact, to, mode, saturate=finite)
        if to == "f32":
            result = bits.view(np.float32)
            return flush(result) if flushes else result
        return bits

    return convert


def _integer_values(values: Value) -> Array:
    """Return integers as float64, those of 64 bits rounded to odd."""
    integers = np.asarray(values)
    if integers.dtype.itemsize < 8:
        return integers.astype(np.float64)
    magnitude = np.where(integers < 0, -integers, integers).view(np.uint64)
    drops = magnitude >= np.uint64(1 << 53)
    sticky = (magnitude & np.uint64(0x7FF)) != 0
    cut = (magnitude & ~np.uint64(0x7FF)) | (sticky.astype(np.uint64) << np.uint64(11))
    value = np.where(drops, cut, magnitude).astype(np.float64)
    return np.where(integers < 0, -value, value)


def _convert_packed(binder: Binder, instruction: Instruction, to: str, source: str) -> Step:
    """Pairs of narrow floats: the first source goes to the upper half."""
    lane, mode = to.removesuffix("x2"), next((m for m in _MODES if instruction.has(m)), "rn")
    sources = {*FORMATS, *(f"{name}x2" for name in FORMATS)}
    if lane not in FORMATS or source not in sources or mode == "rs":
        raise EmulatorError(f"cannot convert .{source} to .{to}")
    target = binder.target(instruction.operands[0], "b16" if FORMATS[lane].bits == 8 else "b32")
    finite, relu = instruction.has("satfinite"), instruction.has("relu")
    if source.endswith("x2"):
        packed = np.atleast_1d(
            np.asarray(binder.value(instruction.operands[1], _storage_of(source)))
        )
        from_lane = source.removesuffix("x2")
        half = np.dtype(f"u{packed.dtype.itemsize // 2}")

        def read() -> tuple[Array, Array]:
            parts = np.ascontiguousarray(packed).view(half).reshape(-1, 2)
            values = decode(np.ascontiguousarray(parts.T), from_lane)
            return values[1], values[0]

    else:
        high, low = (binder.value(operand, source) for operand in instruction.operands[1:3])

        def read() -> tuple[Array, Array]:
            return np.asarray(high), np.asarray(low)

    half_bits = FORMATS[lane].bits
    storage = target.dtype.type

    def pack(values: Array) -> Array:
        if relu:
            values = np.where(np.isnan(values), values, np.maximum(values, np.float32(0)))
        return encode(values, lane, mode, saturate=finite).astype(target.dtype)

    def step(group: Group) -> None:
        upper, lower = read()
        packed_bits = (pack(upper) << storage(half_bits)) | pack(lower)
        np.copyto(target, packed_bits, where=group.where)

    return step


def _storage_of(source: str) -> str:
    return "b16" if source.startswith("e") else "b32"


def _pack_integers(binder: Binder, instruction: Instruction) -> Step:
    """`cvt.pack.sat`: two s32 to two narrow integers, above what the third operand has."""
    position = instruction.modifiers.index("sat") + 1
    to = instruction.modifiers[position]
    bits, limits = int(to[1:]), np.iinfo(numpy_type(f"{to[0]}{max(8, int(to[1:]))}"))
    if bits < 8:
        raise EmulatorError(f"cvt.pack to .{to} is not modelled")
    target = binder.target(instruction.operands[0], "b32")
    first, second = (binder.value(operand, "s32") for operand in instruction.operands[1:3])
    more = [binder.value(operand, "b32") for operand in instruction.operands[3:]]

    def compute(x: Array, y: Array, *rest: Array) -> Array:
        def clamp(values: Array) -> Array:
            clipped = np.clip(np.asarray(values).astype(np.int64), limits.min, limits.max)
            return clipped & ((1 << bits) - 1)

        packed = (clamp(x) << bits) | clamp(y)
        return (np.asarray(rest[0]).astype(np.int64) << (2 * bits)) | packed if rest else packed

    return elementwise(compute, target, first, second, *more)
