"""Moving a tile from one register layout to another, as `plan_conversion` says."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Element
from tilewright.codegen.gpu.shared_area import LazyRegisters, SharedArea, Writer
from tilewright.codegen.gpu.words import WORD_BITS, from_words, moved_type, to_words
from tilewright.ir.types import DTYPES, ElementType
from tilewright.layout import Exchange, LinearLayout, Rename, Shuffles, plan_conversion
from tilewright.layout.access import Access, Move
from tilewright.layout.shuffles import Swap

__all__ = ["Staged", "convert", "stage"]


def convert(
    writer: Writer,
    elements: Sequence[Element],
    element: ElementType,
    source: LinearLayout,
    target: LinearLayout,
) -> list[Element]:
    """Return the elements of all registers of `target`."""
    bits = element.storage_bits
    plan = _plan(writer, element, source, target)
    if isinstance(plan, Rename):
        return [elements[register] for register in plan.registers]
    code, raw = writer.code, _raw(writer, elements, element)
    kind = DTYPES[f"u{bits}"]
    if isinstance(plan, Shuffles):
        moved = _shuffle(writer, plan, raw, kind)
    else:
        moved = _Exchanger(writer, plan).run(raw, target.input_size("register"))
    return [Element(from_words(code, [t], element, bits, 1)[0], 1, code.level) for t in moved]


def _plan(
    writer: Writer, element: ElementType, source: LinearLayout, target: LinearLayout
) -> Rename | Shuffles | Exchange:
    return plan_conversion(
        source,
        target,
        element.storage_bits,
        scratch_bytes=writer.machine.scratch_limit,
        stmatrix=writer.machine.has_matrix_stores,
        ldmatrix=writer.machine.has_matrix_loads,
    )


def _raw(writer: Writer, elements: Sequence[Element], element: ElementType) -> list[str]:
    bits = element.storage_bits
    return [to_words(writer.code, [e.text], element, bits)[0] for e in elements]


# -- within warps ---------------------------------------------------------------------------------


def _shuffle(writer: Writer, plan: Shuffles, raw: list[str], kind: ElementType) -> list[str]:
    code = writer.code
    values = _swapped(writer, raw, plan.before, kind)
    received = [""] * len(plan.copies)
    for transfer in plan.transfers:
        sent = [values[register] for register in transfer.sources]
        if plan.crosses(transfer):
            words = to_words(code, sent, kind, WORD_BITS)
            got = [_from_lane(writer, plan, word, transfer.lane) for word in words]
            sent = from_words(code, got, kind, WORD_BITS, len(sent))
        for register, text in zip(transfer.targets, sent, strict=True):
            received[register] = text
    first = sorted(set(plan.copies))
    kept = _swapped(writer, received, plan.after, kind, first)
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
    mask = swap.lane | swap.warp << writer.threads.lane_bits
    columns = [mask >> bit & 1 for bit in range(mask.bit_length())]
    return writer.code.assign(f"icmp ne i32 {writer.threads.linear(columns).text}, 0")


# -- through shared memory ------------------------------------------------------------------------


class Staged:
    """A tile in shared memory, of which registers are loaded when they are asked for."""

    def __init__(self, exchanger: _Exchanger, element: ElementType) -> None:
        self._exchanger = exchanger
        plan = exchanger.plan
        self._registers = LazyRegisters(exchanger.area, plan.loads, plan.copies, element)

    def __getitem__(self, register: int) -> Element:
        return self._registers[register]

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
    exchanger = _Exchanger(writer, plan)
    writer.shared.hold(exchanger.span)
    exchanger.store(_raw(writer, elements, element))
    return Staged(exchanger, element)


class _Exchanger:
    def __init__(self, writer: Writer, plan: Exchange) -> None:
        self.writer, self.plan = writer, plan
        areas = plan.loads.address.input_size("warp") if plan.is_warp_private else 1
        self.span = writer.shared.reserve(plan.area_bytes * areas)
        warp_bytes = plan.area_bytes if plan.is_warp_private else 0
        bits = plan.stores.element_bits
        self.area = SharedArea(writer, self.span.address, bits, warp_bytes)

    def run(self, raw: list[str], count: int) -> list[str]:
        received = [""] * count
        with self.writer.shared.held(self.span):
            for repetition in range(self.plan.repetitions):
                if repetition:
                    self._synchronize()
                self.store(raw, repetition)
                for move in self._moves(self.plan.loads, repetition):
                    texts = self.area.load(self.plan.loads, move)
                    for register, text in zip(move.registers, texts, strict=True):
                        received[register] = text
        return [received[register] for register in self.plan.copies]

    def store(self, raw: list[str], repetition: int = 0) -> None:
        """Write a part of the tile, for all to see."""
        first = self.writer.threads.has_none_of(*self.plan.copying)
        flag = first.text if first is not None else None
        for move in self._moves(self.plan.stores, repetition):
            texts = [raw[register] for register in move.registers]
            self.area.store(self.plan.stores, move, texts, flag)
        self._synchronize()

    def _moves(self, access: Access, repetition: int) -> list[Move]:
        return [move for move in access.moves if move.repetition == repetition]

    def _synchronize(self) -> None:
        if self.plan.is_warp_private:
            self.writer.machine.warp_barrier()
        else:
            self.writer.shared.barrier()
