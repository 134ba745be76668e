"""Reductions along an axis: in the registers of a thread, between lanes, between warps.

Reductions of one block along the same axis that do not wait for each other are written together,
where the first of them stands: their warps meet once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright import ops
from tilewright.codegen.code import Element, constant_text, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.threads import register_offset, thread_columns
from tilewright.codegen.gpu.warp_table import WarpTable, from_lane, parts_at_once
from tilewright.codegen.regions import apply_region, identity
from tilewright.codegen.uses import defining_op
from tilewright.ir.core import Effect, Op, Value
from tilewright.ir.types import ElementType
from tilewright.layout import LinearLayout, reduction_steps
from tilewright.layout.blocked import slice_of
from tilewright.layout.reduction import Partner
from tilewright.passes.fuse_multiply_adds import is_sum

__all__ = ["Reductions"]

Parts = list[Element]  # one element for each input of the reduction
_CHAINED_STEPS = 3  # sums of up to 8 products are chains: enough of them run side by side
# From so many ops on to combine all that warps have written, lanes share what there is to read.
_SPREAD_OPS = 15


class Reductions:
    """Writes the reductions of one function."""

    def __init__(self, puller: Puller, placement: Placement) -> None:
        self.puller, self.placement = puller, placement
        self._written: set[Op] = set()  # together with an earlier one

    def write(self, op: ops.Reduce) -> None:
        """Write a reduction; its results are scalars, or tiles in a slice of the inputs' layout."""
        if op in self._written:
            self._written.remove(op)
            return
        layout = self.placement.of_reduction(op)
        others = self._companions(op, layout)
        self._written.update(others)
        _write([_Reduction(self.puller, each, layout) for each in (op, *others)])

    def _companions(self, first: ops.Reduce, layout: LinearLayout) -> list[ops.Reduce]:
        """Later reductions over the same elements whose inputs are there already."""
        uses = self.puller.uses
        block, found = uses.block_of[first], []
        for op in block.ops[uses.position[first] + 1 :]:
            if isinstance(op, ops.Reduce):
                alike = (op.axis, op.inputs[0].shape) == (first.axis, first.inputs[0].shape)
                if (
                    alike
                    and self.placement.of_reduction(op) == layout
                    and self._is_ready(op, first)
                ):
                    found.append(op)
            elif Effect.WRITE in op.effects or isinstance(op, ops.For | ops.While | ops.If):
                break
        return found

    def _is_ready(self, op: ops.Reduce, first: Op) -> bool:
        """Whether all that a reduction needs can be computed where an earlier one stands."""
        uses = self.puller.uses
        seen: set[Value] = {*op.combine.params, *(v for o in op.combine.walk() for v in o.results)}
        waiting = [*op.inputs, *(v for inner in op.combine.walk() for v in inner.operands)]
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            made_by = defining_op(value)
            if isinstance(made_by, ops.Full):
                continue
            if uses.is_virtual(value) and not isinstance(made_by, ops.Load):
                waiting += made_by.operands if made_by is not None else ()
                continue
            place = None if made_by is None else uses.place_in(made_by, uses.block_of[first])
            is_later = place is not None and place >= uses.position[first]
            puller = self.puller
            known = (puller.scalars, puller.residents, puller.tiles)
            if is_later or not any(value in there for there in known):
                return False
        return True


def _write(together: Sequence[_Reduction]) -> None:
    """Write reductions over the same elements."""
    first = together[0]
    partial = [reduction.within_warps() for reduction in together]
    if first.warp_steps:
        joint = [[part for parts in line for part in parts] for line in zip(*partial, strict=True)]
        kinds = [value.type.element for each in together for value in each.op.inputs]
        spread = first.spread(kinds, sum(each.combine_ops for each in together))
        exchanged = first.exchange(joint, kinds, spread)
        start = 0
        for number, reduction in enumerate(together):
            end = start + len(reduction.op.inputs)
            partial[number] = [
                reduction.folded([parts[start:end] for parts in line], spread) for line in exchanged
            ]
            start = end
    for reduction, results in zip(together, partial, strict=True):
        reduction.keep(results)


