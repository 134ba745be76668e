"""`wgmma`: matrix products of four warps, operands in shared memory by descriptors.

Each warp has 16 of the 64 rows, so warps are computed one by one or together, as they come. The
result is in the registers at once; the race detector knows that it must not be read before the
wait. Sums are formed in float64 and rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.asynchrony import Product
from tilewright.emulator.binding import Binder, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.fragments import a_fragment, accumulator_fragment, to_values
from tilewright.emulator.groups import LANES, Group, Step
from tilewright.emulator.instructions.control import do_nothing
from tilewright.emulator.instructions.matrix import from_values, whole_warps
from tilewright.emulator.instructions.warp import warp_step
from tilewright.emulator.machine import Machine
from tilewright.emulator.parser import type_bits
from tilewright.emulator.program import (
    EmulatorError,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
)

__all__ = ["Descriptor"]

_TYPES = ("f16", "bf16", "tf32", "f32", "e4m3", "e5m2", "s8", "u8", "s32")
_SWIZZLE_BITS = {0: 0, 1: 3, 2: 2, 3: 1}
_K_BYTES = 32


@dataclass(frozen=True)
class Descriptor:
    """A matrix in shared memory: start, offsets in bytes, and bits of the swizzle (0 to 3)."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        """Read the 64 bits."""
        return cls(
            (bits & 0x3FFF) << 4,
            (bits >> 16 & 0x3FFF) << 4,
            (bits >> 32 & 0x3FFF) << 4,
            bits >> 49 & 7,
            _SWIZZLE_BITS[bits >> 62 & 3],
        )

    def addresses(self, rows: Array, k: Array, itemsize: int, *, by_rows: bool) -> Array:
        """Return the shared addresses of elements (row of M or N, k).

        `by_rows`: neighbours along M or N are neighbours in memory, not those along K.
        """
        across, along = (rows, k * itemsize) if not by_rows else (k, rows * itemsize)
        span = 16 << self.swizzle  # bytes of a row of the pattern of 8 rows
        eights, chunks = across // 8, along // span
        inside = across % 8 * span + along % span
        if not self.swizzle and by_rows:
            offset = eights * self.leading + chunks * self.stride + inside
        elif by_rows or not self.swizzle:
            offset = eights * self.stride + chunks * self.leading + inside
        else:
            offset = eights * self.stride + inside + chunks * span
        address = self.start + offset
        phase = ((address >> 7) - self.base_offset) & ((1 << self.swizzle) - 1)
        return np.asarray(address ^ (phase << 4))


@opcode("wgmma")
def _warpgroup(binder: Binder, instruction: Instruction, pc: int) -> Step:
    match instruction.modifiers[0]:
        case "fence":
            return warp_step(binder, pc, None, do_nothing)
        case "commit_group":
            return _commit(binder, pc)
        case "wait_group":
            return _wait(binder, instruction, pc)
    if instruction.has("sp"):
        raise EmulatorError("sparse wgmma is not modelled")
    return _multiply(binder, instruction, pc)


def _commit(binder: Binder, pc: int) -> Step:
    machine = binder.machine

    def body(group: Group) -> None:
        machine.asynchronous.product_group[group.mask] += 1

    return warp_step(binder, pc, None, body)


def _wait(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, operand = binder.machine, instruction.operands[0]
    pending = int(operand.value) if isinstance(operand, Immediate) else 0

    def body(group: Group) -> None:
        state = machine.asynchronous
        if not state.products:
            return
        left = []
        for product in state.products:
            lane = int(product.mask.argmax())
            waits = bool(group.mask[lane])
            if not waits or product.group >= state.product_group[lane] - pending:
                left.append(product)
            elif machine.races is not None:
                machine.races.products_done(np.flatnonzero(product.mask), product.time)
        state.products = left

    return warp_step(binder, pc, None, body)


@dataclass(frozen=True)
class _Form:
    """What the text of a `wgmma` says."""

    n: int
    k: int
    to: str
    a_type: str
    b_type: str
    scales: tuple[int, ...]
    a_by_rows: bool
    b_by_rows: bool

    @classmethod
    def of(cls, instruction: Instruction) -> _Form:
        shape = re.search(r"m64n(\d+)k(\d+)", instruction.text)
        types = [m for m in instruction.modifiers if m in _TYPES]
        if shape is None or len(types) != 3:
            raise EmulatorError("this kind of wgmma is not modelled")
        flags = [int(o.value) for o in instruction.operands[4:] if isinstance(o, Immediate)]
        a_in_registers = isinstance(instruction.operands[1], Vector)
        transposes = flags[2:]
        a_by_rows = bool(transposes[0]) if transposes and not a_in_registers else False
        b_by_rows = bool(transposes[-1]) if transposes else False
        n, k = int(shape[1]), int(shape[2])
        return cls(n, k, types[0], types[1], types[2], tuple(flags[:2]), a_by_rows, b_by_rows)

    @property
    def itemsize(self) -> int:
        return _K_BYTES // self.k


def _multiply(binder: Binder, instruction: Instruction, pc: int) -> Step:
    form, machine = _Form.of(instruction), binder.machine
    out, a, b, scale = instruction.operands[:4]
    targets = [binder.target(item, "b32") for item in binder.items(out)]
    keep = binder.condition(scale)
    d_layout = accumulator_fragment(16, form.n, 16 * form.n // (LANES * len(targets)))
    read_a = _a_reader(binder, a, form)
    b_bits = np.broadcast_to(binder.value(b, "u64"), (machine.width,))
    names = _registers(out) | (_registers(a) if isinstance(a, Vector) else frozenset())
    sign = float(np.prod(form.scales)) if form.scales else 1.0
    saturate = instruction.has("satfinite")

    def body(group: Group) -> None:
        warps = whole_warps(group)
        lanes = warps[:, None] * LANES + np.arange(LANES)
        flat = lanes.reshape(-1)
        chosen = _selection(flat)
        held = np.stack([row[chosen] for row in targets], axis=-1)
        old = held.view(f"u{type_bits(form.to) // 8}").reshape(*lanes.shape, len(targets), -1)
        total = sign * _products(machine, instruction, form, warps, (read_a, b_bits))
        keeps = keep()[lanes[:, 0]]
        if keeps.any():
            before = d_layout.collect(to_values(np.ascontiguousarray(old), form.to))
            total = np.where(keeps[:, None, None], total + before, total)
        new = d_layout.distribute(from_values(total, form.to, saturate=saturate))
        words = np.ascontiguousarray(new).view(np.uint32).reshape(flat.size, -1)
        columns = np.ascontiguousarray(words.T)
        for row, values in zip(targets, columns, strict=True):
            row[chosen] = values
        _remember(machine, group, instruction, names)

    return warp_step(binder, pc, None, body)


def _selection(lanes: Array) -> Array | slice:
    """Return a slice if the lanes are neighbours."""
    first, last = int(lanes[0]), int(lanes[-1])
    return slice(first, last + 1) if last - first + 1 == lanes.size else lanes


def _registers(operand: Operand) -> frozenset[str]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return frozenset(item.name for item in items if isinstance(item, Register))


def _remember(
    machine: Machine,
    group: Group,
    instruction: Instruction,
    names: frozenset[str],
) -> None:
    if machine.races is None:
        return
    state = machine.asynchronous
    for warp in whole_warps(group):
        mask = np.zeros(machine.width, bool)
        mask[warp * LANES : (warp + 1) * LANES] = True
        number = int(state.product_group[warp * LANES])
        state.products.append(Product(mask, names, instruction.line, number, machine.clock))


def _a_reader(binder: Binder, a: Operand, form: _Form) -> Callable[[int, int], Array | int]:
    """Return a function of (warp, lane): A's 16 rows if in registers, else the descriptor."""
    if not isinstance(a, Vector):
        bits = np.broadcast_to(binder.value(a, "u64"), (binder.machine.width,))
        return lambda warp, lane: int(bits[lane])
    values = [np.asarray(binder.value(item, "b32")) for item in a.items]
    layout = a_fragment(16, form.k, 4 // form.itemsize)

    def read(warp: int, lane: int) -> Array:
        held = np.stack([value[lane : lane + LANES] for value in values], axis=-1)
        elements = held.view(f"u{form.itemsize}").reshape(1, LANES, len(values), -1)
        return np.asarray(layout.collect(to_values(elements, form.a_type))[0])

    return read


def _products(
    machine: Machine,
    instruction: Instruction,
    form: _Form,
    warps: Array,
    operands: tuple[Callable[[int, int], Array | int], Array],
) -> Array:
    """Return A times B for each warp (warps, 16, n); B is read once for equal descriptors."""
    read_a, b_bits = operands
    result = np.empty((warps.size, 16, form.n))
    known: dict[tuple[int, int], Array] = {}
    for i, warp in enumerate(warps.tolist()):
        lane = warp * LANES
        block = int(machine.block_of_thread[lane])
        bits = int(b_bits[lane])
        if (b_bits[lane : lane + LANES] != bits).any():
            raise EmulatorError("the descriptor differs between the lanes of a warp")
        right = known.get((block, bits))
        if right is None or machine.races is not None:
            rows, k = np.arange(form.n)[None, :], np.arange(form.k)[:, None]
            index = Descriptor.decode(bits).addresses(
                rows, k, form.itemsize, by_rows=form.b_by_rows
            )
            right = known[block, bits] = _read(machine, instruction, lane, index, form.b_type, form)
        left = read_a(warp, lane)
        if isinstance(left, int):
            first = machine.thread_in_block[lane] // LANES % 4 * 16
            rows, k = (first + np.arange(16))[:, None], np.arange(form.k)[None, :]
            index = Descriptor.decode(left).addresses(
                rows, k, form.itemsize, by_rows=form.a_by_rows
            )
            left = _read(machine, instruction, lane, index, form.a_type, form)
        result[i] = left @ right
    return result


def _read(
    machine: Machine, instruction: Instruction, lane: int, index: Array, type: str, form: _Form
) -> Array:
    """Return float64 values at shared addresses, read by the asynchronous proxy."""
    low, high = int(index.min()), int(index.max()) + form.itemsize
    machine.shared_bytes_at(
        int(machine.block_of_thread[lane]), low, high - low, alignment=1, what="the matrix at"
    )
    if machine.races is not None:
        offsets = (index.reshape(-1, 1) + np.arange(form.itemsize)).reshape(-1)
        machine.races.matrix_read(instruction, lane, offsets)
    places = (int(machine.shared_start[lane]) + index) // form.itemsize
    raw = machine.shared.view(f"u{form.itemsize}")[places]
    return to_values(raw, type)
