"""Bulk tensor copies (TMA) between global and shared memory, and tensor maps made on the device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tilewright.emulator.asynchrony import BulkCopy
from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, State, Step
from tilewright.emulator.instructions.atomics import combine
from tilewright.emulator.instructions.mbarrier import complete_bytes, find, shared_offsets
from tilewright.emulator.machine import Machine
from tilewright.emulator.memory import PARAMETER_WINDOW, SHARED_WINDOW, OutOfBounds
from tilewright.emulator.program import Address, EmulatorError, Immediate, Instruction, Vector
from tilewright.emulator.tensor_map import BoxedView, decode_tensor_map, swizzled

__all__ = ["bind"]

_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_MAP_BYTES = 128


def bind(binder: Binder, instruction: Instruction) -> Step:
    """Make the step of a `cp.async.bulk.tensor` or `cp.reduce.async.bulk.tensor`."""
    if any(m.startswith(("im2col", "tile::")) for m in instruction.modifiers):
        raise EmulatorError("tensor copies other than tiles are not modelled")
    spaces = [m.partition("::")[0] for m in instruction.modifiers]
    first = next(m for m in spaces if m in {"global", "shared"})
    return _load(binder, instruction) if first == "shared" else _store(binder, instruction)


def _tensor_operand(
    binder: Binder, operand: object
) -> tuple[Callable[[Array], Array], Callable[[int], tuple[int, ...]]]:
    """Return the map's address and the coordinates, by thread."""
    if not isinstance(operand, Address) or not isinstance(operand.rest[0], Vector):
        raise EmulatorError("the tensor's coordinates are missing")
    rows = [
        np.broadcast_to(binder.value(item, "s32"), (binder.machine.width,))
        for item in operand.rest[0].items
    ]
    return binder.address(Address(operand.base, operand.offset)), lambda lane: tuple(
        int(row[lane]) for row in rows
    )


def _read_map(machine: Machine, address: int) -> BoxedView:
    if address >= PARAMETER_WINDOW:
        start = address - PARAMETER_WINDOW
        raw = machine.parameters[start : start + _MAP_BYTES]
    else:
        raw = machine.memory.span(address, _MAP_BYTES)
    return decode_tensor_map(raw.tobytes())


def _shared_index(view: BoxedView, start: int) -> Array:
    """Return the shared address of each element of a box that begins at `start`."""
    count = view.size_bytes // view.itemsize
    return swizzled(start + np.arange(count) * view.itemsize, view.swizzle)


def _check_place(view: BoxedView, coordinates: tuple[int, ...], instruction: Instruction) -> None:
    if len(coordinates) != len(view.box) or not instruction.has(f"{len(coordinates)}d"):
        raise EmulatorError(f"{len(coordinates)} coordinates for a map of rank {len(view.box)}")
    if coordinates[0] * view.itemsize % 16:
        raise EmulatorError(
            f"the innermost coordinate {coordinates[0]} is at {coordinates[0] * view.itemsize} "
            "bytes: no multiple of 16, which the hardware takes for an illegal instruction"
        )


def _check_stored_place(coordinates: tuple[int, ...]) -> None:
    if min(coordinates) < 0:
        raise EmulatorError(
            f"a tensor copy to global memory begins at the coordinates {coordinates}: below 0, "
            "which the hardware takes for an illegal instruction (only loads may)"
        )


@contextmanager
def _by_no_thread() -> Iterator[None]:
    """Inside, what is out of bounds are elements of a box, and not the accesses of threads."""
    try:
        yield
    except OutOfBounds as error:
        raise EmulatorError(error.message) from None


def _bytes_of(index: Array, itemsize: int) -> Array:
    return np.asarray((index[:, None] + np.arange(itemsize)).reshape(-1))


