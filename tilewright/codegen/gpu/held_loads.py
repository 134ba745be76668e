"""Loads that pass by registers on their way to a ring, since there is no copy of their width.

What an iteration needs is loaded when its copies start, and is stored to its place one iteration
later: until then it is on its way, as a copy is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright import ops
from tilewright.codegen.code import llvm_type
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.shared_tile import SharedTile, TileMemory, put_in_shared
from tilewright.layout import distinct_registers, register_copies

__all__ = ["HeldLoads"]


class HeldLoads:
    """The loads of one ring that no copy makes, at most those of one iteration at a time."""

    def __init__(
        self, memory: GlobalMemory, loads: Sequence[ops.Load], tiles: Mapping[ops.Load, TileMemory]
    ) -> None:
        self.memory, self.loads, self.tiles = memory, loads, tiles
        self.code, self.puller = memory.code, memory.puller
        self._slots = {
            load: [self.code.alloca(llvm_type(load.type.element)) for _ in self._registers(load)]
            for load in loads
        }
        self._place, self._is_waiting = self.code.alloca("i32"), self.code.alloca("i1")
        with self.code.entered():
            self.code.line(f"store i1 false, ptr {self._is_waiting}")

    def _registers(self, load: ops.Load) -> tuple[int, ...]:
        """The registers that are no copies of others."""
        return distinct_registers(self.memory.placement.of_access(load))

    def load(self, place: str) -> None:
        """Load what shall be at a place of the ring; what was loaded before has been stored."""
        for load in self.loads:
            self.memory.load(load)
            resident = self.puller.residents.pop(load)
            for register, slot in zip(self._registers(load), self._slots[load], strict=True):
                text = resident.elements[register].text
                self.code.line(f"store {llvm_type(load.type.element)} {text}, ptr {slot}")
        self.code.line(f"store i32 {place}, ptr {self._place}")
        self.code.line(f"store i1 true, ptr {self._is_waiting}")

    def store(self, start: Callable[[ops.Load, str], str]) -> None:
        """Store what is on its way, if anything is; `start` gives the address of a place."""
        code = self.code
        with code.guarded(code.assign(f"load i1, ptr {self._is_waiting}")):
            place = code.assign(f"load i32, ptr {self._place}")
            for load in self.loads:
                self._put(load, start(load, place))
            code.line(f"store i1 false, ptr {self._is_waiting}")

    def _put(self, load: ops.Load, address: str) -> None:
        element, layout = load.type.element, self.memory.placement.of_access(load)
        kind = llvm_type(element)
        loaded = [self.code.assign(f"load {kind}, ptr {slot}") for slot in self._slots[load]]
        by_register = dict(zip(self._registers(load), loaded, strict=True))
        texts = [by_register[first] for first in register_copies(layout)]
        put_in_shared(self.puller, texts, element, layout, SharedTile(self.tiles[load], address))