class _Reduction:
    def __init__(self, puller: Puller, op: ops.Reduce, layout: LinearLayout) -> None:
        self.puller, self.op, self.layout = puller, op, layout
        self.code = puller.code
        self.slice = slice_of(layout, op.axis)
        self._along = partial(register_offset, layout, op.axis)
        self.neutral = identity(op.combine)
        self.products = self._products()
        steps = sorted(reduction_steps(layout, op.axis), key=self._distance)
        self.register_steps = [s for s in steps if not s.lane and not s.warp]
        self.lane_steps = [s for s in steps if s.lane and not s.warp]
        self.warp_steps = [s for s in steps if s.warp]

    def _products(self) -> ops.Fma | None:
        """The inputs, if they are products to be summed: see `fuse_multiply_adds`."""
        (products, *more) = self.op.inputs
        size = products.shape[self.op.axis]
        if more or size & size - 1 or not is_sum(self.op.combine):
            return None
        match products:
            case ops.Fma(_, _, ops.Full(value=0.0)):
                return products
        return None

    def _distance(self, step: Partner) -> int:
        """How far apart along the axis the elements are that a step combines."""
        place = {"register": step.register, "lane": step.lane, "warp": step.warp}
        return self.layout(**place)[f"dim{self.op.axis}"]

    def within_warps(self) -> list[Parts]:
        """What each warp has of the lines, for each register of the result."""
        partial = [self._in_thread(register) for register in self._kept_registers()]
        return [self._between_lanes(parts) for parts in partial]

    def keep(self, partial: Sequence[Parts]) -> None:
        """Let these be the results."""
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
            if self.products is not None and step <= _CHAINED_STEPS:
                return [self._sum_of_products(self.products, step, place)]
            if not step:
                return self._inputs(place)
            mask = self.register_steps[step - 1].register
            near, far = sorted((place, place ^ mask), key=self._along)
            parts = total(step - 1, near), total(step - 1, far)
            return self._combine(*parts, self._begins_inside(0, self._along(far)))

        return total(len(self.register_steps), register)

    def _sum_of_products(self, products: ops.Fma, step: int, register: int) -> Element:
        """Sum up by multiply-adds, in a chain."""
        places = [register]
        for done in self.register_steps[:step]:
            places += [place ^ done.register for place in places]
        whole: Element | None = None
        for place in sorted(places, key=self._along):
            x, y, nothing = (self.puller.pull(v, self.layout, place) for v in products.operands)
            whole = self.puller.apply(products, [x, y, whole or nothing])
        assert whole is not None
        return whole

    def _inputs(self, register: int) -> Parts:
        """The elements to reduce; what lies beyond the end of the tile changes nothing."""
        pulled = [self.puller.pull(v, self.layout, register) for v in self.op.inputs]
        inside = self._begins_inside(0, self._along(register))
        if inside is None or self.neutral is None:
            return pulled
        kind = self.op.inputs[0].type.element
        outside = Element(constant_text(self.neutral, kind), 1, 0)
        return [self._choose(inside, pulled[0], outside, kind)]

    def _begins_inside(self, reduced: int, constant: int) -> Element | None:
        """Whether a group of elements begins inside the tile; None where there is no other.

        `reduced` are the bits of lanes and warps along which the group extends, `constant` what it
        is moved by along the axis.
        """
        size = self.op.inputs[0].shape[self.op.axis]
        if size & size - 1 == 0:
            return None
        columns = [
            0 if reduced >> bit & 1 else column
            for bit, column in enumerate(thread_columns(self.layout, self.op.axis))
        ]
        where = self.puller.threads.offset(columns, constant)
        text = self.code.assign(f"icmp ult i32 {where.text}, {size}", where.level)
        return Element(text, 1, where.level)

    def _choose(self, flag: Element, x: Element, y: Element, element: ElementType) -> Element:
        kind, level = llvm_type(element), max(flag.level, x.level, y.level)
        text = self.code.assign(f"select i1 {flag.text}, {kind} {x.text}, {kind} {y.text}", level)
        return Element(text, 1, level)

    def _combine(self, near: Parts, far: Parts, inside: Element | None = None) -> Parts:
        """Combine two groups; the far one may lie beyond the end of the tile."""
        parts = apply_region(self.puller, self.op.combine, near + far)
        if inside is None or self.neutral is not None:
            return parts
        return [
            self._choose(inside, part, own, value.type.element)
            for part, own, value in zip(parts, near, self.op.inputs, strict=True)
        ]

    # -- between lanes ----------------------------------------------------------------------------

    def _between_lanes(self, parts: Parts) -> Parts:
        reduced = 0
        for step in self.lane_steps:
            other = self._from_lanes(parts, step.lane)
            reduced |= step.lane
            inside = self._begins_inside(reduced, self._distance(step))
            in_order = not self.op.commutative or (inside is not None and self.neutral is None)
            near, far = self._ordered(step, parts, other) if in_order else (parts, other)
            parts = self._combine(near, far, inside)
        return parts

    def _from_lanes(self, parts: Parts, mask: int) -> Parts:
        return [
            from_lane(self.puller, part, value.type.element, mask)
            for part, value in zip(parts, self.op.inputs, strict=True)
        ]

    def _ordered(self, step: Partner, own: Parts, other: Parts) -> tuple[Parts, Parts]:
        """Of this lane's elements and its partner's, those that come first along the axis first."""
        where = self.puller.threads.coordinate(self.layout, self.op.axis, 0)
        bit = self.code.assign(f"and i32 {where.text}, {self._distance(step)}", where.level)
        text = self.code.assign(f"icmp eq i32 {bit}, 0", where.level)
        return self._chosen(Element(text, 1, where.level), own, other)

    def _chosen(self, is_near: Element, own: Parts, other: Parts) -> tuple[Parts, Parts]:
        """Two groups, this lane's first if it is the near one."""
        near: Parts = []
        far: Parts = []
        for mine, theirs, value in zip(own, other, self.op.inputs, strict=True):
            near.append(self._choose(is_near, mine, theirs, value.type.element))
            far.append(self._choose(is_near, theirs, mine, value.type.element))
        return near, far

    # -- between warps ----------------------------------------------------------------------------

    @property
    def combine_ops(self) -> int:
        """How many ops combine two groups."""
        return sum(1 for _ in self.op.combine.walk())

    def spread(self, kinds: Sequence[ElementType], combine_ops: int) -> list[int]:
        """The bits of a lane's number that say which parts it reads: as many as one instruction.

        To read many of them in every lane would keep shared memory busy for longer than lanes take
        to combine them, and each thread with combining. All groups have to begin inside the tile.
        """
        size = self.op.inputs[0].shape[self.op.axis]
        if size & size - 1 or ((1 << len(self.warp_steps)) - 1) * combine_ops < _SPREAD_OPS:
            return []
        at_once = min(parts_at_once(kind) for kind in kinds)
        count = len(self.warp_steps) - (at_once.bit_length() - 1)
        lanes = self._copied_lanes()
        free = [bit for bit in range(lanes.bit_length()) if lanes >> bit & 1]
        return free[:count] if 0 < count <= len(free) else []

    def _copied_lanes(self) -> int:
        """The bits of a lane's number that make no difference to what it has of a line."""
        lanes = self.layout.free_masks()["lane"]
        for step in self.lane_steps:
            lanes |= 1 << step.lane.bit_length() - 1
        return lanes

    def exchange(
        self, partial: Sequence[Parts], kinds: Sequence[ElementType], spread: Sequence[int]
    ) -> list[list[Parts]]:
        """Let every warp write what it has, and every thread read what it needs of all warps."""
        table = WarpTable(
            self.puller,
            kinds,
            self.slice,
            [step.warp.bit_length() - 1 for step in self.warp_steps],
            (self._copied_lanes(), self.layout.free_masks()["warp"]),
            spread,
        )
        return table.exchange(partial)

    def folded(self, parts: list[Parts], spread: Sequence[int]) -> Parts:
        """Combine neighbours until one is left: those read, then those of other lanes."""
        lanes = self.puller.machine.warp_size - 1
        steps = self.warp_steps[: len(self.warp_steps) - len(spread)]
        distances = [self._distance(step) for step in steps]
        reduced = lanes | sum(step.warp for step in self.warp_steps) * (lanes + 1)
        for done, distance in enumerate(distances):
            later = distances[done + 1 :]
            merged = []
            for number, (near, far) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
                begin = sum(d for bit, d in enumerate(later) if number >> bit & 1)
                inside = self._begins_inside(reduced, begin + distance)
                merged.append(self._combine(near, far, inside))
            parts = merged
        (whole,) = parts
        for bit in spread:
            other = self._from_lanes(whole, 1 << bit)
            is_near = None if self.op.commutative else self.puller.threads.has_none_of(1 << bit, 0)
            near, far = (whole, other) if is_near is None else self._chosen(is_near, whole, other)
            whole = self._combine(near, far)
        return whole
