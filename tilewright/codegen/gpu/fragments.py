"""What matrix instructions take from registers: which registers, and packed into words."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.words import to_words
from tilewright.ir.core import Value
from tilewright.layout import LinearLayout, register_copies

__all__ = ["Fragments", "instruction_tiles"]

_WORD_BITS = 32


def instruction_tiles(
    layout: LinearLayout, tile: tuple[int, int]
) -> dict[tuple[int, int], list[int]]:
    """Return the registers of each tile of one instruction, in the order of the layout."""
    tiles: dict[tuple[int, int], list[int]] = {}
    for register, first in enumerate(register_copies(layout)):
        if register == first:
            row, column = layout(register=register).values()
            corner = row // tile[0] * tile[0], column // tile[1] * tile[1]
            tiles.setdefault(corner, []).append(register)
    return tiles


def _unchanged(word: str) -> str:
    return word


class Fragments:
    """The words of an operand for each instruction, written when they are first asked for.

    `prepare` makes a word of the tile one that the instruction takes.
    """

    def __init__(
        self,
        puller: Puller,
        value: Value,
        layout: LinearLayout,
        tile: tuple[int, int],
        prepare: Callable[[str], str] = _unchanged,
    ) -> None:
        self.puller, self.value, self.layout, self.prepare = puller, value, layout, prepare
        self.tiles = instruction_tiles(layout, tile)
        self._words: dict[tuple[int, int], list[str]] = {}

    def __getitem__(self, corner: tuple[int, int]) -> list[str]:
        if corner not in self._words:
            self._words[corner] = self._pack(self.tiles[corner])
        return self._words[corner]

    def load_all(self) -> None:
        """Write all words now."""
        for corner in self.tiles:
            self[corner]

    def _pack(self, registers: list[int]) -> list[str]:
        kind = self.value.type.element
        texts = [self.puller.pull(self.value, self.layout, r).text for r in registers]
        packed = max(1, _WORD_BITS // kind.primitive_bitwidth)
        words = []
        for first in range(0, len(texts), packed):
            (word,) = to_words(self.puller.code, texts[first : first + packed], kind, _WORD_BITS)
            words.append(self.prepare(word))
        return words
