"""A tile in shared memory, in row-major order, to be read at places that are computed.

What no layout can say goes this way: gathers, counting, sorting, and moves between tiles whose
sizes are no powers of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from tilewright.codegen.code import Code, Element
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.shared import SHARED, Shared, Span
from tilewright.codegen.gpu.threads import Threads
from tilewright.codegen.gpu.words import (
    load_words,
    store_words,
    to_words,
    word_size,
)
from tilewright.ir.core import Value
from tilewright.ir.types import ElementType
from tilewright.layout import LinearLayout, distinct_registers

__all__ = ["TileTable", "Tiles", "linear_position"]


class Tiles(Protocol):
    """Where tiles come from, and where code goes."""

    code: Code
    machine: GpuMachine
    threads: Threads
    shared: Shared

    def pull(self, value: Value, layout: LinearLayout, register: int) -> Element:
        """Return an element of a tile."""

    def inside(self, value: Value, layout: LinearLayout, register: int) -> Element | None:
        """Return whether a register lies in a tile; None where it surely does."""

    def both(self, x: Element | None, y: Element | None) -> Element | None:
        """Return whether two conditions hold; None stands for true."""


def linear_position(code: Code, coordinates: Sequence[Element], shape: Sequence[int]) -> Element:
    """Return the number of an element in row-major order."""
    total = Element("0", 1, 0)
    for coordinate, size in zip(coordinates, shape, strict=True):
        level = max(total.level, coordinate.level)
        text = coordinate.text
        if total.text != "0":
            scaled = code.assign(f"mul nuw nsw i32 {total.text}, {size}", total.level)
            text = code.assign(f"add nuw nsw i32 {scaled}, {coordinate.text}", level)
        total = Element(text, 1, level)
    return total


class TileTable:
    """Room for `count` elements of one type, inside a `with` statement."""

    def __init__(self, tiles: Tiles, element: ElementType, count: int) -> None:
        self.tiles, self.code, self.element = tiles, tiles.code, element
        self.item = element.itemsize
        self.span: Span = tiles.shared.reserve(self.item * count)

    def __enter__(self) -> Self:
        self.tiles.shared.hold(self.span)
        return self

    def __exit__(self, *_: object) -> None:
        self.tiles.shared.release(self.span)

    def publish(self) -> None:
        """Let all threads read what any has written."""
        self.tiles.shared.barrier()

    def address(self, position: Element) -> str:
        """Return the address of an element."""
        offset = self.code.assign(f"mul nuw nsw i32 {position.text}, {self.item}")
        return self.code.assign(f"getelementptr i8, {SHARED} {self.span.address}, i32 {offset}")

    def write(self, position: Element, element: Element, flag: Element | None) -> None:
        """Write an element where the flag holds."""
        word = word_size(8 * self.item)
        words = to_words(self.code, [element.text], self.element, word)
        address = self.address(position)
        if flag is None:
            store_words(self.code, address, word, words, SHARED)
        else:
            self.tiles.machine.masked_shared_store(address, flag.text, word, words)

    def read(self, position: Element) -> Element:
        """Return the element at a position, which must be in the table."""
        (text,) = load_words(self.code, self.address(position), self.element, 1, SHARED)
        return Element(text, 1, self.code.level)

    def fill(
        self,
        value: Value,
        layout: LinearLayout,
        shape: Sequence[int] = (),
        offset: Sequence[int] = (),
    ) -> None:
        """Write all of a tile, or let it be a part of a tile of `shape` from `offset` on."""
        tiles = self.tiles
        first = tiles.threads.is_first_holder(layout)
        for register in distinct_registers(layout):
            element = tiles.pull(value, layout, register)
            place = coordinates(tiles, layout, register, offset or [0] * len(value.shape))
            position = linear_position(self.code, place, shape or value.shape)
            flag = tiles.both(tiles.inside(value, layout, register), first)
            self.write(position, element, flag)


def coordinates(
    tiles: Tiles, layout: LinearLayout, register: int, offset: Sequence[int]
) -> list[Element]:
    """Return the place of a register, moved by an offset."""
    found = []
    for axis, distance in enumerate(offset):
        where = tiles.threads.coordinate(layout, axis, register)
        if distance:
            text = tiles.code.assign(f"add nuw nsw i32 {where.text}, {distance}", where.level)
            where = Element(text, 1, where.level)
        found.append(where)
    return found
