"""What the warps of a block have to tell each other: a value of each, for each line of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tilewright.codegen.code import Element
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.words import (
    WORD_BITS,
    from_words,
    load_words,
    store_words,
    to_words,
    word_size,
)
from tilewright.ir.types import ElementType
from tilewright.layout import LinearLayout

__all__ = ["WarpTable", "from_lane", "parts_at_once"]

_VECTOR_BYTES = 16


def from_lane(puller: Puller, element: Element, kind: ElementType, mask: int) -> Element:
    """Return the element of the lane whose number differs by `mask`."""
    words = to_words(puller.code, [element.text], kind, WORD_BITS)
    moved = [puller.machine.shuffle_xor(word, mask) for word in words]
    (text,) = from_words(puller.code, moved, kind, WORD_BITS, 1)
    return Element(text, 1, puller.code.level)


def parts_at_once(kind: ElementType) -> int:
    """Return how many elements one instruction reads."""
    return _VECTOR_BYTES // kind.itemsize


class WarpTable:
    """Exchanges elements between the warps that hold parts of the same lines.

    `lines` is the layout of the tile without the axis of the lines. `warp_bits` are the bits of
    the warp's number that tell the parts of a line, in the order of the parts. Of lanes and warps
    that have a bit of `copies` set the values are those of others. With `spread` each lane reads
    only some of the parts: these bits of its number, all of them in `copies`, say which.
    """

    def __init__(
        self,
        puller: Puller,
        kinds: Sequence[ElementType],
        lines: LinearLayout,
        warp_bits: Sequence[int],
        copies: tuple[int, int],
        spread: Sequence[int] = (),
    ) -> None:
        self.puller, self.code, self.kinds = puller, puller.code, kinds
        self.lines, self.warp_bits, self.copies = lines, warp_bits, copies
        self.parts, self.spread = 1 << len(warp_bits), spread

    @property
    def _parts_of_lane(self) -> int:
        return self.parts >> len(self.spread)

    def exchange(self, own: Sequence[Sequence[Element]]) -> list[list[list[Element]]]:
        """Give the elements of each register of `lines`, and return those of the parts read."""
        shared = self.puller.shared
        with ExitStack() as stack:
            areas = []
            for kind in self.kinds:
                size = self.parts * kind.itemsize << self.lines.output_bits
                areas.append(shared.reserve(size))
                stack.enter_context(shared.held(areas[-1]))
            for number, area in enumerate(areas):
                for register, elements in enumerate(own):
                    self._write(area, register, elements[number], self.kinds[number])
            shared.barrier()
            found = []
            for register in range(len(own)):
                columns = [
                    self._read(area, register, kind)
                    for area, kind in zip(areas, self.kinds, strict=True)
                ]
                found.append([list(part) for part in zip(*columns, strict=True)])
        return found

    def _address(
        self, area: Span, register: int, kind: ElementType, part: int | None = None
    ) -> str:
        """The parts of a line lie side by side; the own one where `part` is None."""
        item = kind.itemsize
        columns = [c * self.parts * item for c in self.lines.columns_of("lane", "warp")]
        if part is None:
            for number, bit in enumerate(self.warp_bits):
                columns[self.puller.threads.lane_bits + bit] |= item << number
        else:
            for number, bit in enumerate(self.spread):
                columns[bit] = item * self._parts_of_lane << number
        constant = self.lines.packed(register) * self.parts * item + (part or 0) * item
        place = self.puller.threads.offset(columns, constant)
        return self.code.assign(f"getelementptr i8, {SHARED} {area.address}, i32 {place.text}")

    def _write(self, area: Span, register: int, element: Element, kind: ElementType) -> None:
        word = word_size(kind.storage_bits)
        words = to_words(self.code, [element.text], kind, word)
        address = self._address(area, register, kind)
        first = self.puller.threads.has_none_of(*self.copies)
        if first is None:
            store_words(self.code, address, word, words, SHARED)
        else:
            self.puller.machine.masked_shared_store(address, first.text, word, words)

    def _read(self, area: Span, register: int, kind: ElementType) -> list[Element]:
        at_once = min(self._parts_of_lane, parts_at_once(kind))
        texts: list[str] = []
        for part in range(0, self._parts_of_lane, at_once):
            address = self._address(area, register, kind, part)
            texts += load_words(self.code, address, kind, at_once, SHARED)
        return [Element(text, 1, self.code.level) for text in texts]
