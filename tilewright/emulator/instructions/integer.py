"""Integer arithmetic. Opcodes that floats share are handed on to `floating`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, Value, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Step
from tilewright.emulator.instructions import floating
from tilewright.emulator.program import Instruction

__all__ = ["elementwise", "is_float", "ufunc"]

_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.abs,
}
_HALVES = {"16": "32", "32": "64"}


def is_float(type: str) -> bool:
    """Whether a type is a float, packed or not."""
    return type.startswith(("f", "bf", "tf", "e"))


def ufunc(function: Any, target: Array, *sources: Value) -> Step:
    """Make a step that applies a ufunc to whole rows."""
    if len(sources) != function.nin:
        raise ValueError(f"it has {len(sources)} sources, not {function.nin}")

    def step(group: Group) -> None:
        function(*sources, out=target, where=group.where)

    return step


def elementwise(function: Callable[..., Any], target: Array, *sources: Value) -> Step:
    """Make a step that computes whole rows and keeps those of the group."""

    def step(group: Group) -> None:
        np.copyto(target, function(*sources), where=group.where, casting="unsafe")

    return step


@opcode("add", "sub", "min", "max", "neg", "abs")
def _simple(binder: Binder, instruction: Instruction, pc: int) -> Step:
    name, type = instruction.opcode, instruction.type
    if is_float(type):
        return floating.arithmetic(binder, instruction)
    if instruction.has("cc"):
        return _with_carry(binder, instruction, pc)
    target = binder.target(instruction.operands[0], type)
    sources = [binder.value(operand, type) for operand in instruction.operands[1:]]
    if type.endswith("x2"):
        return _packed(name, type, target, sources)
    if instruction.has("sat"):
        limits = np.iinfo(np.int32)

        def saturated(*values: Value) -> Array:
            exact = _UFUNCS[name](*(np.asarray(value).astype(np.int64) for value in values))
            return np.asarray(exact).clip(limits.min, limits.max)

        return elementwise(saturated, target, *sources)
    if instruction.has("relu"):
        return elementwise(
            lambda x, y: np.maximum(_UFUNCS[name](x, y), np.int32(0)), target, *sources
        )
    return ufunc(_UFUNCS[name], target, *sources)


def _packed(name: str, type: str, target: Array, sources: list[Value]) -> Step:
    lane = numpy_type(type[0] + "16")
    views = [np.atleast_1d(np.asarray(source)).view(lane).reshape(-1, 2) for source in sources]
    out = target.view(lane).reshape(-1, 2)

    def step(group: Group) -> None:
        np.copyto(out, _UFUNCS[name](*views), where=group.mask[:, None])

    return step


@opcode("addc", "subc")
def _with_carry(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type.replace("s", "u")
    target = binder.target(instruction.operands[0], type)
    x, y = (binder.value(operand, type) for operand in instruction.operands[1:])
    carry, uses_carry = binder.machine.carry, instruction.opcode.endswith("c")
    sets_carry, subtracts = instruction.has("cc"), instruction.opcode.startswith("sub")
    one = numpy_type(type).type(1)

    def step(group: Group) -> None:
        if subtracts:
            partial = np.asarray(x - y)
            overflow = np.asarray(x < y)
        else:
            partial = np.asarray(x + y)
            overflow = partial < x
        if uses_carry:
            extra = carry * one
            total = partial - extra if subtracts else partial + extra
            overflow = overflow | ((partial < extra) if subtracts else (total < partial))
        else:
            total = partial
        np.copyto(target, total, where=group.where)
        if sets_carry:
            np.copyto(carry, overflow, where=group.where)

    return step


def _high(x: Array, y: Array, type: str) -> Array:
    """Return the upper half of a product."""
    bits = type[1:]
    if bits in _HALVES:
        wide = np.dtype(numpy_type(type[0] + _HALVES[bits]))
        return np.asarray(np.multiply(x, y, dtype=wide) >> wide.type(int(bits)))
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = np.asarray(x).view(np.uint64), np.asarray(y).view(np.uint64)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    carry = (a_low * b_high + (middle & mask)) >> half
    high = np.asarray(a_high * b_high + (middle >> half) + carry)
    if type[0] == "s":
        high = high - np.where(np.asarray(x) < 0, b, np.uint64(0))
        high = (high - np.where(np.asarray(y) < 0, a, np.uint64(0))).view(np.int64)
    return np.asarray(high)


def _product(instruction: Instruction) -> tuple[Callable[[Value, Value], Any], str]:
    """Return how a product is formed, and the type of its result."""
    type = instruction.type
    if instruction.has("wide"):
        wide = type[0] + _HALVES[type[1:]]
        return (lambda x, y: np.multiply(x, y, dtype=numpy_type(wide))), wide
    if instruction.has("hi"):
        return (lambda x, y: _high(np.asarray(x), np.asarray(y), type)), type
    return np.multiply, type


@opcode("mul")
def _multiply(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if is_float(instruction.type):
        return floating.arithmetic(binder, instruction)
    product, type = _product(instruction)
    target = binder.target(instruction.operands[0], type)
    sources = [binder.value(operand, instruction.type) for operand in instruction.operands[1:]]
    return elementwise(product, target, *sources)


@opcode("mad", "madc")
def _multiply_add(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if is_float(instruction.type):
        return floating.fused(binder, instruction, pc)
    product, type = _product(instruction)
    first, second, third = instruction.operands[1:]
    target = binder.target(instruction.operands[0], type)
    x, y = binder.value(first, instruction.type), binder.value(second, instruction.type)
    addend = binder.value(third, type)
    if instruction.has("cc") or instruction.opcode == "madc":
        return _multiply_add_carry(binder, instruction, type, (target, x, y, addend))
    return elementwise(lambda x, y, z: product(x, y) + z, target, x, y, addend)


def _multiply_add_carry(
    binder: Binder,
    instruction: Instruction,
    type: str,
    operands: tuple[Array, Value, Value, Value],
) -> Step:
    target, x, y, addend = operands
    product, carry = _product(instruction)[0], binder.machine.carry
    unsigned = numpy_type("u" + type[1:])
    uses_carry, sets_carry = instruction.opcode == "madc", instruction.has("cc")

    def step(group: Group) -> None:
        low = np.asarray(product(x, y)).astype(unsigned)
        partial = low + np.asarray(addend).astype(unsigned)
        total = partial + carry * unsigned.type(1) if uses_carry else partial
        overflow = (partial < low) | (total < partial)
        np.copyto(target, total.view(target.dtype), where=group.where)
        if sets_carry:
            np.copyto(carry, overflow, where=group.where)

    return step


@opcode("mul24", "mad24")
def _multiply_24(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], type)
    sources = [binder.value(operand, type) for operand in instruction.operands[1:]]
    wide = np.int64 if type == "s32" else np.uint64
    shift = 16 if instruction.has("hi") else 0

    def compute(x: Array, y: Array, *z: Array) -> Array:
        def low24(value: Array) -> Array:
            return ((value << 8) >> 8).astype(wide)

        product = ((low24(x) * low24(y)) >> wide(shift)).astype(np.uint32).view(target.dtype)
        return product + z[0] if z else product

    return elementwise(compute, target, *sources)


def truncated_quotient(x: Array, y: Array) -> Array:
    """Return the quotient rounded to zero; division by zero gives all ones, as the hardware."""
    x, y = np.asarray(x), np.asarray(y)
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = x // safe
    if x.dtype.kind == "i":
        quotient = quotient + ((x % safe != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return np.where(y == 0, ~x.dtype.type(0), quotient)


@opcode("div", "rem")
def _divide(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    if is_float(type):
        return floating.divide(binder, instruction)
    target = binder.target(instruction.operands[0], type)
    x, y = (binder.value(operand, type) for operand in instruction.operands[1:])
    if instruction.opcode == "div":
        return elementwise(truncated_quotient, target, x, y)
    return elementwise(
        lambda x, y: np.where(y == 0, x, x - truncated_quotient(x, y) * y), target, x, y
    )


@opcode("sad")
def _sum_of_differences(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], type)
    x, y, z = (binder.value(operand, type) for operand in instruction.operands[1:])
    return elementwise(lambda x, y, z: np.where(x < y, y - x, x - y) + z, target, x, y, z)


@opcode("dp4a", "dp2a")
def _dot(binder: Binder, instruction: Instruction, pc: int) -> Step:
    types = instruction.modifiers[-2:]
    target, *rest = instruction.operands
    out = binder.target(target, "s32")
    x, y, z = (binder.value(operand, "u32") for operand in rest)
    first, second = numpy_type(types[0][0] + "8"), numpy_type(types[1][0] + "8")
    if instruction.opcode == "dp2a":
        first = numpy_type(types[0][0] + "16")
    high = instruction.has("hi")

    def compute(x: Value, y: Value, z: Value) -> Array:
        a, b = (np.ascontiguousarray(np.atleast_1d(value)) for value in (x, y))
        left = a.view(first).reshape(a.size, -1).astype(np.int64)
        right = b.view(second).reshape(b.size, -1).astype(np.int64)
        if first.itemsize == 2:
            right = right[:, 2:] if high else right[:, :2]
        return np.asarray((left * right).sum(1) + z)

    return elementwise(compute, out, x, y, z)
