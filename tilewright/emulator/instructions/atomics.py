"""Atomic operations. Threads that meet at one address take turns, the lowest thread first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, Value, numpy_type, opcode
from tilewright.emulator.floats import Array, add_to_odd, decode, encode, flush
from tilewright.emulator.groups import Group, Step
from tilewright.emulator.instructions.floating import maximum, minimum
from tilewright.emulator.instructions.memory import as_items, space_of
from tilewright.emulator.machine import Machine
from tilewright.emulator.memory import SHARED_WINDOW
from tilewright.emulator.program import EmulatorError, Instruction

__all__ = ["combine", "turns"]

_OPERATIONS = ("and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max")


def turns(addresses: Array) -> list[Array]:
    """Split accesses into rounds, none of which has an address twice."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if starts.size == addresses.size:
        return [np.arange(addresses.size)]
    lengths = np.diff(np.r_[starts, addresses.size])
    rank = np.arange(addresses.size) - np.repeat(starts, lengths)
    return [np.sort(order[rank == turn]) for turn in range(int(lengths.max()))]


def _narrow(operation: str, lane: str) -> Callable[[Array, Array], Array]:
    """Combine arrays of f16 or bf16 bits."""

    def combined(old: Array, new: Array) -> Array:
        x, y = (decode(bits, lane).astype(np.float64) for bits in (old, new))
        if operation == "add":
            return encode(add_to_odd(x, y), lane)
        return encode(minimum(x, y) if operation == "min" else maximum(x, y), lane)

    return combined


def _flushed_sum(old: Array, new: Array) -> Array:
    """Add float32 numbers as global memory does: subnormal ones, also the sum, are zeros."""
    return flush(flush(old) + flush(new))


def combine(operation: str, type: str, space: str = "global") -> Callable[[Array, Array], Array]:
    """Return the function of the old value and the operand (arrays of the type's NumPy type)."""
    lane = type.removesuffix("x2")
    if lane in {"f16", "bf16"} and operation in {"add", "min", "max"}:
        return _narrow(operation, lane)
    if (operation, type) == ("add", "f32") and space != "shared":
        return _flushed_sum
    table: dict[str, Any] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "exch": lambda old, new: new,
        "add": np.add,
        "inc": lambda old, new: np.where(old >= new, old.dtype.type(0), old + old.dtype.type(1)),
        "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - old.dtype.type(1)),
        "min": minimum if type.startswith("f") else np.minimum,
        "max": maximum if type.startswith("f") else np.maximum,
    }
    function: Callable[[Array, Array], Array] = table[operation]
    return function


def _value_type(instruction: Instruction) -> str:
    """Return the type, which the vector forms may have before the operation."""
    return next(m for m in reversed(instruction.modifiers) if re.fullmatch(r"[a-z]+\d+(x2)?", m))


@opcode("atom", "red")
def _atomic(binder: Binder, instruction: Instruction, pc: int) -> Step:
    operation = next((m for m in _OPERATIONS if m in instruction.modifiers), "")
    if not operation or instruction.has("async"):
        raise EmulatorError(f"`{instruction.opcode}` of this kind is not modelled")
    type = _value_type(instruction)
    out, rest = None, instruction.operands
    if instruction.opcode == "atom":
        out, rest = rest[0], rest[1:]
    values = [binder.value(item, type) for item in binder.items(rest[1])]
    swaps = [binder.value(rest[2], type)] if operation == "cas" else []
    targets = [binder.target(item, type) for item in binder.items(out)] if out else []
    return _step(binder, instruction, operation, (values, swaps, targets))


def _step(
    binder: Binder,
    instruction: Instruction,
    operation: str,
    operands: tuple[list[Value], list[Value], list[Array]],
) -> Step:
    values, swaps, targets = operands
    machine, type = binder.machine, _value_type(instruction)
    skip = 2 if instruction.opcode == "atom" else 1
    address = binder.address(instruction.operands[skip - 1])
    space, dtype = space_of(instruction), numpy_type(type)
    lane = np.dtype(np.uint16) if type in {"f16x2", "bf16x2", "f16", "bf16"} else dtype
    total = dtype.itemsize * len(values)
    function = None if operation == "cas" else combine(operation, type, space)

    def rows(operands: list[Value], lanes: Array) -> Array:
        packed = np.empty((lanes.size, len(operands)), dtype)
        for i, value in enumerate(operands):
            packed[:, i] = value[lanes] if isinstance(value, np.ndarray) else value
        return packed

    def step(group: Group) -> None:
        lanes, places = group.lanes, address(group.lanes)
        machine.poll(lanes)
        new = rows(values, lanes)
        swap = rows(swaps, lanes) if swaps else new
        old = np.empty_like(new)
        keys = _keys(machine, space, places, lanes)
        _, first, cells = np.unique(keys, return_index=True, return_inverse=True)
        raw = machine.load(space, places, total, lanes, instruction)[first]
        current = np.ascontiguousarray(raw.reshape(first.size, -1)).view(dtype)
        found = current.tobytes()
        for chosen in turns(keys):
            before = current[cells[chosen]]
            if function is None:
                after = np.where(before == new[chosen], swap[chosen], before)
            else:
                after = function(before.view(lane), new[chosen].view(lane)).view(dtype)
            old[chosen] = before
            current[cells[chosen]] = after
        items = as_items(current.view(np.uint8).reshape(first.size, -1), total)
        machine.store(space, places[first], items, total, lanes[first], instruction)
        machine.changes += current.tobytes() != found
        for i, target in enumerate(targets):
            target[lanes] = old[:, i]

    return step


def _keys(machine: Machine, space: str, places: Array, lanes: Array) -> Array:
    """Return a number for each place in memory: shared addresses are told apart by block."""
    if space == "global":
        return places
    blocks = (machine.block_of_thread[lanes] << 40).astype(np.uint64)
    is_shared = space == "shared" or places >= np.uint64(SHARED_WINDOW)
    return np.where(is_shared, places | blocks, places)
