"""Operands of instructions as arrays of a machine: what turns an instruction into a function.

A register, a special register and a constant never move, so an operand is found once, before
the kernel runs, and an instruction becomes a closure over its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Step
from tilewright.emulator.machine import Machine
from tilewright.emulator.parser import type_bits
from tilewright.emulator.program import (
    Address,
    EmulatorError,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

__all__ = ["HANDLERS", "Binder", "Value", "numpy_type", "opcode"]

Value = Any  # an array, or a NumPy scalar for a constant
_KINDS = {"u": "u", "b": "u", "s": "i", "f": "f"}
_RAW_TYPES = {"bf16": "u2", "e4m3": "u1", "e5m2": "u1", "pred": "?"}


@cache
def numpy_type(name: str) -> np.dtype[Any]:
    """Return how a PTX type is computed with; packed and odd formats are their bits."""
    if name in _RAW_TYPES:
        return np.dtype(_RAW_TYPES[name])
    bits = type_bits(name)
    if "x" in name or name.startswith(("bf", "tf", "e")):
        return np.dtype(f"u{bits // 8}")
    return np.dtype(f"{_KINDS[name[0]]}{bits // 8}")


class Binder:
    """Finds the arrays behind operands."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def value(self, operand: Operand, type: str, *, of_wider: bool = False) -> Value:
        """Return an operand as it is read: an array, or a scalar for constants.

        Only some instructions read the lower part of a wider register: `of_wider`.
        """
        dtype = numpy_type(type)
        match operand:
            case Register(name, bits):
                if bits > 8 * dtype.itemsize and not of_wider:
                    raise EmulatorError(f"`{name}` has {bits} bits, not {8 * dtype.itemsize}")
                return self._view(self.machine.row(name, bits), dtype, operand)
            case Special("clock" | "clock64" | "globaltimer" | "globaltimer_lo"):
                return np.zeros(1, dtype)[0]
            case Special(name):
                row = self.machine.special(name)
                return row.astype(dtype) if dtype.itemsize > 4 else self._view(row, dtype, operand)
            case Immediate():
                return constant(operand, dtype)
            case Symbol(name, offset):
                return constant(Immediate(self.address_of(name) + offset), dtype)
            case Sink():
                return np.zeros(1, dtype)[0]
        raise EmulatorError(f"`{operand}` is no source of type .{type}")

    def target(self, operand: Operand, type: str) -> Array:
        """Return the array that an instruction writes for an operand."""
        dtype = numpy_type(type)
        if isinstance(operand, Sink):
            return np.zeros(self.machine.width, dtype)
        if not isinstance(operand, Register):
            raise EmulatorError(f"`{operand}` is no destination")
        if operand.bits > 8 * dtype.itemsize:
            raise EmulatorError(f"`{operand.name}` has {operand.bits} bits, not the result's")
        return self._view(self.machine.row(operand.name, operand.bits), dtype, operand)

    def storage(self, operand: Operand) -> Array:
        """Return the whole register behind a destination, unsigned (or bool)."""
        if isinstance(operand, Register):
            return self.machine.row(operand.name, operand.bits)
        return np.zeros(self.machine.width, np.uint64)

    def condition(self, operand: Operand) -> Callable[[], Array]:
        """Return a function that reads a predicate, which may be negated."""
        if isinstance(operand, Negated):
            inner = self.condition(operand.operand)
            return lambda: ~inner()
        if isinstance(operand, Immediate):
            fixed = np.full(self.machine.width, bool(operand.value))
            return lambda: fixed
        row = np.asarray(self.value(operand, "pred"))
        return lambda: row

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """Return the parts of a vector operand, or the operand itself."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def address(self, operand: Operand) -> Callable[[Array], Array]:
        """Return a function from threads to the addresses (uint64) that they use."""
        if not isinstance(operand, Address):
            operand = Address(operand)
        offset = np.uint64(operand.offset & 0xFFFF_FFFF_FFFF_FFFF)
        width = self.machine.width
        if isinstance(operand.base, Register):
            base = self.machine.row(operand.base.name, operand.base.bits)
            if operand.base.bits == 32:
                short = np.uint32(operand.offset & 0xFFFF_FFFF)
                return lambda lanes: (base[lanes] + short).astype(np.uint64)
            return lambda lanes: base[lanes] + offset
        fixed = np.full(width, self.value(operand.base, "u64") + offset, np.uint64)
        return lambda lanes: fixed[lanes]

    def address_of(self, name: str) -> int:
        """Return the address of a variable in its own space."""
        if name not in self.machine.symbols:
            raise EmulatorError(f"`{name}` is not declared")
        return self.machine.symbols[name]

    def parameter_space(self, operand: Operand) -> str:
        """Return where `.param` leads: the kernel's parameters, or those of a call."""
        base = operand.base if isinstance(operand, Address) else operand
        is_call = isinstance(base, Symbol) and self.machine.spaces.get(base.name) == "param"
        return "local" if is_call else "param"

    def _view(self, row: Array, dtype: np.dtype[Any], operand: Operand) -> Array:
        if row.dtype == dtype:
            return row
        if np.bool_ in (row.dtype, dtype) or row.dtype.itemsize < dtype.itemsize:
            raise EmulatorError(f"`{operand}` does not hold {dtype.itemsize * 8} bits")
        view = row.view(dtype)
        step = row.dtype.itemsize // dtype.itemsize
        return view if step == 1 else view[::step]


def constant(operand: Immediate, dtype: np.dtype[Any]) -> Value:
    """Return a constant of an instruction; integers wrap, float bits are kept."""
    value = operand.value
    if dtype == np.bool_:
        return np.bool_(bool(value))
    if dtype.kind == "f" and operand.bits is None and isinstance(value, float):
        return dtype.type(value)
    if dtype.kind == "f" and operand.bits is not None and dtype.itemsize != 2:
        if dtype.itemsize == 8 or operand.bits < 1 << 32:
            unsigned = np.dtype(f"u{dtype.itemsize}")
            return unsigned.type(operand.bits).view(dtype)
        return dtype.type(value)
    bits = operand.bits if operand.bits is not None else int(value)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return unsigned.type(bits & ((1 << 8 * dtype.itemsize) - 1)).view(dtype)


Handler = Callable[[Binder, Instruction, int], Step]
HANDLERS: dict[str, Handler] = {}


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Register the function that turns instructions of these opcodes into steps."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register
