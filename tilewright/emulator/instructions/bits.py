"""Logic, shifts and everything that moves bits inside a register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Step
from tilewright.emulator.instructions.integer import elementwise, ufunc
from tilewright.emulator.program import EmulatorError, Instruction

__all__: list[str] = []

_LOGIC: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@opcode("and", "or", "xor", "not")
def _logic(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], type)
    sources = [binder.value(operand, type) for operand in instruction.operands[1:]]
    return ufunc(_LOGIC.get(instruction.opcode, np.invert), target, *sources)


@opcode("cnot")
def _logical_not(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], type)
    return elementwise(lambda x: x == 0, target, binder.value(instruction.operands[1], type))


@opcode("shl", "shr")
def _shift(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type, bits = instruction.type, numpy_type(instruction.type).itemsize * 8
    target = binder.target(instruction.operands[0], type)
    x = binder.value(instruction.operands[1], type)
    amount = binder.value(instruction.operands[2], "u32")
    dtype = numpy_type(type)
    if instruction.opcode == "shl":
        return elementwise(
            lambda x, n: np.where(
                n < bits, x << np.minimum(n, bits - 1).astype(dtype), dtype.type(0)
            ),
            target,
            x,
            amount,
        )
    if dtype.kind == "i":
        return elementwise(
            lambda x, n: x >> np.minimum(n, bits - 1).astype(dtype), target, x, amount
        )
    return elementwise(
        lambda x, n: np.where(n < bits, x >> np.minimum(n, bits - 1).astype(dtype), dtype.type(0)),
        target,
        x,
        amount,
    )


@opcode("shf")
def _funnel_shift(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, *rest = instruction.operands
    target = binder.target(out, "b32")
    low, high, amount = (binder.value(operand, "b32") for operand in rest)
    wraps, left = instruction.has("wrap"), instruction.has("l")

    def compute(low: Array, high: Array, amount: Array) -> Array:
        count = amount & np.uint32(31) if wraps else np.minimum(amount, np.uint32(32))
        both = (np.asarray(high).astype(np.uint64) << np.uint64(32)) | low
        wide = np.asarray(count).astype(np.uint64)
        if left:
            return (both << wide) >> np.uint64(32)
        return (both >> wide) & np.uint64(0xFFFFFFFF)

    return elementwise(compute, target, low, high, amount)


@opcode("prmt")
def _permute_bytes(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, *rest = instruction.operands
    target = binder.target(out, "b32")
    x, y, selector = (binder.value(operand, "b32") for operand in rest)
    mode = instruction.modifiers[1] if len(instruction.modifiers) > 1 else ""

    def nibbles(selector: Array) -> list[Array]:
        first = selector & np.uint32(3)
        match mode:
            case "f4e":
                return [first + np.uint32(i) for i in range(4)]
            case "b4e":
                return [(first - np.uint32(i)) & np.uint32(7) for i in range(4)]
            case "rc8":
                return [first] * 4
            case "ecl":
                return [np.maximum(first, np.uint32(i)) for i in range(4)]
            case "ecr":
                return [np.minimum(first, np.uint32(i)) for i in range(4)]
            case "rc16":
                return [(first & np.uint32(1)) * np.uint32(2) + np.uint32(i % 2) for i in range(4)]
        return [(selector >> np.uint32(4 * i)) & np.uint32(15) for i in range(4)]

    def compute(x: Array, y: Array, selector: Array) -> Array:
        both = (np.asarray(y).astype(np.uint64) << np.uint64(32)) | x
        result: Any = np.uint32(0)
        for i, nibble in enumerate(nibbles(selector)):
            shift = (np.asarray(nibble) & np.uint32(7)).astype(np.uint64) * np.uint64(8)
            byte = ((both >> shift) & np.uint64(255)).astype(np.uint32)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            byte = np.where(np.asarray(nibble) & np.uint32(8), sign, byte)
            result = result | (byte << np.uint32(8 * i))
        return np.asarray(result)

    return elementwise(compute, target, x, y, selector)


@opcode("bfe")
def _extract(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type, bits = instruction.type, numpy_type(instruction.type).itemsize * 8
    target = binder.target(instruction.operands[0], type)
    x = binder.value(instruction.operands[1], type)
    position, length = (binder.value(operand, "u32") for operand in instruction.operands[2:])

    def compute(x: Array, position: Array, length: Array) -> Array:
        if bits == 32:
            position, length = position & np.uint32(255), length & np.uint32(255)
        wide = np.asarray(x).astype(np.uint64 if bits == 32 else x.dtype).view(np.uint64)
        wide = wide & np.uint64((1 << bits) - 1)
        start = np.minimum(position, np.uint32(63)).astype(np.uint64)
        left = (bits - position.astype(np.int64)).clip(0)
        count = np.minimum(length, left).astype(np.uint64)
        field = np.where(position < bits, wide >> start, np.uint64(0))
        mask = np.where(
            count == 64, ~np.uint64(0), (np.uint64(1) << (count & np.uint64(63))) - np.uint64(1)
        )
        field = field & mask
        if type[0] == "s":
            top = np.minimum(position.astype(np.int64) + length - 1, bits - 1).clip(0)
            sign = (wide >> top.astype(np.uint64)) & np.uint64(1)
            field = np.where((sign == 1) & (length > 0), field | ~mask, field)
        return field

    return elementwise(compute, target, x, position, length)


@opcode("bfi")
def _insert(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type, bits = instruction.type, numpy_type(instruction.type).itemsize * 8
    target = binder.target(instruction.operands[0], type)
    x, y = (binder.value(operand, type) for operand in instruction.operands[1:3])
    position, length = (binder.value(operand, "u32") for operand in instruction.operands[3:])

    def compute(x: Array, y: Array, position: Array, length: Array) -> Array:
        if bits == 32:
            position, length = position & np.uint32(255), length & np.uint32(255)
        start = np.minimum(position, np.uint32(64)).astype(np.uint64)
        count = np.minimum(length, np.uint32(64)).astype(np.uint64)
        ones = np.where(
            count == 64, ~np.uint64(0), (np.uint64(1) << (count & np.uint64(63))) - np.uint64(1)
        )
        mask = np.where(start < bits, ones << (start & np.uint64(63)), np.uint64(0))
        moved = np.asarray(x).astype(np.uint64) << (start & np.uint64(63))
        return np.asarray((np.asarray(y).astype(np.uint64) & ~mask) | (moved & mask))

    return elementwise(compute, target, x, y, position, length)


@opcode("bmsk")
def _bit_mask(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "b32")
    position, length = (binder.value(operand, "u32") for operand in instruction.operands[1:])
    wraps = instruction.has("wrap")

    def compute(position: Array, length: Array) -> Array:
        if wraps:
            position, length = position & np.uint32(31), length & np.uint32(31)
        start = np.minimum(position, np.uint32(32)).astype(np.uint64)
        count = np.minimum(length, np.uint32(32)).astype(np.uint64)
        return ((np.uint64(1) << count) - np.uint64(1)) << start

    return elementwise(compute, target, position, length)


@opcode("szext")
def _extend(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], type)
    x = binder.value(instruction.operands[1], type)
    bits = binder.value(instruction.operands[2], "u32")

    def compute(x: Array, bits: Array) -> Array:
        count = np.asarray(bits & np.uint32(31) if instruction.has("wrap") else bits)
        left = (64 - np.minimum(count, np.uint32(32)).astype(np.int64)).clip(0, 63)
        wide = np.asarray(x).astype(np.int64)
        if type[0] == "u":
            moved = (wide.view(np.uint64) << left.astype(np.uint64)) >> left.astype(np.uint64)
            return np.where(count == 0, np.uint64(0), moved)
        return np.where(count == 0, np.int64(0), (wide << left) >> left)

    return elementwise(compute, target, x, bits)


def _reverse(x: Array) -> Array:
    bits = x.dtype.itemsize * 8
    one = x.dtype.type(1)
    result = np.zeros_like(x)
    for i in range(bits):
        result |= ((x >> x.dtype.type(i)) & one) << x.dtype.type(bits - 1 - i)
    return result


def _highest(x: Array) -> Array:
    """Return the position of the highest bit that is set, -1 for none."""
    position = np.full(x.shape, -1, np.int64)
    rest = x.copy()
    for i in reversed(range(6)):
        step = 1 << i
        if step >= x.dtype.itemsize * 8:
            continue
        large = rest >= x.dtype.type(1 << step)
        position += np.where(large, step, 0)
        rest = np.where(large, rest >> x.dtype.type(step), rest)
    return np.asarray(position + (x != 0))


_COUNTS: dict[str, Callable[[Array], Array]] = {
    "brev": _reverse,
    "popc": np.bitwise_count,
    "clz": lambda x: x.dtype.itemsize * 8 - 1 - _highest(x),
}


@opcode("brev", "popc", "clz")
def _count(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    result = type if instruction.opcode == "brev" else "u32"
    target = binder.target(instruction.operands[0], result)
    x = np.atleast_1d(np.asarray(binder.value(instruction.operands[1], type)))
    return elementwise(_COUNTS[instruction.opcode], target, x)


@opcode("bfind")
def _find_highest(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type
    target = binder.target(instruction.operands[0], "u32")
    x = np.atleast_1d(np.asarray(binder.value(instruction.operands[1], type)))
    bits = numpy_type(type).itemsize * 8
    as_shift = instruction.has("shiftamt")

    def compute(x: Array) -> Array:
        magnitude = np.where(x < 0, ~x, x).view(f"u{bits // 8}")
        found = _highest(magnitude)
        return np.where((found >= 0) & as_shift, bits - 1 - found, found)

    return elementwise(compute, target, x)


@opcode("fns")
def _find_nth(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "u32")
    mask, base, offset = (
        np.broadcast_to(binder.value(operand, type), (binder.machine.width,))
        for operand, type in zip(instruction.operands[1:], ("u32", "u32", "s32"), strict=True)
    )

    def find(bits: int, start: int, count: int) -> int:
        if not count:
            return start if bits >> start & 1 else 0xFFFFFFFF
        order = range(start, 32) if count > 0 else range(start, -1, -1)
        found = [i for i in order if bits >> i & 1]
        return found[abs(count) - 1] if len(found) >= abs(count) else 0xFFFFFFFF

    def compute(mask: Array, base: Array, offset: Array) -> Array:
        triples = zip(mask.tolist(), base.tolist(), offset.tolist(), strict=True)
        return np.array([find(*triple) for triple in triples], np.uint32)

    return elementwise(compute, target, mask, base, offset)


@opcode("lop3")
def _any_logic(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if instruction.has("BoolOp", "or", "and") and len(instruction.operands) > 5:
        raise EmulatorError("lop3 with a predicate is not modelled")
    out, *rest = instruction.operands
    target = binder.target(out, "b32")
    x, y, z = (binder.value(operand, "b32") for operand in rest[:3])
    table = int(np.asarray(binder.value(rest[3], "b32")))

    def compute(x: Array, y: Array, z: Array) -> Array:
        result: Any = np.uint32(0)
        for row in range(8):
            if table >> row & 1:
                terms = (x if row & 4 else ~x), (y if row & 2 else ~y), (z if row & 1 else ~z)
                result = result | (terms[0] & terms[1] & terms[2])
        return np.asarray(result)

    return elementwise(compute, target, x, y, z)
