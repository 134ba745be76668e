"""Reductions along an axis: in the registers of a thread, between lanes, between warps."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Element, constant_text, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.threads import register_offset
from tilewright.codegen.gpu.warp_table import WarpTable, from_lane
from tilewright.codegen.regions import apply_region, identity
from tilewright.errors import Unsupported
from tilewright.layout import LinearLayout, reduction_steps
from tilewright.layout.blocked import slice_of
from tilewright.layout.reduction import Partner

__all__ = ["reduce_tile"]

Parts = list[Element]  # one element for each input of the reduction


def reduce_tile(puller: Puller, placement: Placement, op: ops.Reduce) -> None:
    """Write a reduction; its results are scalars, or tiles in a slice of the inputs' layout."""
    layout = placement.of_reduction(op)
    _Reduction(puller, op, layout).write()


class _Reduction:
    def __init__(self, puller: Puller, op: ops.Reduce, layout: LinearLayout) -> None:
        self.puller, self.op, self.layout = puller, op, layout
        self.code = puller.code
        self.slice = slice_of(layout, op.axis)
        steps = sorted(reduction_steps(layout, op.axis), key=self._distance)
        self.register_steps = [s for s in steps if not s.lane and not s.warp]
        self.lane_steps = [s for s in steps if s.lane and not s.warp]
        self.warp_steps = [s for s in steps if s.warp]

    def _distance(self, step: Partner) -> int:
        """How far apart along the axis the elements are that a step combines."""
        place = {"register": step.register, "lane": step.lane, "warp": step.warp}
        return self.layout(**place)[f"dim{self.op.axis}"]

    def write(self) -> None:
        registers = self._kept_registers()
        partial = [self._in_thread(register) for register in registers]
        partial = [self._between_lanes(parts) for parts in partial]
        if self.warp_steps:
            partial = self._between_warps(partial)
        for number, result in enumerate(self.op.results):
            elements = tuple(parts[number] for parts in partial)
            if result.shape:
                self.puller.residents[result] = Resident(self.slice, elements)
            else:
                self.puller.scalars[result] = elements[0]

    def _kept_registers(self) -> list[int]:
        """For each register of the result one that holds an element of its line."""
        lines = self.layout.remove_output(f"dim{self.op.axis}")
        registers = range(self.layout.input_size("register"))
        first: dict[int, int] = {}
        for register in registers:
            first.setdefault(lines.packed(register), register)
        names = self.slice.output_names
        kept = []
        for register in range(self.slice.input_size("register")):
            place = self.slice(register=register)
            flat = [place[name] for name in names]
            packed = shift = 0
            for value, dimension in zip(flat, lines.outputs, strict=True):
                packed |= value << shift
                shift += dimension.bits
            kept.append(first[packed])
        return kept

    # -- in a thread ------------------------------------------------------------------------------

    def _in_thread(self, register: int) -> Parts:
        """Halves first, so that few partial results are alive and chains are short."""

        def total(step: int, place: int) -> Parts:
            if not step:
                return self._inputs(place)
            mask = self.register_steps[step - 1].register
            near, far = sorted((place, place ^ mask), key=self._along)
            return self._combine(total(step - 1, near), total(step - 1, far))

        return total(len(self.register_steps), register)

    def _along(self, register: int) -> int:
        return register_offset(self.layout, self.op.axis, register)

    def _inputs(self, register: int) -> Parts:
        """The elements to reduce; what lies beyond the end of the tile changes nothing."""
        pulled = [self.puller.pull(v, self.layout, register) for v in self.op.inputs]
        inside = self._inside(register)
        if inside is None:
            return pulled
        neutral = identity(self.op.combine)
        if neutral is None:
            raise Unsupported(
                f"reducing an axis of {self.op.inputs[0].shape[self.op.axis]} elements with this "
                "combine function on a GPU",
                location=self.op.location,
                hint="let the size be a power of two",
            )
        kind = self.op.inputs[0].type.element
        level = max(inside.level, pulled[0].level)
        text = self.code.assign(
            f"select i1 {inside.text}, {llvm_type(kind)} {pulled[0].text}, "
            f"{llvm_type(kind)} {constant_text(neutral, kind)}",
            level,
        )
        return [Element(text, 1, level)]

    def _inside(self, register: int) -> Element | None:
        size = self.op.inputs[0].shape[self.op.axis]
        if size & size - 1 == 0:
            return None
        where = self.puller.threads.coordinate(self.layout, self.op.axis, register)
        return Element(
            self.code.assign(f"icmp ult i32 {where.text}, {size}", where.level), 1, where.level
        )

    def _combine(self, near: Parts, far: Parts) -> Parts:
        return apply_region(self.puller, self.op.combine, near + far)

    # -- between lanes ----------------------------------------------------------------------------

    def _between_lanes(self, parts: Parts) -> Parts:
        for step in self.lane_steps:
            other = [
                from_lane(self.puller, part, value.type.element, step.lane)
                for part, value in zip(parts, self.op.inputs, strict=True)
            ]
            near, far = (parts, other) if self.op.commutative else self._ordered(step, parts, other)
            parts = self._combine(near, far)
        return parts

    def _ordered(self, step: Partner, own: Parts, other: Parts) -> tuple[Parts, Parts]:
        """Of this lane's elements and its partner's, those that come first along the axis first."""
        where = self.puller.threads.coordinate(self.layout, self.op.axis, 0)
        bit = self.code.assign(f"and i32 {where.text}, {self._distance(step)}", where.level)
        is_far = self.code.assign(f"icmp ne i32 {bit}, 0", where.level)
        near: Parts = []
        far: Parts = []
        for mine, theirs, value in zip(own, other, self.op.inputs, strict=True):
            kind = llvm_type(value.type.element)
            for into, x, y in ((near, theirs, mine), (far, mine, theirs)):
                text = self.code.assign(f"select i1 {is_far}, {kind} {x.text}, {kind} {y.text}")
                into.append(Element(text, 1, self.code.level))
        return near, far

    # -- between warps ----------------------------------------------------------------------------

    def _between_warps(self, partial: list[Parts]) -> list[Parts]:
        """Every warp writes what it has, and every thread combines what it needs of all warps."""
        free = self.layout.free_masks()
        lanes = free["lane"]
        for step in self.lane_steps:
            lanes |= 1 << step.lane.bit_length() - 1
        table = WarpTable(
            self.puller,
            [value.type.element for value in self.op.inputs],
            self.slice,
            [step.warp.bit_length() - 1 for step in self.warp_steps],
            (lanes, free["warp"]),
        )
        return [self._folded(parts) for parts in table.exchange(partial)]

    def _folded(self, parts: list[Parts]) -> Parts:
        """Combine neighbours until one is left."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self._combine(near, far) for near, far in pairs]
        return parts[0]
