"""Branches, ends, calls, and what needs no model."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np

from tilewright.emulator.binding import Binder, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Outcome, Signal, Step
from tilewright.emulator.program import EmulatorError, Instruction, Sink, Symbol, Vector

__all__ = ["do_nothing", "format_message", "guarded"]


def guarded(binder: Binder, instruction: Instruction, pc: int, step: Step) -> Step:
    """Run a step only for the threads whose predicate allows it."""
    predicate = instruction.predicate
    if predicate is None:
        return step
    machine = binder.machine
    row = np.asarray(binder.value(predicate, "pred"))
    negated = instruction.predicate_negated

    def run(group: Group) -> Outcome:
        taken = group.mask & ~row if negated else group.mask & row
        chosen = Group(taken)
        if not chosen.count:
            return None
        if chosen.count == group.count:
            return step(group)
        outcome = step(chosen)
        if outcome is None:
            return None
        machine.pc[group.mask & ~taken] = pc + 1
        if isinstance(outcome, int):
            machine.pc[taken] = outcome
        elif isinstance(outcome, Group):
            machine.pc[outcome.mask] = pc + 1
        return Signal.RESCHEDULE

    return run


@opcode("bra")
def _branch(binder: Binder, instruction: Instruction, pc: int) -> Step:
    label = instruction.operands[0]
    labels = binder.machine.kernel.labels
    if not isinstance(label, Symbol) or label.name not in labels:
        raise EmulatorError("the label is not there")
    target = labels[label.name]
    return lambda group: target


@opcode("brx")
def _branch_by_index(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine = binder.machine
    index = np.asarray(binder.value(instruction.operands[0], "u32"))
    table = instruction.operands[1]
    names = machine.kernel.branch_targets[table.name] if isinstance(table, Symbol) else ()
    places = np.array([machine.kernel.labels[name] for name in names], np.int32)

    def step(group: Group) -> Signal:
        chosen = index[group.lanes]
        if (chosen >= places.size).any():
            raise EmulatorError(f"the index {int(chosen.max())} is beyond the {places.size} labels")
        machine.pc[group.lanes] = places[chosen]
        return Signal.RESCHEDULE

    return step


@opcode("ret", "exit")
def _end(binder: Binder, instruction: Instruction, pc: int) -> Step:
    return binder.machine.end_threads


@opcode("trap", "brkpt")
def _trap(binder: Binder, instruction: Instruction, pc: int) -> Step:
    def step(group: Group) -> Outcome:
        raise EmulatorError(f"`{instruction.opcode}` was reached")

    return step


def do_nothing(group: Group) -> None:
    """The step of an instruction that changes nothing that is modelled."""


@opcode(
    "griddepcontrol",
    "setmaxnreg",
    "nanosleep",
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "pmevent",
)
def _ignored(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if instruction.opcode != "nanosleep":
        return do_nothing
    return lambda group: pc + 1  # lets others run


@opcode("createpolicy")
def _create_policy(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "b64")
    return lambda group: np.copyto(target, 0, where=group.where)


# -- calls ----------------------------------------------------------------------------------------


@opcode("call")
def _call(binder: Binder, instruction: Instruction, pc: int) -> Step:
    operands = list(instruction.operands)
    if isinstance(operands[0], Vector | Sink):
        operands.pop(0)
    name = operands[0].name if isinstance(operands[0], Symbol) else ""
    arguments = operands[1].items if len(operands) > 1 and isinstance(operands[1], Vector) else ()
    names = [item.name for item in arguments if isinstance(item, Symbol)]
    if name == "vprintf":
        return _print(binder, instruction, names)
    if name == "__assertfail":
        return _fail(binder, instruction, names)
    raise EmulatorError(f"calls of `{name}` are not modelled: inline it")


def _argument(binder: Binder, name: str, size: int, lane: int) -> int:
    start = int(binder.machine.local_start[lane]) + binder.address_of(name)
    return int.from_bytes(binder.machine.local[start : start + size].tobytes(), "little")


def _text_at(binder: Binder, address: int, lane: int, instruction: Instruction) -> str:
    """Read a text that ends with a zero byte."""
    raw = bytearray()
    lanes = np.array([lane])
    while not raw or raw[-1]:
        at = np.array([address + len(raw)], np.uint64)
        raw += binder.machine.load("generic", at, 1, lanes, instruction).tobytes()
    return raw[:-1].decode(errors="replace")


def _print(binder: Binder, instruction: Instruction, names: list[str]) -> Step:
    machine = binder.machine

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            format = _text_at(binder, _argument(binder, names[0], 8, lane), lane, instruction)
            start = _argument(binder, names[1], 8, lane)

            def read(offset: int, size: int, start: int = start, lane: int = lane) -> bytes:
                at = np.array([start + offset], np.uint64)
                items: Array = machine.load("generic", at, size, np.array([lane]), instruction)
                return items.tobytes()

            def read_text(address: int, lane: int = lane) -> str:
                return _text_at(binder, address, lane, instruction)

            machine.print(format_message(format, read, read_text))

    return step


def format_message(
    format: str, read: Callable[[int, int], bytes], read_text: Callable[[int], str]
) -> str:
    """Format a message of `vprintf`; `read(offset, size)` gives bytes of the arguments."""
    offset = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal offset
        flags, length, kind = found[1], found[2], found[3]
        if kind == "%":
            return "%"
        size = 8 if kind in "feEgGaAsp" or length in {"l", "ll", "z", "j", "t"} else 4
        offset += -offset % size
        raw = read(offset, size)
        offset += size
        if kind in "feEgGaA":
            return str(f"%{flags}{kind}" % struct.unpack("<d", raw))
        value = int.from_bytes(raw, "little", signed=kind in "di")
        if kind == "s":
            return f"%{flags}s" % read_text(value)
        if kind == "p":
            return f"%{flags}s" % hex(value)
        return f"%{flags}{'d' if kind in 'diu' else kind}" % value

    return re.sub(r"%([-+ #0\d.]*)(hh|h|ll|l|z|j|t)?([diuoxXcspfeEgGaA%])", replace, format)


def _fail(binder: Binder, instruction: Instruction, names: list[str]) -> Step:
    def step(group: Group) -> None:
        lane = int(group.lanes[0])
        message, file = (
            _text_at(binder, _argument(binder, name, 8, lane), lane, instruction)
            for name in names[:2]
        )
        line = _argument(binder, names[2], 4, lane)
        raise EmulatorError(f"device-side assert: {message} ({file}:{line})")

    return step