def _load(binder: Binder, instruction: Instruction) -> Step:
    machine = binder.machine
    destination, tensor, barrier = instruction.operands[:3]
    to, bar = binder.address(destination), binder.address(barrier)
    map_address, coordinates = _tensor_operand(binder, tensor)

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            one = np.array([lane])
            block = int(machine.block_of_thread[lane])
            view, place = _read_map(machine, int(map_address(one)[0])), coordinates(lane)
            _check_place(view, place, instruction)
            start, at = int(shared_offsets(to(one))[0]), int(shared_offsets(bar(one))[0])
            machine.shared_bytes_at(
                block, start, view.size_bytes, alignment=128, what="the destination"
            )
            index = _shared_index(view, start)
            if machine.races is not None:
                machine.races.bulk_write(instruction, lane, _bytes_of(index, view.itemsize), at)
                addresses, inside = view.locate(place)
                machine.races.global_copy(instruction, lane, addresses[inside], view.itemsize)

            def load(
                view: BoxedView = view,
                place: tuple[int, ...] = place,
                index: Array = index,
                block: int = block,
                at: int = at,
            ) -> None:
                addresses, inside = view.locate(place)
                values = np.broadcast_to(view.fill(), addresses.shape).copy()
                if inside.any():
                    with _by_no_thread():
                        values[inside] = machine.memory.read(addresses[inside], view.itemsize)
                offsets = block * machine.shared_bytes + index
                machine.shared.view(f"u{view.itemsize}")[offsets // view.itemsize] = values
                complete_bytes(machine, block, at, view.size_bytes)

            find(machine, block, at).loads.append(load)
            machine.wake(State.MBARRIER, block)

    return step


def _store(binder: Binder, instruction: Instruction) -> Step:
    machine = binder.machine
    tensor, source = instruction.operands[:2]
    origin = binder.address(source)
    map_address, coordinates = _tensor_operand(binder, tensor)
    operation = ""
    if instruction.has("reduce"):
        operation = next(m for m in instruction.modifiers if m in _OPERATIONS)

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            one = np.array([lane])
            block = int(machine.block_of_thread[lane])
            view, place = _read_map(machine, int(map_address(one)[0])), coordinates(lane)
            _check_place(view, place, instruction)
            _check_stored_place(place)
            if operation:
                _check_operation(operation, view.type)
            start = int(shared_offsets(origin(one))[0])
            machine.shared_bytes_at(block, start, view.size_bytes, alignment=128, what="the source")
            index = _shared_index(view, start)
            if machine.races is not None:
                machine.races.bulk_read(instruction, lane, _bytes_of(index, view.itemsize))
                addresses, inside = view.locate(place, whole_pieces=True)
                machine.races.global_copy(instruction, lane, addresses[inside], view.itemsize)

            def run(
                view: BoxedView = view,
                place: tuple[int, ...] = place,
                offsets: Array = block * machine.shared_bytes + index,
            ) -> None:
                _write_box(machine, view, place, offsets, operation)

            state = machine.asynchronous
            state.bulk_copies.append(
                BulkCopy(lane, int(state.bulk_group[lane]), machine.clock, run)
            )

    return step


def _check_operation(operation: str, type: str) -> None:
    allowed = {
        "add": ("u32", "s32", "u64", "f32", "f16", "bf16"),
        "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
        "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
        "inc": ("u32",),
        "dec": ("u32",),
    }.get(operation, ("u32", "s32", "u64", "s64"))
    if type not in allowed:
        raise EmulatorError(f"a tensor copy cannot reduce elements of type {type} by {operation}")


def _write_box(
    machine: Machine, view: BoxedView, place: tuple[int, ...], offsets: Array, operation: str
) -> None:
    addresses, inside = view.locate(place, whole_pieces=True)
    if not inside.any():
        return
    values = machine.shared.view(f"u{view.itemsize}")[offsets // view.itemsize][inside]
    with _by_no_thread():
        if operation:
            narrow = view.type in {"f16", "bf16"}  # of which bits are combined
            kind = np.dtype(np.uint16) if narrow else numpy_type(view.type)
            old = machine.memory.read(addresses[inside], view.itemsize)
            combined = np.asarray(combine(operation, view.type)(old.view(kind), values.view(kind)))
            values = combined.astype(kind, copy=False).view(f"u{view.itemsize}")
        machine.memory.write(addresses[inside], values, view.itemsize)


# -- maps made on the device ----------------------------------------------------------------------

_FIELDS: dict[str, tuple[int, str, int]] = {
    "global_address": (8, "<Q", 0),
    "rank": (16, "<B", 0),
    "elemtype": (17, "<B", 0),
    "swizzle_mode": (18, "<B", 0),
    "fill_mode": (19, "<B", 0),
    "global_dim": (24, "<Q", 8),
    "global_stride": (64, "<Q", 8),
    "box_dim": (96, "<H", 2),
    "element_stride": (106, "<B", 1),
}
_DRIVER_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12)  # by the numbers of `.elemtype`


@opcode("tensormap")
def _tensor_map(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if instruction.has("cp_fenceproxy"):
        return _publish(binder, instruction)
    machine = binder.machine
    field = next((m for m in instruction.modifiers if m in _FIELDS), "")
    if not field:
        return lambda group: None  # interleaving is never used
    offset, form, step_bytes = _FIELDS[field]
    address, *operands = instruction.operands
    locate = binder.address(address)
    ordinal = 0
    if step_bytes:
        first = operands.pop(0)
        ordinal = int(first.value) if isinstance(first, Immediate) else 0
    type = "u64" if field in {"global_address", "global_stride"} else "u32"
    values = np.broadcast_to(binder.value(operands[0], type), (machine.width,))

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            place = int(locate(np.array([lane]))[0])
            value = int(values[lane]) + (1 if field == "rank" else 0)
            raw = struct.pack(form, _DRIVER_TYPES[value] if field == "elemtype" else value)
            view = _map_bytes(machine, lane, place, instruction)
            view[:8] = np.frombuffer(b"TILEMAP1", np.uint8)
            start = offset + ordinal * step_bytes
            view[start : start + len(raw)] = np.frombuffer(raw, np.uint8)

    return step


def _map_bytes(machine: Machine, lane: int, address: int, instruction: Instruction) -> Array:
    """Return the bytes of a map that is being made, in shared or global memory."""
    is_shared = any(m.startswith("shared") for m in instruction.modifiers)
    if is_shared or address >= SHARED_WINDOW:
        block = int(machine.block_of_thread[lane])
        place = address & (SHARED_WINDOW - 1)
        return machine.shared_bytes_at(
            block, place, _MAP_BYTES, alignment=128, what="the tensor map's address"
        )
    return machine.memory.span(address, _MAP_BYTES, writing=True)


def _publish(binder: Binder, instruction: Instruction) -> Step:
    """`tensormap.cp_fenceproxy`: copy a map from shared to global memory, by a whole warp."""
    machine = binder.machine
    to, origin = (binder.address(operand) for operand in instruction.operands[:2])

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            one = np.array([lane])
            block = int(machine.block_of_thread[lane])
            start = int(shared_offsets(origin(one))[0])
            view = machine.shared_bytes_at(block, start, _MAP_BYTES, alignment=128, what="the map")
            machine.memory.span(int(to(one)[0]), _MAP_BYTES, writing=True)[:] = view

    return step
