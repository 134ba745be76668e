"""Atomics: one thread does each, and tells the others that hold the element what was there."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.atomics import write_cas, write_rmw
from tilewright.codegen.code import Element, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import SHARED, Span
from tilewright.codegen.gpu.words import load_words, moved_bits, to_words, word_size
from tilewright.ir.core import Value
from tilewright.layout import LinearLayout, register_copies

__all__ = ["Atomics"]

Op = ops.AtomicRmw | ops.AtomicCas
_SCOPES = {"sys": "", "gpu": 'syncscope("device") ', "cta": 'syncscope("block") '}


class Atomics:
    """Writes the atomics of one function."""

    def __init__(self, puller: Puller, placement: Placement) -> None:
        self.puller, self.placement = puller, placement
        self.code = puller.code
        self.lane_bits = puller.machine.warp_size.bit_length() - 1

    def write(self, op: Op) -> None:
        """Write an atomic on a scalar or on a tile."""
        layout = self.placement.of_access(op) if op.pointer.shape else self._one_place()
        registers = sorted(set(register_copies(layout)))
        free = layout.free_masks()
        first = self.puller.threads.is_first(free["lane"], free["warp"], self.lane_bits)
        pulled = [self._operands(op, layout, register) for register in registers]
        self._release(op)
        old: dict[int, Element] = {}
        for register, (mask, operands) in zip(registers, pulled, strict=True):
            old[register] = self._guarded(op, self.puller.both(mask, first), operands)
        if op.sem in {"acquire", "acq_rel"}:
            self._fence(op, "acquire")
        users = self.puller.uses
        if first is not None and (users.users[op] or users.yielded[op]):
            old = self._told(op, layout, old, first)
        elif op.sem in {"acquire", "acq_rel"}:
            self.puller.shared.barrier()
        if op.pointer.shape:
            held = tuple(old[register] for register in register_copies(layout))
            self.puller.residents[op] = Resident(layout, held)
        else:
            self.puller.scalars[op] = old[0]

    def _one_place(self) -> LinearLayout:
        """The layout of a scalar: all threads hold copies."""
        warps = self.placement.num_warps
        lanes = LinearLayout.zeros(self.puller.machine.warp_size, "lane", "dim0")
        registers = LinearLayout.zeros(1, "register", "dim0")
        return registers * lanes * LinearLayout.zeros(warps, "warp", "dim0")

    def _operands(
        self, op: Op, layout: LinearLayout, register: int
    ) -> tuple[Element | None, list[str]]:
        """Whether a register takes part, and the operands without the mask."""
        puller = self.puller

        def pull(value: Value) -> Element:
            return puller.pull(value, layout, register)

        mask = pull(op.mask) if isinstance(op, ops.AtomicRmw) and op.mask is not None else None
        if op.pointer.shape:
            mask = puller.both(puller.inside(op.pointer, layout, register), mask)
        masked = op.mask if isinstance(op, ops.AtomicRmw) else None
        return mask, [pull(value).text for value in op.operands if value is not masked]

    def _release(self, op: Op) -> None:
        """What the other threads have written comes before an atomic that releases it."""
        if op.sem in {"release", "acq_rel"}:
            self.puller.shared.publish()
            self._fence(op, "release")
        self.puller.shared.before_access(op.pointer, writes=True)

    def _fence(self, op: Op, order: str) -> None:
        """Order memory by itself: LLVM's atomics for NVIDIA GPUs are relaxed whatever they say."""
        scope = _SCOPES[op.scope]
        self.code.line(f"fence {scope}{order}")

    def _guarded(self, op: Op, flag: Element | None, operands: list[str]) -> Element:
        code, kind = self.code, llvm_type(op.type.element)
        if flag is None:
            return Element(self._instruction(op, operands), 1, code.level)
        slot = code.alloca(kind)
        code.line(f"store {kind} zeroinitializer, ptr {slot}")
        inside, after = code.label("then"), code.label("next")
        code.line(f"br i1 {flag.text}, label %{inside}, label %{after}")
        code.place(inside)
        code.line(f"store {kind} {self._instruction(op, operands)}, ptr {slot}")
        code.line(f"br label %{after}")
        code.place(after)
        return Element(code.assign(f"load {kind}, ptr {slot}"), 1, code.level)

    def _instruction(self, op: Op, operands: list[str]) -> str:
        if isinstance(op, ops.AtomicRmw):
            return write_rmw(self.code, op, *operands, sem="relaxed", exchange=self._exchange)
        return write_cas(self.code, op, *operands, sem="relaxed", exchange=self._exchange)

    def _exchange(self, bits: str, address: str, expected: str, new: str) -> tuple[str, str]:
        place = self.code.assign(f"addrspacecast ptr {address} to ptr addrspace(1)")
        found = self.puller.machine.compare_and_swap_16(place, expected, new)
        return found, self.code.assign(f"icmp eq {bits} {found}, {expected}")

    # -- telling the others -----------------------------------------------------------------------

    def _told(
        self, op: Op, layout: LinearLayout, old: dict[int, Element], first: Element
    ) -> dict[int, Element]:
        """Return what was there before for all threads, through shared memory."""
        kind, shared = op.type.element, self.puller.shared
        item = moved_bits(kind) // 8
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
        start = f"getelementptr (i8, {SHARED} @shared, i32 {area.start})"
        return self.code.assign(f"getelementptr i8, {SHARED} {start}, i32 {place.text}")
