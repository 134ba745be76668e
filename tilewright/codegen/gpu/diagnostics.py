"""What a kernel tells of itself: printing, and assertions that end the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.failure import FAILURE
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.printing import printed_number, printed_prefix
from tilewright.ir.core import Value
from tilewright.layout import LinearLayout, distinct_registers

__all__ = ["DiagnosticMachine", "Diagnostics"]

_GLOBAL_FAILURE = f"@{FAILURE} = addrspace(1) global i32 0"


class DiagnosticMachine(GpuMachine, Protocol):
    """Writes what diagnostics need beside the ordinary."""

    def any_thread(self, flag: str) -> str:
        """Let all threads of the block meet; return whether a flag is set in one of them."""

    def print_line(self, line: str, arguments: Sequence[str]) -> None:
        """Print a line in the format of C, from this thread."""


class Diagnostics:
    """Writes the prints and assertions of one function; `assertions` are those in order."""

    def __init__(self, puller: Puller, placement: Placement, machine: DiagnosticMachine) -> None:
        self.puller, self.placement, self.machine = puller, placement, machine
        self.code = puller.code
        self.assertions: list[ops.Assert] = []

    # -- assertions -------------------------------------------------------------------------------

    def check(self, op: ops.Assert) -> None:
        """End the program, in all its threads, if the condition fails in one of them.

        The threads leave together, so none is left waiting for another one, and the GPU is as
        usable as before.
        """
        code = self.code
        self.assertions.append(op)
        fails = self._fails(op)
        if op.condition.shape or (op.mask is not None and op.mask.shape):
            fails = self.machine.any_thread(fails)
        failed, on = code.label("failed"), code.label("holds")
        code.line(f"br i1 {fails}, label %{failed}, label %{on}")
        code.place(failed)
        code.definitions[FAILURE] = _GLOBAL_FAILURE
        code.assign(
            f"cmpxchg ptr addrspace(1) @{FAILURE}, i32 0, i32 {len(self.assertions)} "
            "monotonic monotonic"
        )
        code.line("ret void")
        code.place(on)

    def _fails(self, op: ops.Assert) -> str:
        """Return whether the condition fails in an element of this thread."""
        total: str | None = None
        tile = next((v for v in (op.condition, op.mask) if v is not None and v.shape), None)
        for layout, register in self._elements(tile):
            holds = self.puller.pull(op.condition, layout, register)
            text = self.code.assign(f"xor i1 {holds.text}, true")
            counts: Element | None = None
            if tile is not None:
                counts = self.puller.inside(tile, layout, register)
            if op.mask is not None:
                counts = self.puller.both(counts, self.puller.pull(op.mask, layout, register))
            if counts is not None:
                text = self.code.assign(f"and i1 {text}, {counts.text}")
            total = text if total is None else self.code.assign(f"or i1 {total}, {text}")
        assert total is not None
        return total

    def _elements(self, tile: Value | None) -> Iterator[tuple[LinearLayout, int]]:
        """The registers that hold the elements of a tile, each once; one for a scalar."""
        if tile is None:
            yield LinearLayout.empty(("register",)), 0
            return
        layout = self.placement.of_elements(tile)
        for register in distinct_registers(layout):
            yield layout, register

    # -- printing ---------------------------------------------------------------------------------

    def show(self, op: ops.Print) -> None:
        """Print each element, from one of the threads that hold it."""
        pids = [f"i32 {self.machine.program_number(axis)}" for axis in range(3)]
        if not op.values:
            prefix = op.prefix.replace("%", "%%").rstrip(": ")
            with self.code.guarded(self.puller.is_first_thread().text):
                self.machine.print_line(f"pid (%d, %d, %d){prefix}\n", pids)
        for number, value in enumerate(op.values):
            for layout, register in self._elements(value if value.shape else None):
                self._show_element(op, number, layout, register, pids)

    def _show_element(
        self, op: ops.Print, number: int, layout: LinearLayout, register: int, pids: list[str]
    ) -> None:
        value = op.values[number]
        element = self.puller.pull(value, layout, register)
        axes = range(len(value.shape))
        index = [self.puller.threads.coordinate(layout, axis, register).text for axis in axes]
        speaks = self._speaks(value, layout, register)
        with nullcontext() if speaks is None else self.code.guarded(speaks.text):
            form, passed = printed_number(self.code, op, value.type.element, element.text)
            prefix = printed_prefix(op, number, len(index))
            arguments = [*pids, *(f"i32 {text}" for text in index), passed]
            self.machine.print_line(f"{prefix}{form}\n", arguments)

    def _speaks(self, value: Value, layout: LinearLayout, register: int) -> Element | None:
        """Whether this thread is the one that prints an element."""
        if not value.shape:
            return self.puller.is_first_thread()
        first = self.puller.threads.is_first_holder(layout)
        return self.puller.both(first, self.puller.inside(value, layout, register))
