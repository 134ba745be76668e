"""Choosing layouts: where the tiles live that are more than recipes.

Accesses to memory get blocked layouts. Along the axis where addresses are consecutive each thread
holds as many elements as one instruction moves; lanes go along that axis next, warps along the
others, so that a row is reduced within a warp where it can be. Accesses of one shape and order
share a layout, whatever the size of their elements: then values meet without moving.

Everything else follows: a reduction leaves a slice, a product has the layout of its accumulator,
and what a loop carries lives where the loop computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Protocol

from tilewright import ops
from tilewright.codegen.gpu.products import ProductPlan
from tilewright.codegen.gpu.threads import thread_columns
from tilewright.codegen.gpu.views import (
    operand_layout,
    padded,
    result_layout,
    split_layout,
    without,
)
from tilewright.codegen.uses import Uses, defining_op, pointer_root
from tilewright.ir.core import Effect, Function, Op, Param, Value
from tilewright.layout import LinearLayout, contiguous_elements, memory_vectors
from tilewright.layout.blocked import blocked, slice_of
from tilewright.ops.memory import pointee
from tilewright.passes.axis_info import AxisInfo

__all__ = ["Access", "Architecture", "Placement", "is_apart", "written_by"]

_VECTOR_BYTES = 16
Access = ops.Load | ops.Store | ops.AtomicRmw | ops.AtomicCas


def _access_width(facts: AxisInfo, op: Access, axis: int, most: int | None = None) -> int:
    """Return how many consecutive elements along `axis` one instruction may move, up to `most`."""
    itemsize = pointee(op, op.pointer).itemsize
    if most is None:
        most = _VECTOR_BYTES // itemsize
    along = facts.axes(op.pointer)[axis]
    size = op.pointer.shape[axis]
    run = along.contiguity if along.contiguity < size else padded((size,))[0]
    width = min(run & -run, max(1, along.divisibility // itemsize), most)
    if size & size - 1:  # the end of the tile must not cut a vector
        width = min(width, size & -size)
    mask = None if isinstance(op, ops.AtomicCas) else op.mask
    if mask is not None:
        constancy = facts.constancy(mask, axis)
        if constancy < size:
            width = min(width, constancy & -constancy)
    return max(1, width)


def written_by(op: Op) -> Iterator[Value]:
    """Yield the addresses that an op writes to, regions left out."""
    if isinstance(op, ops.Store | ops.AtomicRmw | ops.AtomicCas):
        yield op.pointer
    elif isinstance(op, ops.DescriptorOp) and Effect.WRITE in op.effects:
        yield op.base


def is_apart(pointer: Value, others: Iterable[Value]) -> bool:
    """Whether a pointer is surely to another array than all others."""
    root = pointer_root(pointer)
    roots = [pointer_root(other) for other in others]
    return not roots or (root is not None and all(o is not None and o is not root for o in roots))


class Architecture(Protocol):
    """What layouts depend on: `copies_rows` says whether one thread can ask for a row of bytes."""

    warp_size: int
    copies_rows: bool

    def most_summed(self, element: str) -> int:
        """Return how many neighbours of a type one atomic adds to, where nobody reads them."""

    def product_of(self, op: ops.Dot, num_warps: int, *, chained: bool, deep: bool) -> ProductPlan:
        """Return how a product is computed on so many warps.

        `chained` products keep whole rows in a warp, so that a row that one leaves is what the next
        one takes. The operand B of `deep` ones is loaded along k.
        """


class Placement:
    """The layouts of one function's tiles."""

    def __init__(
        self,
        function: Function,
        facts: AxisInfo,
        uses: Uses,
        architecture: Architecture,
        num_warps: int,
    ) -> None:
        self.facts, self.uses = facts, uses
        self.architecture, self.num_warps = architecture, num_warps
        self._homes: dict[Value, LinearLayout] = {}
        self._products: dict[ops.Dot, ProductPlan] = {}
        self._open: set[Value] = set()  # what is being searched for
        self._without: set[Value] = set()  # what this search has found nothing for
        self._carriers: dict[Value, tuple[Op, int]] = {}
        self._per_thread: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._written = [pointer for op in function.body.walk() for pointer in written_by(op)]
        for op in function.body.walk():
            self._note(op)

    def _note(self, op: Op) -> None:
        if isinstance(op, ops.For | ops.While):
            skipped = 1 if isinstance(op, ops.For) else 0
            for region in op.regions:
                for i, param in enumerate(region.params[skipped:]):
                    self._carriers[param] = op, i
        if isinstance(op, Access) and op.pointer.shape:
            key = padded(op.pointer.shape), self.order_of_access(op)
            width = _access_width(self.facts, op, key[1][0], self._most_at_once(op))
            self._per_thread[key] = max(self._per_thread.get(key, 1), width)

    # -- accesses ---------------------------------------------------------------------------------

    def order_of_access(self, op: Access) -> tuple[int, ...]:
        """The axes, those along which more addresses follow each other first."""
        axes = range(len(op.pointer.shape))
        runs = self.facts.axes(op.pointer)
        return tuple(sorted(axes, key=lambda axis: (-runs[axis].contiguity, -axis)))

    def of_access(self, op: Access) -> LinearLayout:
        """Return the layout in which an access is made."""
        shape, order = padded(op.pointer.shape), self.order_of_access(op)
        return self.blocked(shape, order, self._per_thread[shape, order])

    def widths_of_access(self, op: Access) -> list[int]:
        """Return how many consecutive elements along each axis one instruction moves."""
        layout, axes = self.of_access(op), range(len(op.pointer.shape))
        return [min(_access_width(self.facts, op, a), contiguous_elements(layout, a)) for a in axes]

    def blocked(
        self, shape: tuple[int, ...], order: tuple[int, ...], per_thread: int = 1
    ) -> LinearLayout:
        """Return a layout with `per_thread` neighbours along `order[0]` in each thread."""
        lanes = self.architecture.warp_size
        threads = lanes * self.num_warps
        sizes, lane_sizes, warp_sizes = ([1] * len(shape) for _ in range(3))
        first = order[0]
        sizes[first] = min(per_thread, shape[first], max(1, prod(shape) // threads))
        for axis in order:
            lane_sizes[axis] = min(lanes, max(1, shape[axis] // sizes[axis]))
            lanes //= lane_sizes[axis]
        lane_sizes[order[-1]] *= lanes
        warps = self.num_warps
        for axis in reversed(order):
            covered = sizes[axis] * lane_sizes[axis]
            warp_sizes[axis] = min(warps, max(1, shape[axis] // covered))
            warps //= warp_sizes[axis]
        warp_sizes[order[-1]] *= warps
        return blocked(shape, sizes, lane_sizes, warp_sizes, order)

    def _most_at_once(self, op: Access) -> int | None:
        """How many elements an instruction may move; of atomics, only sums that nobody reads."""
        if not isinstance(op, ops.AtomicRmw | ops.AtomicCas):
            return None
        is_sum = isinstance(op, ops.AtomicRmw) and op.kind == "add"
        if not is_sum or self.uses.users[op] or self.uses.yielded[op]:
            return 1
        return self.architecture.most_summed(getattr(op.type.element, "name", ""))

    def atomic_groups(
        self, op: ops.AtomicRmw | ops.AtomicCas, layout: LinearLayout
    ) -> tuple[tuple[int, ...], ...]:
        """Return the registers of neighbours that one instruction updates."""
        if not op.pointer.shape:
            return ((0,),)
        axis, most = self.order_of_access(op)[0], self._most_at_once(op)
        width = min(_access_width(self.facts, op, axis, most), contiguous_elements(layout, axis))
        return memory_vectors(layout, axis, width)

    def is_row(self, op: ops.Load) -> bool:
        """Whether one thread can ask for all of a load: 16 bytes divide where it begins and ends.

        Such copies see what other kernels have written, not what this one writes.
        """
        if (
            not self.architecture.copies_rows
            or op.volatile
            or op.mask is not None
            or len(op.shape) != 1
        ):
            return False
        (size,) = op.shape
        along = self.facts.axes(op.pointer)[0]
        whole = along.contiguity >= size and padded(op.shape) == op.shape
        size_bytes = size * pointee(op, op.pointer).itemsize
        aligned = not along.divisibility % _VECTOR_BYTES and not size_bytes % _VECTOR_BYTES
        return whole and aligned and is_apart(op.pointer, self._written)

    # -- values -----------------------------------------------------------------------------------

    def home(self, value: Value) -> LinearLayout:
        """Return where a tile lives that is more than a recipe."""
        if isinstance(value, Param):
            op, number = self._carriers[value]
            return self.home(op.results[number])
        if value not in self._homes:
            found = self._find_home(value) or self._beside(value)
            self._homes[value] = found or self._default(value)
        return self._homes[value]

    def _beside(self, value: Value) -> LinearLayout | None:
        """Where the tiles are that a loop or branch hands on together with an indifferent one."""
        op = defining_op(value)
        if op is None or not _is_handed_on(value):
            return None
        others = (r for r in op.results if r is not value and r.shape == value.shape)
        return next(filter(None, map(self._find_home, others)), None)

    def of_elements(self, value: Value) -> LinearLayout:
        """Return where all elements of a tile are best computed."""
        found = self._wanted(value) or self._moved(value) or self._of_indifferent(value)
        return found or self._default(value)

    def _of_indifferent(self, value: Value) -> LinearLayout | None:
        """Where a tile is that a loop or branch hands on, if only such are what `value` is of."""
        if self._open:
            return None
        leaves = (leaf for leaf, same_index in self.uses.leaves((value,)) if same_index)
        alike = (leaf for leaf in leaves if leaf.shape == value.shape and leaf.shape)
        carried = (leaf for leaf in alike if _is_handed_on(leaf))
        return next(map(self.home, carried), None)

    def _moved(self, value: Value) -> LinearLayout | None:
        """Where the elements of a tile are that other tiles' elements become by moving only."""
        waiting, seen = [value], {value}
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if isinstance(op, ops.ExpandDims) and len(op.x.shape) > 1:
                return result_layout(op, self.of_elements(op.x))
            if isinstance(op, ops.Permute | ops.Reshape | ops.Split) and op.x.shape:
                # What lies beyond the ends of padded tiles would come between.
                if padded(op.x.shape) == op.x.shape and padded(value.shape) == value.shape:
                    return result_layout(op, self.of_elements(op.x))
            elif isinstance(op, ops.Join) and op.x.shape:
                return split_layout(self.of_elements(op.x))
            elif op is not None and self.uses.is_virtual(value):
                alike = [v for v in op.operands if v.shape == value.shape and v not in seen]
                seen.update(alike)
                waiting += reversed(alike)
        return None

    def in_every_thread(self, value: Value) -> LinearLayout:
        """Return where each thread has all elements of a small tile, in the order of registers."""
        shape = padded(value.shape)
        ones = (1,) * (len(shape) - 1)
        lanes, warps = (self.architecture.warp_size, *ones), (self.num_warps, *ones)
        return blocked(shape, shape, lanes, warps, tuple(reversed(range(len(shape)))))

    def order_of_elements(self, value: Value) -> tuple[int, ...]:
        """Return the axes of a tile, those along which its threads hold more elements first."""
        layout = self.of_elements(value)
        axes = range(len(value.shape))
        runs = [contiguous_elements(layout, axis) for axis in axes]
        return tuple(sorted(axes, key=lambda axis: (-runs[axis], -axis)))

    def of_reduction(self, op: ops.Reduce) -> LinearLayout:
        """Return where the inputs of a reduction are combined.

        A function that is not commutative needs the elements of a line in order: neighbours in the
        registers of a thread, then between lanes, then between warps.
        """
        layout = self.of_elements(op.inputs[0])
        if op.commutative or _keeps_order(layout, op.axis):
            return layout
        return self._in_order(op.inputs[0], op.axis)

    def _of_scan(self, op: ops.Scan) -> LinearLayout:
        layout = self.of_elements(op.inputs[0])
        return layout if _keeps_order(layout, op.axis) else self._in_order(op.inputs[0], op.axis)

    def _in_order(self, value: Value, axis: int) -> LinearLayout:
        """A layout in which each thread holds as many neighbours along an axis as there are."""
        shape = padded(value.shape)
        others = (other for other in reversed(range(len(shape))) if other != axis)
        return self.blocked(shape, (axis, *others), shape[axis])

    def _default(self, value: Value) -> LinearLayout:
        shape = padded(value.shape)
        return self.blocked(shape, tuple(reversed(range(len(shape)))))

    def _find_home(self, value: Value) -> LinearLayout | None:
        """Return where a tile has to live; None for one that may live where others do."""
        if isinstance(value, Param):
            return self._carried(*self._carriers[value])
        op = defining_op(value)
        match op:
            case ops.Load() | ops.AtomicRmw() | ops.AtomicCas():
                return self.of_access(op)
            case ops.Reduce():
                return slice_of(self.of_reduction(op), op.axis)
            case ops.Scan():
                return self._of_scan(op)
            case ops.Dot():
                return self.product(op).accumulator
            case ops.For() | ops.While():
                return self._carried(op, op.results.index(value))
            case ops.InlineAssembly() | ops.ForeignCall() | ops.MapElements():
                wanted = filter(None, map(self._wanted, op.operands))
                return self._where_multiplied(op) or next(wanted, self._default(value))
            case ops.If():
                number = op.results.index(value)
                arms = (arm.yields[number] for arm in (op.then, op.orelse))
                return next(filter(None, map(self._wanted, arms)), None)
        return self._default(value)

    def _carried(self, op: Op, number: int) -> LinearLayout | None:
        """The layout of what a loop carries: that in which the loop computes it, if any."""
        assert isinstance(op, ops.For | ops.While)
        result = op.results[number]
        if result in self._homes:
            return self._homes[result]
        if result in self._open or result in self._without:
            return None
        self._open.add(result)
        found = self._wanted(op.body.yields[number]) or self._wanted(op.inits[number])
        self._open.discard(result)
        if found is not None:
            self._homes[result] = found
        else:
            self._without.add(result)
        if not self._open:
            self._without.clear()
        return found

    def _wanted(self, value: Value) -> LinearLayout | None:
        """The layout of the first tile of the same shape that computing `value` ends at."""
        seen: set[Value] = set()
        found: list[LinearLayout] = []
        for leaf, same_index in self.uses.leaves((value,)):
            if not same_index or leaf.shape != value.shape or not leaf.shape or leaf in seen:
                continue
            seen.add(leaf)
            layout = self._homes.get(leaf) or self._find_home(leaf)
            if layout is not None:
                if isinstance(defining_op(leaf), ops.Dot):
                    return layout
                found.append(layout)
        return max(found, key=_spread, default=None)

    def _where_multiplied(self, op: Op) -> LinearLayout | None:
        """Where a product takes what the results of an op become, elementwise or by moves."""
        for dot in self.uses.block_of[op].ops:
            if not isinstance(dot, ops.Dot):
                continue
            plan = self.product(dot)
            waiting = [(dot.a, plan.a)] if plan.runs_on else [(dot.a, plan.a), (dot.b, plan.b)]
            seen = set()
            while waiting:
                value, layout = waiting.pop()
                if value in op.results:
                    return layout
                if value not in seen and self.uses.is_virtual(value):
                    seen.add(value)
                    waiting += _sources(value, layout)
        return None

    def product(self, op: ops.Dot) -> ProductPlan:
        """Return how a product is computed."""
        if op not in self._products:
            self._products[op] = self.architecture.product_of(
                op, self.num_warps, chained=self._is_chained(op), deep=self._is_deep(op)
            )
        return self._products[op]

    def _is_chained(self, op: ops.Dot) -> bool:
        """Whether another product stands beside it, which then reads what this one leaves."""
        neighbours = self.uses.block_of[op].ops
        return any(isinstance(other, ops.Dot) and other is not op for other in neighbours)

    def _is_deep(self, op: ops.Dot) -> bool:
        """Whether elements along k follow each other where the operand B comes from."""
        value, axis = op.b, op.b.type.rank - 2
        while isinstance(value, ops.Permute | ops.Hint):
            axis = value.order[axis] if isinstance(value, ops.Permute) else axis
            value = value.x
        if isinstance(value, ops.DescriptorLoad):
            return axis == value.type.rank - 1
        return isinstance(value, ops.Load) and self.order_of_access(value)[0] == axis


def _sources(value: Value, layout: LinearLayout) -> list[tuple[Value, LinearLayout]]:
    """What the elements in registers of a layout are computed from, and where that lies."""
    op, last = defining_op(value), len(value.shape) - 1
    match op:
        case None:
            return []
        case ops.Join() if any(column & 1 for column in thread_columns(layout, last)):
            return []
        case ops.Join():
            return [(side, without(layout, last)) for side in op.operands]
    inner = operand_layout(op, layout)
    if inner is not None:
        return [(op.operands[0], inner)]
    return [(operand, layout) for operand in op.operands if operand.shape == value.shape]


def _is_handed_on(value: Value) -> bool:
    """Whether a loop or branch hands a value on."""
    return isinstance(value, Param) or isinstance(defining_op(value), ops.For | ops.While | ops.If)


def _keeps_order(layout: LinearLayout, axis: int) -> bool:
    """Whether steps along an axis get longer from registers to lanes to warps."""
    name = f"dim{axis}"
    places = ("register", "lane", "warp")
    steps = [basis[name] for place in places for basis in layout.bases(place) if basis[name]]
    return steps == sorted(steps)


def _spread(layout: LinearLayout) -> int:
    """How many different elements the threads hold: fewer copies are better."""
    return layout.rank
