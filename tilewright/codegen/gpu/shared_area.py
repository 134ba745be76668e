"""Moving registers to and from a place in shared memory, as a planned access says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol

from tilewright.codegen.code import Code, Element
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.shared import SHARED, Shared
from tilewright.codegen.gpu.threads import Threads
from tilewright.codegen.gpu.words import (
    WORD_BITS,
    from_words,
    load_words,
    store_words,
    to_words,
    word_size,
)
from tilewright.ir.types import DTYPES, ElementType
from tilewright.layout.access import Access, Form, Move

__all__ = ["LazyRegisters", "SharedArea", "Shift", "Writer"]


class Writer(Protocol):
    """What writing needs: where to, by which instructions, and the shared memory."""

    code: Code
    machine: GpuMachine
    threads: Threads
    shared: Shared


class Shift(NamedTuple):
    """A distance in bytes that is computed, an i32, and the bits that may be set in it."""

    text: str
    bits: int


class SharedArea:
    """Shared memory from the address `start` on, for elements of one width.

    With `warp_bytes` each warp has so many bytes of its own, one behind the other. `shift` is xored
    to where each element lies. Elements are moved as unsigned integers of their width.
    """

    def __init__(
        self,
        writer: Writer,
        start: str,
        element_bits: int,
        warp_bytes: int = 0,
        shift: Shift | None = None,
    ) -> None:
        self.writer, self.code, self.machine = writer, writer.code, writer.machine
        self.start, self.warp_bytes, self.shift = start, warp_bytes, shift
        self.kind = DTYPES[f"u{element_bits}"]
        self.item_bytes = element_bits // 8

    def address(self, access: Access, move: Move) -> str:
        """Return where a lane's part of a move lies: its own part, once for all, and a constant."""
        shift_bits = self.shift.bits // self.item_bytes if self.shift is not None else 0
        xored, added = access.split(move, shift_bits)
        columns = [c * self.item_bytes for c in access.address.columns_of("lane", "warp")]
        if self.warp_bytes:
            lanes = len(access.address.columns_of("lane"))
            for bit in range(len(columns) - lanes):
                columns[lanes + bit] |= self.warp_bytes << bit
        place = self.writer.threads.offset(columns, xored * self.item_bytes).text
        if self.shift is not None:
            place = self.code.assign(f"xor i32 {place}, {self.shift.text}")
        base = self.code.assign(f"getelementptr i8, {SHARED} {self.start}, i32 {place}")
        if not added:
            return base
        constant = added * self.item_bytes
        return self.code.assign(f"getelementptr i8, {SHARED} {base}, i32 {constant}")

    def store(self, access: Access, move: Move, texts: Sequence[str], flag: str | None) -> None:
        """Write the registers of one move, by the threads where the flag holds, if there is one."""
        address = self.address(access, move)
        if access.form is not Form.VECTOR:
            words = to_words(self.code, texts, self.kind, WORD_BITS)
            transposed = access.form is Form.TRANSPOSED
            # All lanes of a warp take part: it is a warp that writes, or does not.
            with self.code.guarded(flag) if flag is not None else nullcontext():
                self.machine.store_matrices(address, words, transposed=transposed)
            return
        word = word_size(len(texts) * access.element_bits)
        words = to_words(self.code, texts, self.kind, word)
        if flag is not None:
            self.machine.masked_shared_store(address, flag, word, words)
            return
        store_words(self.code, address, word, words, SHARED)

    def load(self, access: Access, move: Move) -> list[str]:
        """Read the registers of one move."""
        address = self.address(access, move)
        if access.form is not Form.VECTOR:
            transposed = access.form is Form.TRANSPOSED
            words = self.machine.load_matrices(address, access.matrices, transposed=transposed)
            return from_words(self.code, words, self.kind, WORD_BITS, len(move.registers))
        return load_words(self.code, address, self.kind, len(move.registers), SHARED)


class LazyRegisters:
    """A tile in shared memory, of which registers are loaded when they are asked for.

    `copies` says for each register which of the loaded ones holds its element.
    """

    def __init__(
        self, area: SharedArea, access: Access, copies: Sequence[int], element: ElementType
    ) -> None:
        self.area, self.access, self.copies, self.element = area, access, copies, element
        self._moves = {r: move for move in access.moves for r in move.registers}
        self._loaded: dict[int, Element] = {}

    def __getitem__(self, register: int) -> Element:
        register = self.copies[register]
        if register not in self._loaded:
            move, code = self._moves[register], self.area.code
            bits = self.element.storage_bits
            for number, text in zip(move.registers, self.area.load(self.access, move), strict=True):
                (held,) = from_words(code, [text], self.element, bits, 1)
                self._loaded[number] = Element(held, 1, code.level)
        return self._loaded[register]
