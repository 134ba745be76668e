"""What ops may ask of the machine that runs them: memory, place in the grid, regions, output."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.errors import Location
from tilewright.ir.core import Block, Function
from tilewright.ir.types import DType
from tilewright.ops.numerics import Array

__all__ = ["Machine"]


class Machine(Protocol):
    """The interpreter, as ops see it."""

    program_id: tuple[int, int, int]
    grid: tuple[int, int, int]

    def run(self, block: Block, *arguments: Any) -> tuple[Any, ...]:
        """Run a region on the values of its parameters and return what it yields."""

    def call(self, function: Function, *arguments: Any) -> tuple[Any, ...]:
        """Run a function on its arguments and return its results."""

    def read(self, addresses: Array, dtype: DType) -> Array:
        """Return the elements at a 1-d array of addresses; one outside memory is an error."""

    def write(self, addresses: Array, values: Array) -> None:
        """Store elements at a 1-d array of addresses, in order."""

    def print(self, text: str) -> None:
        """Show a line of `device_print`."""

    def fail(self, message: str, location: Location | None) -> None:
        """Report a `device_assert` that does not hold."""
