"""Scalars that a loop loads: loaded ahead like its tiles, and kept in registers until their turn.

All threads load them, when the copies of their iteration start. Waiting for one where it is needed
would hold up every iteration for as long as memory takes to answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ops
from tilewright.codegen.code import Element, llvm_type
from tilewright.codegen.gpu.memory import GlobalMemory

__all__ = ["ScalarsAhead"]


class ScalarsAhead:
    """The scalar loads of one loop: a queue of `ahead` iterations' values for each of them."""

    def __init__(self, memory: GlobalMemory, loads: Sequence[ops.Load], ahead: int) -> None:
        self.memory, self.loads = memory, loads
        self.code, self.puller = memory.code, memory.puller
        self._slots = {
            load: [self.code.alloca(llvm_type(load.type.element)) for _ in range(ahead)]
            for load in loads
        }
        self._started = 0  # places in the code where iterations start: the last is in the loop

    def hide(self) -> None:
        """Let what is written next be for another iteration, until the values are put back."""
        for load in self.loads:
            self.puller.scalars.pop(load, None)

    def load(self) -> None:
        """Load the scalars of an iteration, unless its addresses have needed them already."""
        for load, slots in self._slots.items():
            if load not in self.puller.scalars:
                self.memory.load_scalar(load)
            text = self.puller.scalars[load].text
            slot = slots[min(self._started, len(slots) - 1)]
            self.code.line(f"store {llvm_type(load.type.element)} {text}, ptr {slot}")
        self._started += 1

    def take(self) -> None:
        """Let the scalars be those of the iteration whose turn it is."""
        for load, slots in self._slots.items():
            kind = llvm_type(load.type.element)
            first, *later = (self.code.assign(f"load {kind}, ptr {slot}") for slot in slots)
            for text, slot in zip(later, slots, strict=False):
                self.code.line(f"store {kind} {text}, ptr {slot}")
            self.puller.scalars[load] = Element(first, 1, self.code.level)
            self.puller.ahead.add(load)

    def forget(self) -> None:
        """End the iteration."""
        self.puller.ahead.difference_update(self.loads)
