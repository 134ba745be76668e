"""What loops and branches hand on: values in stack slots, which LLVM makes registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code, Element, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.ir.core import Value
from tilewright.layout import distinct_registers

__all__ = ["Carried"]


class Carried:
    """Keeps values in stack slots, and fetches them."""

    def __init__(self, puller: Puller, placement: Placement) -> None:
        self.code: Code = puller.code
        self.puller, self.placement = puller, placement

    def slots(self, values: Sequence[Value]) -> list[list[str]]:
        """Return stack slots for scalars and for the registers of tiles; LLVM removes them."""
        return [
            [self.code.alloca(llvm_type(value.type.element)) for _ in self._registers(value)]
            for value in values
        ]

    def _registers(self, value: Value) -> tuple[int, ...]:
        """The registers of a tile that are no copies of others."""
        if not value.shape:
            return (0,)
        return distinct_registers(self.placement.home(value))

    def keep(self, homes: Sequence[Value], values: Sequence[Value], slots: list[list[str]]) -> None:
        """Store what `homes` shall be; all is computed before any slot changes."""
        pulled = []
        for home, value in zip(homes, values, strict=True):
            if value.shape:
                layout = self.placement.home(home)
                elements = [self.puller.pull(value, layout, r) for r in self._registers(home)]
            else:
                elements = [self.puller.scalar(value)]
            pulled.append(elements)
        for value, elements, own in zip(values, pulled, slots, strict=True):
            kind = llvm_type(value.type.element)
            for element, slot in zip(elements, own, strict=True):
                self.code.line(f"store {kind} {element.text}, ptr {slot}")

    def fetch(self, values: Sequence[Value], slots: list[list[str]]) -> None:
        """Let `values` be what their slots hold now."""
        for value, own in zip(values, slots, strict=True):
            kind, level = llvm_type(value.type.element), self.code.level
            texts = [self.code.assign(f"load {kind}, ptr {slot}") for slot in own]
            elements = [Element(text, 1, level) for text in texts]
            self.hold(value, elements)

    def hold(self, value: Value, elements: Sequence[Element]) -> None:
        """Let `value` be these elements, one for each register that is no copy."""
        if not value.shape:
            self.puller.scalars[value] = elements[0]
            return
        layout = self.placement.home(value)
        by_register = dict(zip(self._registers(value), elements, strict=True))
        self.puller.residents[value] = Resident.of(layout, by_register)
