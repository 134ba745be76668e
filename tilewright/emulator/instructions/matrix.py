"""Matrix instructions of one warp: `ldmatrix`, `stmatrix`, `mma.sync`.

Sums are formed in float64 and rounded once, which is more accurate than the hardware.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from tilewright.emulator.binding import Binder, Value, numpy_type, opcode
from tilewright.emulator.floats import Array, encode
from tilewright.emulator.fragments import (
    a_fragment,
    accumulator_fragment,
    b_fragment,
    to_values,
)
from tilewright.emulator.groups import LANES, Group, Step
from tilewright.emulator.instructions.memory import space_of
from tilewright.emulator.instructions.warp import warp_step
from tilewright.emulator.parser import type_bits
from tilewright.emulator.program import EmulatorError, Instruction, Operand

__all__ = ["from_values", "whole_warps"]

_TYPES = {"f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s32", "e4m3", "e5m2"}


def whole_warps(group: Group) -> Array:
    """Return the warps of a group; each must be complete."""
    counts = np.count_nonzero(group.mask.reshape(-1, LANES), axis=1)
    warps = np.flatnonzero(counts)
    if (counts[warps] != LANES).any():
        raise EmulatorError("a matrix instruction needs all 32 lanes of a warp")
    return warps


def _lanes_of(warps: Array) -> Array:
    return np.asarray(warps[:, None] * LANES + np.arange(LANES))


@opcode("ldmatrix", "stmatrix")
def _matrix_memory(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if not instruction.has("m8n8") or instruction.type != "b16":
        raise EmulatorError("only matrices of shape m8n8 and type b16 are modelled")
    count = next(int(m[1:]) for m in instruction.modifiers if re.fullmatch(r"x[124]", m))
    loads = instruction.opcode == "ldmatrix"
    place, data = instruction.operands if not loads else instruction.operands[::-1]
    body = _load_matrices if loads else _store_matrices
    return warp_step(binder, pc, None, partial(body, binder, instruction, count, place, data))


def _load_matrices(
    binder: Binder,
    instruction: Instruction,
    count: int,
    place: Operand,
    data: Operand,
    group: Group,
) -> None:
    machine = binder.machine
    lanes = _lanes_of(whole_warps(group))
    asking = lanes[:, : 8 * count].reshape(-1)
    addresses = binder.address(place)(asking)
    rows = machine.load(space_of(instruction), addresses, 16, asking, instruction)
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, count, 8, 8)
    if instruction.has("trans"):
        matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2))
    held = matrices.reshape(-1, count, 64).view(np.uint32)
    for i, item in enumerate(binder.items(data)):
        binder.target(item, "b32")[lanes] = held[:, i]


def _store_matrices(
    binder: Binder,
    instruction: Instruction,
    count: int,
    place: Operand,
    data: Operand,
    group: Group,
) -> None:
    machine = binder.machine
    lanes = _lanes_of(whole_warps(group))
    registers = [np.asarray(binder.value(item, "b32"))[lanes] for item in binder.items(data)]
    held = np.ascontiguousarray(np.stack(registers, axis=1))
    matrices = held.view(np.uint16).reshape(-1, count, 8, 8)
    if instruction.has("trans"):
        matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2))
    asking = lanes[:, : 8 * count].reshape(-1)
    addresses = binder.address(place)(asking)
    rows = matrices.reshape(-1, 8).view(np.uint64)
    machine.store(space_of(instruction), addresses, rows, 16, asking, instruction)


# -- mma ------------------------------------------------------------------------------------------


def _bits_type(type: str) -> str:
    return "b64" if type == "f64" else "b32"


def _hold(values: list[Value], lanes: Array, type: str) -> Array:
    """Return what registers hold: (warps, lanes, registers, elements), as bit patterns."""
    rows = [
        value[lanes] if isinstance(value, np.ndarray) else np.full(lanes.shape, value)
        for value in values
    ]
    held = np.ascontiguousarray(np.stack(rows, axis=-1))
    bits = 32 if type == "tf32" else type_bits(type) if type[0] != "e" else 8
    return held.view(f"u{bits // 8}").reshape(*lanes.shape, len(values), -1)


def from_values(values: Array, type: str, *, saturate: bool = False) -> Array:
    """Round float64 results to the bit patterns of an accumulator's type."""
    if type == "s32":
        if saturate:
            values = np.clip(values, -(2.0**31), 2.0**31 - 1)
        return values.astype(np.int64).astype(np.uint32)
    if type == "f64":
        return values.view(np.uint64)
    if type == "f32":
        rounded = values.astype(np.float32)
        bits = rounded.view(np.uint32)
        return np.where(np.isnan(rounded), np.uint32(0x7FFFFFFF), bits)
    return encode(values, type)


@opcode("mma")
def _multiply(binder: Binder, instruction: Instruction, pc: int) -> Step:
    shape = re.search(r"m(\d+)n(\d+)k(\d+)", instruction.text)
    types = [m for m in instruction.modifiers if m in _TYPES]
    if shape is None or len(types) != 4 or instruction.has("sp", "block_scale", "kind::mxf8f6f4"):
        raise EmulatorError("this kind of mma is not modelled")
    m, n, k = (int(size) for size in shape.groups())
    if not instruction.has("col") or (m, n) not in {(16, 8), (8, 8)}:
        raise EmulatorError("mma is modelled for m16n8 and m8n8 with A by rows and B by columns")
    to, a_type, b_type, c_type = types
    out, *sources = (binder.items(operand) for operand in instruction.operands[:4])
    a, b, c = (
        [binder.value(item, _bits_type(type)) for item in items]
        for items, type in zip(sources, (a_type, b_type, c_type), strict=True)
    )
    targets = [binder.target(item, _bits_type(to)) for item in out]
    per_a = m * k // (LANES * len(a))
    layouts = a_fragment(m, k, per_a), b_fragment(k, n, per_a)
    c_layout = accumulator_fragment(m, n, m * n // (LANES * len(c)))
    d_layout = accumulator_fragment(m, n, m * n // (LANES * len(targets)))
    saturate = instruction.has("satfinite")

    def body(group: Group) -> None:
        lanes = _lanes_of(whole_warps(group))
        left = layouts[0].collect(to_values(_hold(a, lanes, a_type), a_type))
        right = layouts[1].collect(to_values(_hold(b, lanes, b_type), b_type))
        total = left @ right + c_layout.collect(to_values(_hold(c, lanes, c_type), c_type))
        held = d_layout.distribute(from_values(total, to, saturate=saturate))
        words = np.ascontiguousarray(held).view(numpy_type(_bits_type(to)))
        for i, target in enumerate(targets):
            target[lanes] = words[:, :, i, 0]

    return warp_step(binder, pc, None, body)
