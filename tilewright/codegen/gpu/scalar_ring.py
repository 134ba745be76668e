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

_ALIGNMENT = 8


class ScalarRing:
    """The scalars of one loop in shared memory, `stages` of each load.

    Those of an iteration lie side by side, the larger ones first: LLVM reads them together, and
    what lay between them, too.
    """

    def __init__(self, memory: GlobalMemory, loads: Sequence[ops.Load], stages: int) -> None:
        self.memory, self.loads, self.stages = memory, loads, stages
        self.code, self.puller = memory.code, memory.puller
        self._span: Span | None = None
        self._offsets: dict[ops.Load, int] = {}
        end = 0
        for load in sorted(loads, key=_size_bytes, reverse=True):
            self._offsets[load] = end
            end += _size_bytes(load)
        largest = max(map(_size_bytes, loads), default=1)
        self._place_bytes = -(-end // largest) * largest

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, shared memory is kept for the scalars, if there are any."""
        if not self.loads:
            yield
            return
        size = self._place_bytes * self.stages
        with self.puller.shared.at(self.loads[0].location):
            ring = self.puller.shared.ring(size, _ALIGNMENT)
        with ring as self._span:
            yield

    def hide(self) -> None:
        """Let what is written next be for another iteration, until the values are put back."""
        for load in self.loads:
            self.puller.scalars.pop(load, None)

    def copy(self, place: str) -> None:
        """Start copying the scalars of an iteration to a place."""
        for load in self.loads:
            self.memory.copy_scalar(load, self._address(load, place))

    def read(self, place: str) -> None:
        """Let the scalars be those at a place, which all threads see."""
        for load in self.loads:
            address = self._address(load, place)
            (text,) = load_words(self.code, address, load.type.element, 1, SHARED)
            self.puller.scalars[load] = Element(text, 1, self.code.level)
            self.puller.ahead.add(load)

    def forget(self) -> None:
        """End the iteration."""
        self.puller.ahead.difference_update(self.loads)

    def _address(self, load: ops.Load, place: str) -> str:
        assert self._span is not None
        offset = self.code.assign(f"mul i32 {place}, {self._place_bytes}")
        at = self.code.assign(f"add i32 {offset}, {self._offsets[load]}")
        return self.code.assign(f"getelementptr i8, {SHARED} {self._span.address}, i32 {at}")


def _size_bytes(load: ops.Load) -> int:
    return load.type.element.itemsize
