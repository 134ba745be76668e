"""Barriers in shared memory that count: threads that arrive, and bytes that copies bring.

What a barrier waits for alternates: the number of times it has completed, modulo 2, is its phase.
"""

from __future__ import annotations

from typing import Protocol

from tilewright.codegen.code import Code
from tilewright.codegen.gpu.machine import CopyMachine
from tilewright.codegen.gpu.shared import SHARED

__all__ = ["BARRIERS", "BarrierMachine", "BarrierTable", "Barriers"]

BARRIERS = "@barriers"
_BARRIER_BYTES = 8


class BarrierMachine(CopyMachine, Protocol):
    """Writes what is done with barriers in shared memory."""

    def start_barrier(self, barrier: str, arrivals: int) -> None:
        """Make a barrier ready, on which so many threads will arrive in each phase."""

    def publish_barriers(self) -> None:
        """Let new barriers be seen by copies."""

    def arrive_by_warp(self, barrier: str) -> None:
        """Let one thread of each warp arrive on a barrier."""

    def arrive_behind_copies(self, barrier: str) -> None:
        """Let this thread arrive on a barrier when its own copies so far have arrived."""

    def elected(self) -> str:
        """Return a flag that holds in one thread of the warp, whose threads all are here."""

    def expect_bytes(self, barrier: str, count: int, flag: str) -> None:
        """Let a barrier complete when so many more bytes have arrived, where the flag holds."""

    def await_phase(self, barrier: str, phase: str) -> None:
        """Wait until a barrier has completed the phase, an i32 of 0 or 1."""


class Barriers:
    """Barriers in shared memory, the first one `first` places behind the function's first."""

    def __init__(self, code: Code, first: int) -> None:
        self.code, self.first = code, first

    def address(self, place: str = "0") -> str:
        """Return where the barrier of a place lies."""
        start = f"getelementptr (i8, {SHARED} {BARRIERS}, i32 {self.first * _BARRIER_BYTES})"
        if place == "0":
            return start
        offset = self.code.assign(f"mul i32 {place}, {_BARRIER_BYTES}")
        return self.code.assign(f"getelementptr i8, {SHARED} {start}, i32 {offset}")


class BarrierTable:
    """The barriers of one function, and how many arrivals each waits for.

    They lie in shared memory behind all else, of which the size is only known when the function has
    been written: until then the text says `BARRIERS`.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.arrivals: list[int] = []

    @property
    def size_bytes(self) -> int:
        """The size of all barriers."""
        return len(self.arrivals) * _BARRIER_BYTES

    def reserve(self, count: int, arrivals: int = 1) -> Barriers:
        """Return new barriers."""
        first = len(self.arrivals)
        self.arrivals += [arrivals] * count
        return Barriers(self.code, first)

    def prepare(self, machine: BarrierMachine) -> None:
        """Write, at the entry of the function, what makes the barriers ready."""
        if not self.arrivals:
            return
        code = self.code
        with code.entered():
            with code.guarded(code.assign(f"icmp eq i32 {machine.thread_number()}, 0")):
                for number, arrivals in enumerate(self.arrivals):
                    machine.start_barrier(Barriers(code, number).address(), arrivals)
                machine.publish_barriers()
            machine.barrier()
