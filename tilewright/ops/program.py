"""The program's place in the grid, and what a kernel says: prints, assertions, promises."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tilewright.ir.core import Effect, MachineOp, Value, require
from tilewright.ir.types import DTYPES, TileType
from tilewright.ops.machine import Machine
from tilewright.ops.numerics import Array

__all__ = ["Assert", "Assume", "Barrier", "NumPrograms", "Print", "ProgramId"]

INT32 = TileType(DTYPES["i32"])


class ProgramId(MachineOp):
    """The program's index along `axis` of the grid."""

    axis: int

    def infer(self) -> TileType:
        require(
            self.axis in {0, 1, 2},
            f"program_id: the axis must be 0, 1 or 2, got {self.axis}",
            hint="a grid has the axes 0, 1 and 2",
        )
        return INT32

    def evaluate(self, machine: Machine) -> Array:
        return np.asarray(machine.program_id[self.axis], np.int32)


class NumPrograms(MachineOp):
    """The grid's extent along `axis`."""

    axis: int

    def infer(self) -> TileType:
        require(
            self.axis in {0, 1, 2},
            f"num_programs: the axis must be 0, 1 or 2, got {self.axis}",
            hint="a grid has the axes 0, 1 and 2",
        )
        return INT32

    def evaluate(self, machine: Machine) -> Array:
        return np.asarray(machine.grid[self.axis], np.int32)


class Print(MachineOp):
    """Print `prefix` and one line for each element: `pid (x, y, z) idx (i, j) prefix: value`."""

    effect: ClassVar[Effect] = Effect.WRITE
    prefix: str
    values: tuple[Value, ...]
    hex: bool = False

    def infer(self) -> tuple[TileType, ...]:
        return ()

    def evaluate(self, machine: Machine, values: tuple[Array, ...]) -> None:
        pid = ", ".join(map(str, machine.program_id))
        if not values:
            machine.print(f"pid ({pid}){self.prefix.rstrip(': ')}")
        for number, (operand, value) in enumerate(zip(self.values, values, strict=True)):
            which = f"(operand {number}) " if len(values) > 1 else ""
            for place in np.ndindex(value.shape):
                index = ", ".join(map(str, place))
                shown = self.format(operand, value[place])
                machine.print(f"pid ({pid}) idx ({index}){self.prefix}{which}{shown}")

    def format(self, operand: Value, element: Array) -> str:
        """Return one element as text: `%f` for floats, zero-padded hex digits when `hex`."""
        if self.hex:
            digits = operand.type.element.itemsize
            raw = int.from_bytes(np.asarray(element).tobytes(), "little")
            return f"0x{raw:0{2 * digits}x}"
        return f"{float(element):f}" if operand.type.element.is_floating() else f"{int(element)}"


class Assert(MachineOp):
    """Stop the launch with `message` where `condition` is false (and `mask`, if any, true)."""

    effect: ClassVar[Effect] = Effect.WRITE
    message: str
    condition: Value
    mask: Value | None = None

    def infer(self) -> tuple[TileType, ...]:
        require(
            self.condition.type.element is DTYPES["i1"],
            f"device_assert: the condition must be a bool, got {self.condition.type}",
        )
        return ()

    def evaluate(self, machine: Machine, condition: Array, mask: Array | None) -> None:
        failed = ~condition if mask is None else ~condition & mask
        if np.any(failed):
            machine.fail(self.message, self.location)


class Assume(MachineOp):
    """Promise that the scalar `condition` holds; a target may build on it."""

    effect: ClassVar[Effect] = Effect.WRITE
    condition: Value

    def infer(self) -> tuple[TileType, ...]:
        require(
            self.condition.type == TileType(DTYPES["i1"]),
            f"assume: the condition must be a scalar bool, got {self.condition.type}",
        )
        return ()

    def evaluate(self, machine: Machine, condition: Array) -> None:
        if not condition:
            machine.fail("assume: the condition does not hold", self.location)


class Barrier(MachineOp):
    """Make the memory writes above visible to all lanes of the program below."""

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE

    def infer(self) -> tuple[TileType, ...]:
        return ()

    def evaluate(self, machine: Machine) -> None:
        """Lanes run in lockstep here."""
