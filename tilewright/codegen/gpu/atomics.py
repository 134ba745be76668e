"""Atomics: one thread does each, and tells the others that hold the element what was there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright import ops
from tilewright.codegen.atomics import write_rmw
from tilewright.codegen.code import Element, dtype, llvm_type
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.memory import global_address
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.words import (
    from_words,
    load_words,
    to_words,
    word_size,
)
from tilewright.layout import LinearLayout

__all__ = ["AtomicMachine", "Atomics"]

Op = ops.AtomicRmw | ops.AtomicCas
_SCOPES = {"sys": "", "gpu": 'syncscope("device") ', "cta": 'syncscope("block") '}
_ACQUIRES, _RELEASES = {"acquire", "acq_rel"}, {"release", "acq_rel"}
_WITHOUT_ACQUIRE = {"acq_rel": "release", "acquire": "relaxed"}


class AtomicMachine(GpuMachine, Protocol):
    """Writes atomic instructions."""

    def atomic_name(self, kind: str, element: str, bits: int) -> str:
        """Return the name of an update of elements, "" where there is no instruction."""

    def vector_of_atomics(self, name: str, count: int) -> str:
        """Return the name of an update of `count` neighbours at once."""

    def atomic(
        self,
        name: str,
        order: tuple[str, str],
        address: str,
        operands: Sequence[Sequence[str]],
        bits: int,
        flag: str | None,
        *,
        returns: bool,
    ) -> str:
        """Write an update; return what was there before, "" unless it `returns` that.

        `order` is the memory semantics and their scope. Each operand is the words, of `bits`, of
        neighbours.
        Where the flag does not hold, nothing is done and 0 is returned.
        """


@dataclass(frozen=True)
class _Update:
    """What one instruction does: where, with which operands, and whether at all."""

    address: Element
    operands: tuple[tuple[str, ...], ...]
    flag: Element | None

    @property
    def flag_text(self) -> str | None:
        return None if self.flag is None else self.flag.text


class Atomics:
    """Writes the atomics of one function; `has_tensor_loads` says whether it copies blocks."""

    def __init__(
        self,
        puller: Puller,
        placement: Placement,
        machine: AtomicMachine,
        *,
        has_tensor_loads: bool,
    ) -> None:
        self.puller, self.placement, self.machine = puller, placement, machine
        self.has_tensor_loads = has_tensor_loads
        self.code = puller.code

    def write(self, op: Op) -> None:
        """Write an atomic on a scalar or on a tile."""
        layout = self.placement.of_access(op) if op.pointer.shape else self._one_place()
        groups = self.placement.atomic_groups(op, layout)
        first = self.puller.threads.is_first_holder(layout)
        users = self.puller.uses
        is_used = bool(users.users[op] or users.yielded[op])
        # Nothing can follow from a value that nobody sees.
        sem = op.sem if is_used else _WITHOUT_ACQUIRE.get(op.sem, op.sem)
        pulled = [self._update_of(op, layout, group, first) for group in groups]
        # Of many instructions none is ordered by itself, but all of them are together.
        is_alone = len(groups) == 1
        if sem in _RELEASES:
            self.puller.shared.publish()
            if not is_alone:
                self._fence(op, "release")
        self.puller.shared.before_access(op.pointer, writes=True)
        order = (sem if is_alone else "relaxed", op.scope)
        old: dict[int, Element] = {}
        for group, update in zip(groups, pulled, strict=True):
            text = self._write(op, update, order, returns=is_used)
            old[group[0]] = Element(text, 1, self.code.level)
        if not is_used:
            return
        if sem in _ACQUIRES and not is_alone:
            self._fence(op, "acquire")
        if first is not None:
            old = self._told(op, layout, old, first)
        elif sem in _ACQUIRES:
            self.puller.shared.barrier()
        if sem in _ACQUIRES and self.has_tensor_loads:
            # What other blocks have stored before they were met here is copied, too.
            self.machine.fence_async_proxy(everywhere=True)
        if op.pointer.shape:
            self.puller.residents[op] = Resident.of(layout, old)
        else:
            self.puller.scalars[op] = old[0]

    def combine(
        self, op: ops.AtomicRmw, address: Element, value: str, flag: Element | None
    ) -> None:
        """Update the element at an address as an op does, relaxed, where a flag holds."""
        update = _Update(address, ((value,),), flag)
        self._write(op, update, ("relaxed", op.scope), returns=False)

    def _update_of(
        self, op: Op, layout: LinearLayout, group: tuple[int, ...], first: Element | None
    ) -> _Update:
        puller = self.puller
        masked = op.mask if isinstance(op, ops.AtomicRmw) else None
        flag = first
        if masked is not None:
            flag = puller.both(puller.pull(masked, layout, group[0]), flag)
        if op.pointer.shape:
            flag = puller.both(puller.inside(op.pointer, layout, group[0]), flag)
        values = [op.value] if isinstance(op, ops.AtomicRmw) else [op.compare, op.value]
        operands = tuple(tuple(puller.pull(v, layout, r).text for r in group) for v in values)
        return _Update(puller.pull(op.pointer, layout, group[0]), operands, flag)

    # -- instructions -----------------------------------------------------------------------------

    def _write(self, op: Op, update: _Update, order: tuple[str, str], *, returns: bool) -> str:
        """Write the update of one group; return the old element where it is asked for."""
        element = dtype(op.type.element)
        bits = element.primitive_bitwidth
        if isinstance(op, ops.AtomicCas):
            return self._instruction(op, f"cas.b{bits}", update, order, returns=True)
        name = self.machine.atomic_name(str(op.kind), element.short_name, bits)
        if name:
            name = self.machine.vector_of_atomics(name, len(update.operands[0]))
            return self._instruction(op, name, update, order, returns=returns)
        if op.kind in {"min", "max"} and element.is_floating() and bits >= 32:
            return self._extremum(op, update, order)
        return self._loop(op, update, order)

    def _instruction(
        self, op: Op, name: str, update: _Update, order: tuple[str, str], *, returns: bool
    ) -> str:
        kind = op.type.element
        texts = update.operands
        bits = min(32, kind.storage_bits * len(texts[0])) if kind.itemsize < 8 else 64
        words = [to_words(self.code, operand, kind, bits) for operand in texts]
        address = global_address(self.puller, update.address)
        flag = update.flag_text
        old = self.machine.atomic(name, order, address, words, bits, flag, returns=returns)
        return from_words(self.code, [old], kind, bits, 1)[0] if returns else ""

    def _extremum(self, op: ops.AtomicRmw, update: _Update, order: tuple[str, str]) -> str:
        """Compare bits as integers, which order floats of one sign; negative ones backwards.

        Beside a number NaN counts for nothing. Where either is none, a loop takes care of it; one
        in memory may then have been replaced already, which does no harm.
        """
        code, kind = self.code, llvm_type(op.type.element)
        bits = op.type.element.primitive_bitwidth
        is_max = op.kind == "max"
        (value,) = update.operands[0]
        is_number = self.puller.both(
            Element(code.assign(f"fcmp ord {kind} {value}, {value}"), 1, code.level), update.flag
        )
        assert is_number is not None
        word = code.assign(f"bitcast {kind} {value} to i{bits}")
        negative = code.assign(f"icmp slt i{bits} {word}, 0")
        address = global_address(self.puller, update.address)
        names = (f"max.s{bits}", f"min.u{bits}") if is_max else (f"min.s{bits}", f"max.u{bits}")
        positive = code.assign(f"xor i1 {negative}, true")
        found = []
        for name, sign in zip(names, (positive, negative), strict=True):
            flag = code.assign(f"and i1 {sign}, {is_number.text}")
            found.append(
                self.machine.atomic(name, order, address, [[word]], bits, flag, returns=True)
            )
        either = code.assign(f"or i{bits} {found[0]}, {found[1]}")
        old = code.assign(f"bitcast i{bits} {either} to {kind}")
        fine = code.assign(f"fcmp ord {kind} {old}, {value}")
        again = self.puller.both(
            Element(code.assign(f"xor i1 {fine}, true"), 1, code.level), update.flag
        )
        looped = self._loop(op, _Update(update.address, update.operands, again), order)
        return code.assign(f"select i1 {is_number.text}, {kind} {old}, {kind} {looped}")

    def _loop(self, op: ops.AtomicRmw, update: _Update, order: tuple[str, str]) -> str:
        """Compare and swap until nobody came between."""
        code, kind = self.code, llvm_type(op.type.element)

        def exchange(bits: str, address: str, expected: str, new: str) -> tuple[str, str]:
            width = int(bits[1:])
            place = code.assign(f"addrspacecast ptr {address} to ptr addrspace(1)")
            found = self.machine.atomic(
                f"cas.b{width}", order, place, [[expected], [new]], width, None, returns=True
            )
            return found, code.assign(f"icmp eq {bits} {found}, {expected}")

        slot = code.alloca(kind)
        code.line(f"store {kind} zeroinitializer, ptr {slot}")
        with code.guarded(update.flag_text or "true"):
            (value,) = update.operands[0]
            old = write_rmw(code, op, update.address.text, value, sem="relaxed", exchange=exchange)
            code.line(f"store {kind} {old}, ptr {slot}")
        return code.assign(f"load {kind}, ptr {slot}")

    def _fence(self, op: Op, order: str) -> None:
        self.code.line(f"fence {_SCOPES[op.scope]}{order}")

    def _one_place(self) -> LinearLayout:
        """The layout of a scalar: all threads hold copies."""
        warps = self.placement.num_warps
        lanes = LinearLayout.zeros(self.puller.machine.warp_size, "lane", "dim0")
        registers = LinearLayout.zeros(1, "register", "dim0")
        return registers * lanes * LinearLayout.zeros(warps, "warp", "dim0")

    # -- telling the others -----------------------------------------------------------------------

    def _told(
        self, op: Op, layout: LinearLayout, old: dict[int, Element], first: Element
    ) -> dict[int, Element]:
        """Return what was there before for all threads, through shared memory."""
        kind, shared = op.type.element, self.puller.shared
        item = kind.itemsize
        area = shared.reserve(item << layout.output_bits)
        word = word_size(8 * item)
        for register, element in old.items():
            words = to_words(self.code, [element.text], kind, word)
            address = self._address(area, layout, register, item)
            self.puller.machine.masked_shared_store(address, first.text, word, words)
        with shared.held(area):
            shared.barrier()
            told = {}
            for register in old:
                address = self._address(area, layout, register, item)
                (text,) = load_words(self.code, address, kind, 1, SHARED)
                told[register] = Element(text, 1, self.code.level)
        return told

    def _address(self, area: Span, layout: LinearLayout, register: int, item: int) -> str:
        columns = [column * item for column in layout.columns_of("lane", "warp")]
        place = self.puller.threads.offset(columns, layout.packed(register) * item)
        return self.code.assign(f"getelementptr i8, {SHARED} {area.address}, i32 {place.text}")
