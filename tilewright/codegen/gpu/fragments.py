"""What matrix instructions take from registers: which registers, and packed into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.codegen.code import Code
from tilewright.codegen.gpu.pairs import Pairs
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.words import WORD_BITS, to_words
from tilewright.ir.core import Value
from tilewright.ir.types import ElementType
from tilewright.layout import LinearLayout, register_copies

__all__ = ["Corner", "Fragments", "instruction_tiles", "packed"]


Corner = tuple[int, ...]
"""Where a tile of one instruction starts: batch axes, row, column."""


def instruction_tiles(layout: LinearLayout, tile: tuple[int, int]) -> dict[Corner, list[int]]:
    """Return the registers of each tile of one instruction, in the order of the layout."""
    tiles: dict[Corner, list[int]] = {}
    for register, first in enumerate(register_copies(layout)):
        if register == first:
            *batch, row, column = layout(register=register).values()
            corner = (*batch, row // tile[0] * tile[0], column // tile[1] * tile[1])
            tiles.setdefault(corner, []).append(register)
    return tiles


class Fragments:
    """The words of an operand for each instruction, written when they are first asked for."""

    def __init__(
        self, puller: Puller, value: Value, layout: LinearLayout, tile: tuple[int, int]
    ) -> None:
        self.puller, self.value, self.layout = puller, value, layout
        self.pairs = Pairs(puller)
        self.tiles = instruction_tiles(layout, tile)
        self._words: dict[Corner, list[str]] = {}

    def __getitem__(self, corner: Corner) -> list[str]:
        if corner not in self._words:
            self._words[corner] = self._pack(self.tiles[corner])
        return self._words[corner]

    def load_all(self, column: int | None = None) -> list[Corner]:
        """Write all words now, or those of the tiles that start in a column; return the tiles."""
        corners = [c for c in self.tiles if column is None or c[-1] == column]
        for corner in corners:
            self[corner]
        return corners

    def hold(self, hold: Callable[[list[str]], list[str]], column: int | None = None) -> None:
        """Write the same words, and let each tile's be what `hold` makes of them."""
        for corner in self.load_all(column):
            self._words[corner] = hold(self[corner])

    def _pack(self, registers: list[int]) -> list[str]:
        if self.value.type.element.primitive_bitwidth == WORD_BITS // 2:
            return self.pairs.words(self.value, self.layout, registers)
        texts = [self.puller.pull(self.value, self.layout, r).text for r in registers]
        return packed(self.puller.code, texts, self.value.type.element)


def packed(code: Code, texts: Sequence[str], kind: ElementType) -> list[str]:
    """Return elements as words of 32 bits."""
    count = max(1, WORD_BITS // kind.primitive_bitwidth)
    groups = (texts[first : first + count] for first in range(0, len(texts), count))
    return [to_words(code, group, kind, WORD_BITS)[0] for group in groups]
