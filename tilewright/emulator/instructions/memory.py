"""Loads and stores of all spaces and widths."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Outcome, Step
from tilewright.emulator.instructions.control import do_nothing
from tilewright.emulator.instructions.convert import write_extended
from tilewright.emulator.machine import Machine
from tilewright.emulator.memory import OutOfBounds
from tilewright.emulator.program import EmulatorError, Instruction, Sink

__all__ = ["space_of"]

_SPACES = ("global", "shared", "local", "param", "const")
_WIDEST = 16


def space_of(instruction: Instruction) -> str:
    """Return the state space that an instruction names, `generic` for none."""
    for modifier in instruction.modifiers:
        space = modifier.partition("::")[0]
        if space in _SPACES:
            return "global" if space == "const" else space
    return "generic"


@opcode("ld", "ldu")
def _load(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, type = binder.machine, instruction.type
    out, address = instruction.operands[0], binder.address(instruction.operands[1])
    space = space_of(instruction)
    if space == "param":
        space = binder.parameter_space(instruction.operands[1])
    element = numpy_type(type)
    items = binder.items(out)
    storages = [None if isinstance(item, Sink) else binder.storage(item) for item in items]
    extensions = [
        write_extended(storage, type) if storage is not None else None for storage in storages
    ]
    total = element.itemsize * len(items)
    chunk = min(total, _WIDEST)
    polls = space != "param" and any(map(instruction.has, ("volatile", "relaxed", "acquire")))

    def step(group: Group) -> None:
        lanes = group.lanes
        if polls:
            machine.poll(lanes)
        first = address(lanes)
        if total > chunk and (first & np.uint64(total - 1)).any():
            raise EmulatorError(f"misaligned read of {total} bytes")
        chunks = [
            machine.load(space, first + np.uint64(offset), chunk, lanes, instruction)
            for offset in range(0, total, chunk)
        ]
        raw = np.concatenate([part.reshape(lanes.size, -1) for part in chunks], axis=1)
        parts = np.ascontiguousarray(raw).view(element)
        for i, (storage, extend) in enumerate(zip(storages, extensions, strict=True)):
            if storage is not None and extend is not None:
                storage[lanes] = extend(np.ascontiguousarray(parts[:, i])).view(storage.dtype)

    return step


@opcode("st")
def _store(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, type = binder.machine, instruction.type
    if instruction.has("async"):
        raise EmulatorError("st.async is not modelled")
    address, items = binder.address(instruction.operands[0]), binder.items(instruction.operands[1])
    space = space_of(instruction)
    if space == "param":
        space = binder.parameter_space(instruction.operands[0])
    values = [binder.value(item, type, of_wider=True) for item in items]
    element = numpy_type(type)
    total = element.itemsize * len(items)
    chunk = min(total, _WIDEST)

    def step(group: Group) -> None:
        lanes = group.lanes
        first = address(lanes)
        if total > chunk and (first & np.uint64(total - 1)).any():
            raise EmulatorError(f"misaligned write of {total} bytes")
        packed = np.empty((lanes.size, len(values)), element)
        for i, value in enumerate(values):
            packed[:, i] = value[lanes] if isinstance(value, np.ndarray) else value
        raw = packed.view(np.uint8).reshape(lanes.size, -1)
        for offset in range(0, total, chunk):
            part = np.ascontiguousarray(raw[:, offset : offset + chunk])
            items = as_items(part, chunk)
            at = first + np.uint64(offset)
            machine.changes += _changes(machine, space, at, items, chunk)
            machine.store(space, at, items, chunk, lanes, instruction)

    return step


def _changes(machine: Machine, space: str, places: Array, items: Array, itemsize: int) -> bool:
    """Whether a store writes what is not there yet, where other blocks may look.

    Before threads have begun to look, every store counts: that takes no time.
    """
    if space != "global" or not machine.polls:
        return space != "shared"
    try:
        found = machine.memory.read(places, itemsize)
    except OutOfBounds:
        return True  # the store says so
    return not np.array_equal(found, items)


def as_items(raw: Array, itemsize: int) -> Array:
    """View rows of bytes as items: 1-d, or pairs of 64 bits for 16 bytes."""
    if itemsize == _WIDEST:
        return raw.view(np.uint64)
    return raw.view(f"u{itemsize}")[:, 0]


@opcode("fence", "membar")
def _fence(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine = binder.machine
    if not instruction.has("proxy") or not any("async" in m for m in instruction.modifiers):
        return do_nothing

    spaces = {space.partition("::")[0] for space in instruction.modifiers} & {"shared", "global"}
    shared, everywhere = spaces != {"global"}, "shared" not in spaces

    def step(group: Group) -> Outcome:
        if machine.races is not None:
            machine.races.fence(group.lanes, shared=shared, everywhere=everywhere)
        return None

    return step
