"""Running combinations along an axis.

Each thread holds neighbours and runs over them by itself. What precedes a thread's run is then
found in steps of twice the length: in each, the far one of two groups of lanes learns what the
near one has in all. The same once more between warps, through shared memory. `far` and `near` are
in the order of the scan: a reverse one runs from the end.
"""

from __future__ import annotations

from functools import partial

from tilewright import ops
from tilewright.codegen.code import Element, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.threads import register_offset, thread_columns
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.gpu.warp_table import WarpTable, from_lane
from tilewright.codegen.regions import apply_region
from tilewright.ir.types import DTYPES
from tilewright.layout import distinct_registers
from tilewright.layout.blocked import slice_of

__all__ = ["scan_tile"]

Parts = list[Element]  # one element for each input of the scan, and perhaps a flag


def scan_tile(puller: Puller, placement: Placement, op: ops.Scan) -> None:
    """Write a scan; its results live where it was computed."""
    _Scan(puller, placement, op).write()


class _Scan:
    def __init__(self, puller: Puller, placement: Placement, op: ops.Scan) -> None:
        self.puller, self.op, self.code = puller, op, puller.code
        self.layout = placement.home(op.results[0])
        self._along = partial(register_offset, self.layout, op.axis)
        self.kinds = [value.type.element for value in op.inputs]
        # A reverse scan begins beyond the end of a padded tile: a flag says what is inside.
        self.is_flagged = op.reverse and padded(op.inputs[0].shape) != op.inputs[0].shape
        if self.is_flagged:
            self.kinds.append(DTYPES["i1"])
        self.lane_bits = puller.threads.lane_bits
        columns = thread_columns(self.layout, op.axis)
        self.lane_steps = sorted(
            (column, 1 << bit) for bit, column in enumerate(columns[: self.lane_bits]) if column
        )
        self.warp_steps = sorted(
            (column, bit) for bit, column in enumerate(columns[self.lane_bits :]) if column
        )

    def write(self) -> None:
        lines = self._lines()
        runs = [self._run(registers) for registers in lines]
        totals = [run[-1] for run in runs]
        before = [self._before_lane(total) for total in totals]
        carries: list[tuple[Parts, Element] | None] = [carry for carry, _ in before]
        if self.warp_steps:
            carries = self._before_warp([total for _, total in before], carries)
        elements: dict[int, Parts] = {}
        for registers, run, carry in zip(lines, runs, carries, strict=True):
            for register, parts in zip(registers, run, strict=True):
                elements[register] = parts if carry is None else self._behind(*carry, parts)
        for number, result in enumerate(self.op.results):
            own = {register: parts[number] for register, parts in elements.items()}
            self.puller.residents[result] = Resident.of(self.layout, own)

    def _lines(self) -> list[list[int]]:
        """The registers of each line of a thread, in the order of the scan."""
        rest = self.layout.remove_output(f"dim{self.op.axis}")
        lines: dict[int, list[int]] = {}
        for register in distinct_registers(self.layout):
            lines.setdefault(rest.packed(register), []).append(register)
        slice_ = slice_of(self.layout, self.op.axis)
        order = [slice_.packed(r) for r in range(slice_.input_size("register"))]
        return [sorted(lines[line], key=self._along, reverse=self.op.reverse) for line in order]

    def _run(self, registers: list[int]) -> list[Parts]:
        run = [self._inputs(registers[0])]
        for register in registers[1:]:
            run.append(self._combine(run[-1], self._inputs(register)))
        return run

    def _inputs(self, register: int) -> Parts:
        pulled = [self.puller.pull(v, self.layout, register) for v in self.op.inputs]
        if self.is_flagged:
            inside = self.puller.inside(self.op.inputs[0], self.layout, register)
            pulled.append(inside or Element("true", 1, 0))
        return pulled

    def _combine(self, near: Parts, far: Parts) -> Parts:
        """Combine two groups; what lies beyond the end of the tile comes before all others."""
        count = len(self.op.inputs)
        parts = apply_region(self.puller, self.op.combine, near[:count] + far[:count])
        if self.is_flagged:
            known = near[count]
            parts = [
                self._choose(known, part, alone, number)
                for number, (part, alone) in enumerate(zip(parts, far, strict=False))
            ]
            parts.append(self._either(known, far[count]))
        return parts

    def _choose(self, flag: Element, x: Element, y: Element, number: int) -> Element:
        kind = llvm_type(self.kinds[number])
        text = self.code.assign(f"select i1 {flag.text}, {kind} {x.text}, {kind} {y.text}")
        return Element(text, 1, self.code.level)

    def _choose_all(self, flag: Element, x: Parts, y: Parts) -> Parts:
        return [self._choose(flag, a, b, i) for i, (a, b) in enumerate(zip(x, y, strict=True))]

    def _behind(self, carry: Parts, known: Element, parts: Parts) -> Parts:
        """What comes after a carry, where there is one."""
        return self._choose_all(known, self._combine(carry, parts), parts)

    def _is_far(self, distance: int) -> Element:
        """Whether this thread lies in the later half of a group along the axis."""
        where = self.puller.threads.coordinate(self.layout, self.op.axis, 0)
        bit = self.code.assign(f"and i32 {where.text}, {distance}")
        condition = "eq" if self.op.reverse else "ne"
        return Element(self.code.assign(f"icmp {condition} i32 {bit}, 0"), 1, self.code.level)

    def _either(self, x: Element, y: Element) -> Element:
        return Element(self.code.assign(f"or i1 {x.text}, {y.text}"), 1, self.code.level)

    def _before_lane(self, total: Parts) -> tuple[tuple[Parts, Element] | None, Parts]:
        """What the lanes before this one hold, whether there are any, and what all hold."""
        carry: tuple[Parts, Element] | None = None
        for distance, mask in self.lane_steps:
            other = [
                from_lane(self.puller, part, kind, mask)
                for part, kind in zip(total, self.kinds, strict=True)
            ]
            far = self._is_far(distance)
            carry = self._extended(carry, other, far)
            near_part = self._choose_all(far, other, total)
            far_part = self._choose_all(far, total, other)
            total = self._combine(near_part, far_part)
        return carry, total

    def _extended(
        self, carry: tuple[Parts, Element] | None, before: Parts, takes: Element
    ) -> tuple[Parts, Element]:
        """Put what comes before a carry in front of it, where `takes` holds."""
        if carry is None:
            return before, takes
        parts, known = carry
        longer = self._choose_all(known, self._combine(before, parts), before)
        return self._choose_all(takes, longer, parts), self._either(known, takes)

    def _before_warp(
        self, totals: list[Parts], carries: list[tuple[Parts, Element] | None]
    ) -> list[tuple[Parts, Element] | None]:
        free = self.layout.free_masks()
        lanes = free["lane"]
        for _, mask in self.lane_steps:
            lanes |= mask
        bits = [bit for _, bit in self.warp_steps]
        lines = slice_of(self.layout, self.op.axis)
        table = WarpTable(self.puller, self.kinds, lines, bits, (lanes, free["warp"]))
        found = []
        for parts, carry in zip(table.exchange(totals), carries, strict=True):
            count = len(parts)
            nearest = range(count) if self.op.reverse else reversed(range(count))
            # From the nearest warp before this one to the first, each in front of the rest.
            for part in nearest:
                if part != (0 if self.op.reverse else count - 1):
                    carry = self._extended(carry, parts[part], self._precedes(part))  # noqa: PLW2901
            found.append(carry)
        return found

    def _precedes(self, part: int) -> Element:
        """Whether a part of a line comes before that of this warp."""
        columns = [0] * self.lane_bits + [0] * (1 + max(bit for _, bit in self.warp_steps))
        for number, (_, bit) in enumerate(self.warp_steps):
            columns[self.lane_bits + bit] = 1 << number
        own = self.puller.threads.linear(columns)
        condition = "ugt" if self.op.reverse else "ult"
        text = self.code.assign(f"icmp {condition} i32 {part}, {own.text}")
        return Element(text, 1, self.code.level)
