"""Watching the registers of `wgmma`: what is in flight is left alone, what is written is fenced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Outcome, Step
from tilewright.emulator.machine import Machine
from tilewright.emulator.program import Address, Instruction, Operand, Pair, Register, Vector

__all__ = ["RegisterWatch"]

_WITHOUT_RESULT = {"st", "red", "bra", "brx", "bar", "barrier", "cp", "stmatrix", "fence", "call"}


def _registers(operands: Sequence[Operand]) -> set[str]:
    found: set[str] = set()
    for operand in operands:
        match operand:
            case Register(name):
                found.add(name)
            case Address(base, _, rest):
                found |= _registers([base, *rest])
            case Vector(items):
                found |= _registers(items)
            case Pair(first, second):
                found |= _registers([first, second])
    return found


class RegisterWatch:
    """Wraps the steps of a kernel that has `wgmma` instructions."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        instructions = machine.kernel.instructions
        self._by_line = {item.line: item for item in instructions}
        self._involved: set[str] = set()
        for item in instructions:
            if item.opcode == "wgmma" and item.has("mma_async"):
                self._involved |= self._held(item)
        self._written: dict[str, Array] = {}  # by which threads, since their last fence

    def around(self, instruction: Instruction, step: Step) -> Step:
        """Return the step with what has to be watched about it."""
        if instruction.opcode == "wgmma":
            if instruction.has("mma_async"):
                return self._product(instruction, step)
            return self._fence(step) if instruction.has("fence") else step
        used = _registers(instruction.operands) & self._involved
        if not used:
            return step
        results = () if instruction.opcode in _WITHOUT_RESULT else instruction.operands[:1]
        written = _registers(results) & self._involved
        return self._other(instruction, step, used, written)

    @staticmethod
    def _held(instruction: Instruction) -> set[str]:
        """Return the registers of D, and of A if it is in registers."""
        held = _registers(instruction.operands[:1])
        if isinstance(instruction.operands[1], Vector):
            held |= _registers(instruction.operands[1:2])
        return held

    def _product(self, instruction: Instruction, step: Step) -> Step:
        held = self._held(instruction)
        races = self.machine.races

        def run(group: Group) -> Outcome:
            for register in held.intersection(self._written):
                if races is not None and (self._written[register] & group.mask).any():
                    races.unfenced_register(instruction, register)
                    break
            return step(group)

        return run

    def _fence(self, step: Step) -> Step:
        def run(group: Group) -> Outcome:
            for register, mask in list(self._written.items()):
                left = mask & ~group.mask
                if left.any():
                    self._written[register] = left
                else:
                    del self._written[register]
            return step(group)

        return run

    def _other(
        self, instruction: Instruction, step: Step, used: set[str], written: set[str]
    ) -> Step:
        machine = self.machine

        def run(group: Group) -> Outcome:
            for item in machine.asynchronous.products:
                shared = item.registers & used
                if shared and machine.races is not None and (item.mask & group.mask).any():
                    other = self._by_line[item.line]
                    machine.races.register_in_flight(instruction, other, min(shared))
            for register in written:
                before = self._written.get(register, np.False_)
                self._written[register] = before | group.mask
            return step(group)

        return run
