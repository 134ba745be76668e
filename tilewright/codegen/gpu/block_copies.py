"""What the code of a function asks of copies that one thread starts, of tiles as a whole."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tilewright import ops
from tilewright.codegen.gpu.barriers import BarrierTable
from tilewright.codegen.gpu.element_stores import Written
from tilewright.codegen.gpu.shared_tile import SharedTile

__all__ = ["BlockCopies"]


class BlockCopies(Protocol):
    """Writes the copies of one function; `barriers` are what those to shared memory arrive on."""

    barriers: BarrierTable

    def start_load(
        self, op: ops.DescriptorLoad | ops.Load, tile: SharedTile, barrier: str, flag: str
    ) -> None:
        """Let the thread in which a flag holds ask for a tile."""

    def loaded(self, op: ops.DescriptorLoad) -> AbstractContextManager[None]:
        """Inside, a tile that is loaded here lies in shared memory."""

    def store(self, op: Written) -> None:
        """Write a tile to shared memory, from where one thread lets it be copied."""

    def by_first_warp(self) -> AbstractContextManager[None]:
        """Write what only one warp of the program runs."""
