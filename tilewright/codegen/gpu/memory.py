"""Loads and stores of tiles and scalars in the user's memory.

A tile is moved in vectors, up to 16 bytes an instruction. Lanes that are masked out touch no
memory: an instruction carries the mask as its predicate, so there are no branches.
"""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Element, constant_text
from tilewright.codegen.gpu.machine import CopyMachine
from tilewright.codegen.gpu.placement import Access, Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import SHARED
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.gpu.tile_table import TileTable
from tilewright.codegen.gpu.words import (
    from_words,
    load_words,
    store_words,
    to_words,
    word_size,
)
from tilewright.layout import (
    LinearLayout,
    memory_vectors,
)

__all__ = ["GlobalMemory", "global_address"]

_GLOBAL = "ptr addrspace(1)"


def global_address(puller: Puller, address: Element) -> str:
    """Return an address as one in the memory of the device."""
    return puller.code.assign(f"addrspacecast ptr {address.text} to {_GLOBAL}", address.level)


def _hint(op: ops.Load | ops.Store) -> str:
    """What the user says of the caches; of a volatile access nothing counts."""
    if isinstance(op, ops.Load) and op.volatile:
        return ""
    return op.cache_modifier or op.eviction_policy


class GlobalMemory:
    """Writes the accesses of one function."""

    def __init__(self, puller: Puller, placement: Placement, machine: CopyMachine) -> None:
        self.puller, self.placement, self.machine = puller, placement, machine
        self.code = puller.code

    # -- tiles ------------------------------------------------------------------------------------

    def load(self, op: ops.Load) -> None:
        """Load a tile into registers of its own."""
        puller = self.puller
        layout = self.placement.of_access(op)
        puller.shared.before_access(op.pointer, writes=op.volatile)
        elements: dict[int, Element] = {}
        for group in self._groups(op, layout):
            for register, text in zip(group, self._load_group(op, layout, group), strict=True):
                elements[register] = Element(text, 1, self.code.level)
        puller.residents[op] = Resident.of(layout, elements)

    def copy(self, op: ops.Load, tile: SharedTile) -> None:
        """Start copying the tile of a load to shared memory; zeros arrive where it is masked."""
        puller, memory = self.puller, tile.memory
        layout = self.placement.of_access(op)
        puller.shared.before_access(op.pointer, writes=False)
        item_bytes = memory.element_bits // 8
        offsets = layout.relative_to(memory.layout)
        columns = [c * item_bytes for c in offsets.columns_of("lane", "warp")]
        for group in self._groups(op, layout):
            constant = offsets(register=group[0])["offset"] * item_bytes
            place = puller.threads.offset(columns, constant)
            to = self.code.assign(f"getelementptr i8, {SHARED} {tile.start}, i32 {place.text}")
            address, mask = self._place(op, layout, group)
            flag = None if mask is None else mask.text
            self.machine.copy_to_shared(to, address, len(group) * item_bytes, flag)

    def store(self, op: ops.Store) -> None:
        """Store a tile; of places that hold the same element one stores it."""
        puller = self.puller
        layout = self.placement.of_access(op)
        first = puller.threads.is_first_holder(layout)
        groups = self._groups(op, layout)
        pulled = [
            ([puller.pull(op.value, layout, r).text for r in group], self._place(op, layout, group))
            for group in groups
        ]
        puller.shared.before_access(op.pointer, writes=True)
        for texts, (address, mask) in pulled:
            self._store_words(op, texts, address, puller.both(mask, first))

    def _groups(self, op: Access, layout: LinearLayout) -> tuple[tuple[int, ...], ...]:
        """The registers that one instruction moves."""
        widths = self.placement.widths_of_access(op)
        axis = max(range(len(widths)), key=lambda a: widths[a])
        return memory_vectors(layout, axis, widths[axis])

    def _place(
        self, op: ops.Load | ops.Store, layout: LinearLayout, group: tuple[int, ...]
    ) -> tuple[str, Element | None]:
        """The address of a group, and whether it takes part."""
        puller = self.puller
        address = global_address(puller, puller.pull(op.pointer, layout, group[0]))
        mask = puller.inside(op.pointer, layout, group[0])
        if op.mask is not None:
            mask = puller.both(mask, puller.pull(op.mask, layout, group[0]))
        return address, mask

    def _load_group(self, op: ops.Load, layout: LinearLayout, group: tuple[int, ...]) -> list[str]:
        others: list[Element] = []
        if op.other is not None:
            others = [self.puller.pull(op.other, layout, register) for register in group]
        return self._load_words(op, len(group), *self._place(op, layout, group), others)

    def _load_words(
        self,
        op: ops.Load,
        count: int,
        address: str,
        mask: Element | None,
        others: list[Element],
    ) -> list[str]:
        code, element, hint = self.code, op.type.element, _hint(op)
        if mask is None and not hint:
            flags = "volatile " if op.volatile else ""
            return load_words(code, address, element, count, _GLOBAL, flags)
        total = count * element.storage_bits
        word = word_size(total)
        texts = [e.text for e in others] or [constant_text(0, element)] * count
        instead = to_words(code, texts, element, word)
        flag = "true" if mask is None else mask.text
        words = self.puller.machine.masked_load(address, flag, word, instead, hint)
        return from_words(code, words, element, word, count)

    def _store_words(
        self, op: ops.Store, texts: list[str], address: str, mask: Element | None
    ) -> None:
        element, hint = op.value.type.element, _hint(op)
        word = word_size(len(texts) * element.storage_bits)
        words = to_words(self.code, texts, element, word)
        if mask is None and not hint:
            store_words(self.code, address, word, words, _GLOBAL)
        else:
            flag = "true" if mask is None else mask.text
            self.puller.machine.masked_store(address, flag, word, words, hint)

    # -- scalars ----------------------------------------------------------------------------------

    def load_scalar(self, op: ops.Load) -> None:
        """Load a scalar, which all threads then have.

        A volatile one may change meanwhile: all take what the first thread has seen, so that they
        go the same way.
        """
        puller = self.puller
        puller.shared.before_access(op.pointer, writes=op.volatile)
        address = global_address(puller, puller.scalar(op.pointer))
        mask = None if op.mask is None else puller.scalar(op.mask)
        others = [] if op.other is None else [puller.scalar(op.other)]
        (text,) = self._load_words(op, 1, address, mask, others)
        loaded = Element(text, 1, self.code.level)
        puller.scalars[op] = self._agreed(op, loaded) if op.volatile else loaded

    def copy_scalar(self, op: ops.Load, to: str) -> None:
        """Start copying a scalar to shared memory: one thread does; zero arrives if masked."""
        puller = self.puller
        puller.shared.before_access(op.pointer, writes=False)
        address = global_address(puller, puller.scalar(op.pointer))
        mask = None if op.mask is None else puller.scalar(op.mask).text
        size = op.type.element.itemsize
        self.machine.copy_by_one(to, address, size, mask, puller.is_first_thread().text)

    def _agreed(self, op: ops.Load, own: Element) -> Element:
        place = Element("0", 1, 0)
        with TileTable(self.puller, op.type.element, 1) as table:
            table.write(place, own, self.puller.is_first_thread())
            table.publish()
            return table.read(place)

    def store_scalar(self, op: ops.Store) -> None:
        """Store a scalar: one thread does."""
        puller = self.puller
        puller.shared.before_access(op.pointer, writes=True)
        address = global_address(puller, puller.scalar(op.pointer))
        mask = None if op.mask is None else puller.scalar(op.mask)
        flag = puller.both(mask, puller.is_first_thread())
        self._store_words(op, [puller.scalar(op.value).text], address, flag)
