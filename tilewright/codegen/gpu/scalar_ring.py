"""Scalars that a loop loads: copied ahead like its tiles, into a ring of their own.

One thread copies them, and all read them when their iteration begins. In registers they would be
waited for too early: the assembler moves what all threads load from one address to registers of
the warp at once, and there is no load that writes those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.words import load_words

__all__ = ["ScalarRing"]

_PLACE_BYTES = 8  # of one scalar of one iteration


class ScalarRing:
    """The scalars of one loop in shared memory, `stages` of each load."""

    def __init__(self, memory: GlobalMemory, loads: Sequence[ops.Load], stages: int) -> None:
        self.memory, self.loads, self.stages = memory, loads, stages
        self.code, self.puller = memory.code, memory.puller
        self._span: Span | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, shared memory is kept for the scalars, if there are any."""
        if not self.loads:
            yield
            return
        size = _PLACE_BYTES * len(self.loads) * self.stages
        with self.puller.shared.at(self.loads[0].location):
            ring = self.puller.shared.ring(size, _PLACE_BYTES)
        with ring as self._span:
            yield

    def hide(self) -> None:
        """Let what is written next be for another iteration, until the values are put back."""
        for load in self.loads:
            self.puller.scalars.pop(load, None)

    def copy(self, place: str) -> None:
        """Start copying the scalars of an iteration to a place."""
        for number, load in enumerate(self.loads):
            self.memory.copy_scalar(load, self._address(number, place))

    def read(self, place: str) -> None:
        """Let the scalars be those at a place, which all threads see."""
        for number, load in enumerate(self.loads):
            address = self._address(number, place)
            (text,) = load_words(self.code, address, load.type.element, 1, SHARED)
            self.puller.scalars[load] = Element(text, 1, self.code.level)
            self.puller.ahead.add(load)

    def forget(self) -> None:
        """End the iteration."""
        self.puller.ahead.difference_update(self.loads)

    def _address(self, number: int, place: str) -> str:
        assert self._span is not None
        step = _PLACE_BYTES * len(self.loads)
        offset = self.code.assign(f"mul i32 {place}, {step}")
        at = self.code.assign(f"add i32 {offset}, {_PLACE_BYTES * number}")
        return self.code.assign(f"getelementptr i8, {SHARED} {self._span.address}, i32 {at}")
