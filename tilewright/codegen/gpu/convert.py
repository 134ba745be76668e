"""Moving a tile from one register layout to another, as `plan_conversion` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright.codegen.code import Code, Element
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.shared import SHARED, Shared
from tilewright.codegen.gpu.threads import Threads
from tilewright.codegen.gpu.words import (
    from_words,
    load_words,
    moved_bits,
    moved_type,
    store_words,
    to_words,
    word_size,
)
from tilewright.ir.types import DTYPES, ElementType
from tilewright.layout import Exchange, LinearLayout, Rename, Shuffles, plan_conversion
from tilewright.layout.access import Access, Form, Move
from tilewright.layout.shuffles import Swap

__all__ = ["Staged", "Writer", "convert", "stage"]

_WORD_BITS = 32


class Writer(Protocol):
    """What writing needs: where to, by which instructions, and the shared memory."""

    code: Code
    machine: GpuMachine
    threads: Threads
    shared: Shared


def convert(
    writer: Writer,
    elements: Sequence[Element],
    element: ElementType,
    source: LinearLayout,
    target: LinearLayout,
) -> list[Element]:
    """Return the elements of all registers of `target`."""
    bits = moved_bits(element)
    plan = _plan(writer, element, source, target)
    if isinstance(plan, Rename):
        return [elements[register] for register in plan.registers]
    code, raw = writer.code, _raw(writer, elements, element)
    kind = DTYPES[f"u{bits}"]
    if isinstance(plan, Shuffles):
        moved = _shuffle(writer, plan, raw, kind)
    else:
        moved = _Exchanger(writer, plan, kind).run(raw, target.input_size("register"))
    return [Element(from_words(code, [t], element, bits, 1)[0], 1, code.level) for t in moved]


def _plan(
    writer: Writer, element: ElementType, source: LinearLayout, target: LinearLayout
) -> Rename | Shuffles | Exchange:
    return plan_conversion(
        source,
        target,
        moved_bits(element),
        scratch_bytes=writer.machine.shared_limit,
        stmatrix=writer.machine.has_stmatrix,
        ldmatrix=writer.machine.has_ldmatrix,
    )


def _raw(writer: Writer, elements: Sequence[Element], element: ElementType) -> list[str]:
    bits = moved_bits(element)
    return [to_words(writer.code, [e.text], element, bits)[0] for e in elements]


# -- within warps ---------------------------------------------------------------------------------


def _shuffle(writer: Writer, plan: Shuffles, raw: list[str], kind: ElementType) -> list[str]:
    code, bits = writer.code, plan.element_bits
    values = _swapped(writer, raw, plan.before, kind)
    received = [""] * len(plan.copies)
    for transfer in plan.transfers:
        sent = [values[register] for register in transfer.sources]
        if plan.crosses(transfer):
            words = to_words(code, sent, kind, _WORD_BITS)
            got = [_from_lane(writer, plan, word, transfer.lane) for word in words]
            sent = from_words(code, got, kind, _WORD_BITS, len(sent))
        for register, text in zip(transfer.targets, sent, strict=True):
            received[register] = text
    first = sorted(set(plan.copies))
    kept = _swapped(writer, received, plan.after, kind, first)
    assert bits == kind.primitive_bitwidth
    return [kept[register] for register in plan.copies]


def _from_lane(writer: Writer, plan: Shuffles, word: str, lane: int) -> str:
    if plan.is_butterfly:
        return writer.machine.shuffle_xor(word, lane)
    columns = plan.lane.columns_of("lane", "warp")
    return writer.machine.shuffle_from(word, writer.threads.offset(columns, lane).text)


def _swapped(
    writer: Writer,
    values: list[str],
    swaps: Sequence[Swap],
    kind: ElementType,
    registers: Sequence[int] | None = None,
) -> list[str]:
    """Exchange pairs of registers in some lanes."""
    code, type_ = writer.code, moved_type(kind)
    for swap in swaps:
        flag = _parity(writer, swap)
        values = [
            code.assign(f"select i1 {flag}, {type_} {values[i ^ swap.register]}, {type_} {text}")
            if registers is None or i in registers
            else text
            for i, text in enumerate(values)
        ]
    return values


def _parity(writer: Writer, swap: Swap) -> str:
    """Whether an odd number of the swap's bits are set in the thread's number."""
    lane_bits = writer.machine.warp_size.bit_length() - 1
    mask = swap.lane | swap.warp << lane_bits
    columns = [mask >> bit & 1 for bit in range(mask.bit_length())]
    return writer.code.assign(f"icmp ne i32 {writer.threads.linear(columns).text}, 0")


# -- through shared memory ------------------------------------------------------------------------


class Staged:
    """A tile in shared memory, of which registers are loaded when they are asked for."""

    def __init__(self, exchanger: _Exchanger, element: ElementType) -> None:
        self._exchanger, self._element = exchanger, element
        self._moves = {r: move for move in exchanger.plan.loads.moves for r in move.registers}
        self._loaded: dict[int, Element] = {}

    def __getitem__(self, register: int) -> Element:
        register = self._exchanger.plan.copies[register]
        if register not in self._loaded:
            move, code = self._moves[register], self._exchanger.code
            bits = moved_bits(self._element)
            for number, text in zip(move.registers, self._exchanger.load(move), strict=True):
                (held,) = from_words(code, [text], self._element, bits, 1)
                self._loaded[number] = Element(held, 1, code.level)
        return self._loaded[register]

    def release(self) -> None:
        """End the use of the memory."""
        self._exchanger.writer.shared.release(self._exchanger.span)


def stage(
    writer: Writer,
    elements: Sequence[Element],
    element: ElementType,
    source: LinearLayout,
    target: LinearLayout,
) -> Staged | None:
    """Write a tile to shared memory; None where it gets into `target` in another way."""
    plan = _plan(writer, element, source, target)
    if not isinstance(plan, Exchange) or plan.repetitions > 1:
        return None
    exchanger = _Exchanger(writer, plan, DTYPES[f"u{moved_bits(element)}"])
    writer.shared.hold(exchanger.span)
    exchanger.store(_raw(writer, elements, element))
    return Staged(exchanger, element)


class _Exchanger:
    def __init__(self, writer: Writer, plan: Exchange, kind: ElementType) -> None:
        self.writer, self.plan, self.kind = writer, plan, kind
        self.code, self.machine = writer.code, writer.machine
        self.item_bytes = plan.stores.element_bits // 8
        areas = plan.loads.address.input_size("warp") if plan.is_warp_private else 1
        self.span = writer.shared.reserve(plan.area_bytes * areas)

    def run(self, raw: list[str], count: int) -> list[str]:
        received = [""] * count
        with self.writer.shared.held(self.span):
            for repetition in range(self.plan.repetitions):
                if repetition:
                    self._synchronize()
                self.store(raw, repetition)
                for move in self._moves(self.plan.loads, repetition):
                    for register, text in zip(move.registers, self.load(move), strict=True):
                        received[register] = text
        return [received[register] for register in self.plan.copies]

    def store(self, raw: list[str], repetition: int = 0) -> None:
        """Write a part of the tile, for all to see."""
        for move in self._moves(self.plan.stores, repetition):
            self._store(move, raw)
        self._synchronize()

    def _moves(self, access: Access, repetition: int) -> list[Move]:
        return [move for move in access.moves if move.repetition == repetition]

    def _synchronize(self) -> None:
        if self.plan.is_warp_private:
            self.machine.warp_barrier()
        else:
            self.writer.shared.barrier()

    def _address(self, access: Access, move: Move) -> str:
        """The lane's part, once for all moves, and a constant."""
        xored, added = access.split(move)
        columns = [c * self.item_bytes for c in access.address.columns_of("lane", "warp")]
        if self.plan.is_warp_private:
            lanes = len(access.address.columns_of("lane"))
            for bit in range(len(columns) - lanes):
                columns[lanes + bit] |= self.plan.area_bytes << bit
        place = self.writer.threads.offset(columns, xored * self.item_bytes)
        start = f"getelementptr (i8, ptr addrspace(3) @shared, i32 {self.span.start})"
        base = self.code.assign(f"getelementptr i8, ptr addrspace(3) {start}, i32 {place.text}")
        if not added:
            return base
        constant = added * self.item_bytes
        return self.code.assign(f"getelementptr i8, ptr addrspace(3) {base}, i32 {constant}")

    def _store(self, move: Move, raw: list[str]) -> None:
        access = self.plan.stores
        address = self._address(access, move)
        texts = [raw[register] for register in move.registers]
        if access.form is not Form.VECTOR:
            words = to_words(self.code, texts, self.kind, _WORD_BITS)
            transposed = access.form is Form.TRANSPOSED
            self.machine.store_matrices(address, words, transposed=transposed)
            return
        total = len(texts) * access.element_bits
        word = word_size(total)
        words = to_words(self.code, texts, self.kind, word)
        lane_bits = self.machine.warp_size.bit_length() - 1
        first = self.writer.threads.is_first(*self.plan.copying, lane_bits)
        if first is not None:
            self.machine.masked_shared_store(address, first.text, word, words)
            return
        store_words(self.code, address, word, words, SHARED)

    def load(self, move: Move) -> list[str]:
        """Read the registers of one move."""
        access = self.plan.loads
        address = self._address(access, move)
        if access.form is not Form.VECTOR:
            transposed = access.form is Form.TRANSPOSED
            words = self.machine.load_matrices(address, access.matrices, transposed=transposed)
            return from_words(self.code, words, self.kind, _WORD_BITS, len(move.registers))
        return load_words(self.code, address, self.kind, len(move.registers), SHARED)
