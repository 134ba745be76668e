"""Moves, packing and unpacking, comparisons, selection, and addresses between spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array, decode, flush
from tilewright.emulator.groups import Group, Step
from tilewright.emulator.instructions.integer import elementwise, is_float
from tilewright.emulator.memory import window_of
from tilewright.emulator.program import EmulatorError, Instruction, Pair, Special, Vector

__all__: list[str] = []


@opcode("mov")
def _move(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, source = instruction.operands[0], instruction.operands[1]
    type = instruction.type
    if isinstance(out, Vector):
        return _unpack(binder, instruction, out)
    if isinstance(source, Vector):
        return _pack(binder, instruction, source)
    target = binder.target(out, type)
    if isinstance(source, Special) and source.name.startswith(("clock", "globaltimer")):
        machine = binder.machine

        def tell_time(group: Group) -> None:
            machine.time += 1
            np.copyto(target, machine.time, where=group.where, casting="unsafe")

        return tell_time
    value = binder.value(source, type)

    def step(group: Group) -> None:
        np.copyto(target, value, where=group.where)

    return step


def _unpack(binder: Binder, instruction: Instruction, out: Vector) -> Step:
    whole = numpy_type(instruction.type)
    part_type = f"b{whole.itemsize * 8 // len(out.items)}"
    value = binder.value(instruction.operands[1], f"b{whole.itemsize * 8}")
    targets = [binder.target(item, part_type) for item in out.items]
    part = numpy_type(part_type)

    def step(group: Group) -> None:
        row = np.ascontiguousarray(np.atleast_1d(np.asarray(value)))
        parts = row.view(part).reshape(-1, len(targets)).copy()
        for i, target in enumerate(targets):
            np.copyto(target, parts[:, i], where=group.where)

    return step


def _pack(binder: Binder, instruction: Instruction, source: Vector) -> Step:
    whole = numpy_type(instruction.type)
    part_type = f"b{whole.itemsize * 8 // len(source.items)}"
    target = binder.target(instruction.operands[0], f"b{whole.itemsize * 8}")
    values = [binder.value(item, part_type) for item in source.items]
    part = numpy_type(part_type)
    packed = np.zeros((binder.machine.width, len(values)), part)

    def step(group: Group) -> None:
        for i, value in enumerate(values):
            packed[:, i] = value
        np.copyto(target, packed.view(target.dtype)[:, 0], where=group.where)

    return step


@opcode("cvta", "mapa")
def _convert_address(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type = instruction.type.replace("b", "u")
    target = binder.target(instruction.operands[0], type)
    value = binder.value(instruction.operands[1], type)
    if instruction.opcode == "mapa":
        return elementwise(lambda x: x, target, value)
    space = next(m.partition("::")[0] for m in instruction.modifiers if m != "to")
    window = numpy_type(type).type(window_of(space))
    if instruction.has("to"):
        return elementwise(lambda x: x - window, target, value)
    return elementwise(lambda x: x + window, target, value)


@opcode("getctarank")
def _rank(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "u32")
    return elementwise(lambda: np.uint32(0), target)


@opcode("isspacep")
def _is_space(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "pred")
    value = binder.value(instruction.operands[1], "u64")
    space = instruction.modifiers[0].partition("::")[0]
    shift = np.uint64(56)
    return elementwise(lambda x: (x >> shift) == (window_of(space) >> 56), target, value)


_COMPARISONS: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BOOLEANS: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compare(name: str, x: Array, y: Array, *, floats: bool) -> Array:
    """Compare; ordered forms are false on NaN, forms that end in `u` true."""
    if not floats:
        return np.asarray(_COMPARISONS[name](x, y))
    unordered = np.isnan(x) | np.isnan(y)
    if name in {"num", "nan"}:
        return np.asarray(unordered if name == "nan" else ~unordered)
    if name.endswith("u") and name[:-1] in _COMPARISONS:
        return np.asarray(_COMPARISONS[name[:-1]](x, y) | unordered)
    return np.asarray(_COMPARISONS[name](x, y) & ~unordered)


@opcode("setp", "set")
def _set_predicate(binder: Binder, instruction: Instruction, pc: int) -> Step:
    modifiers = [m for m in instruction.modifiers if m != "ftz"]
    comparison, *middle = modifiers
    type = modifiers[-1]
    boolean = next((m for m in middle if m in _BOOLEANS), "")
    lane, packed = (type[:-2], True) if type.endswith("x2") else (type, False)
    first, second = (binder.value(operand, type) for operand in instruction.operands[1:3])
    third = binder.condition(instruction.operands[3]) if boolean else None
    flushes = instruction.has("ftz")

    def read(value: Any) -> Array:
        row = np.atleast_1d(np.asarray(value))
        if packed:
            row = np.ascontiguousarray(row).view(np.uint16).reshape(-1, 2)
        if lane in {"bf16", "f16"}:
            return decode(np.ascontiguousarray(row).view(np.uint16), lane)
        return flush(row) if flushes and lane == "f32" else row

    def compare() -> Array:
        return _compare(comparison, read(first), read(second), floats=is_float(type))

    if instruction.opcode == "set":
        return _set_value(binder, instruction, compare, modifiers[-2], packed=packed)
    return _write_predicates(binder, instruction, compare, third, boolean, packed=packed)


def _write_predicates(
    binder: Binder,
    instruction: Instruction,
    compare: Any,
    third: Any,
    boolean: str,
    *,
    packed: bool,
) -> Step:
    out = instruction.operands[0]
    outs = (out.first, out.second) if isinstance(out, Pair) else (out,)
    targets = [binder.target(item, "pred") for item in outs]

    def step(group: Group) -> None:
        result = compare()
        results = [result[:, 0], result[:, 1]] if packed else [result, ~result]
        if third is not None:
            other = third().copy()
            results = [_BOOLEANS[boolean](part, other) for part in results]
        for target, part in zip(targets, results, strict=False):
            np.copyto(target, part, where=group.where)

    return step


def _set_value(
    binder: Binder, instruction: Instruction, compare: Any, to: str, *, packed: bool
) -> Step:
    if packed:
        target = binder.target(instruction.operands[0], "b32")
        halves = target.view(np.uint16).reshape(-1, 2)
        one = 0x3C00 if to == "f16x2" else 0x3F80 if to == "bf16x2" else 0xFFFF

        def packed_step(group: Group) -> None:
            np.copyto(halves, np.where(compare(), np.uint16(one), 0), where=group.mask[:, None])

        return packed_step
    target = binder.target(instruction.operands[0], to)
    true = {"f32": np.float32(1), "f16": np.float16(1), "bf16": np.uint16(0x3F80)}.get(to)
    ones: Any = true if true is not None else np.int64(-1).astype(target.dtype)
    return elementwise(lambda: np.where(compare(), ones, target.dtype.type(0)), target)


@opcode("selp")
def _select(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, first, second, condition = instruction.operands
    type = f"b{numpy_type(instruction.type).itemsize * 8}"
    target = binder.target(out, type)
    x, y = (binder.value(operand, instruction.type) for operand in (first, second))
    raw_x, raw_y = (np.asarray(value).view(target.dtype) for value in (x, y))
    predicate = binder.condition(condition)

    def step(group: Group) -> None:
        np.copyto(target, np.where(predicate(), raw_x, raw_y), where=group.where)

    return step


@opcode("slct")
def _select_by_sign(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, first, second, third = instruction.operands
    type, of = instruction.modifiers[-2:]
    target = binder.target(out, type)
    x, y = binder.value(first, type), binder.value(second, type)
    sign = binder.value(third, of)
    return elementwise(lambda x, y, c: np.where(c >= 0, x, y), target, x, y, sign)


@opcode("movmatrix")
def _transpose_matrix(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "b32")
    source = binder.value(instruction.operands[1], "b32")
    machine = binder.machine
    if not isinstance(source, np.ndarray):
        raise EmulatorError("movmatrix of a constant")

    def step(group: Group) -> Any:
        ready = machine.converge(group, pc)
        if not isinstance(ready, Group):
            return ready
        matrices = source.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
        flat = np.ascontiguousarray(matrices).reshape(-1).view(np.uint32)
        np.copyto(target, flat, where=ready.where)
        return None if ready is group else ready

    return step
