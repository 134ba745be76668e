"""Loop nests: several things that need every element of a tile, done in one pass over it.

A nest runs over the index space of a shape. Its *roots* are what the pass is for: storing a tile to
the user's memory or to a buffer, reducing it, and so on. Everything else is pulled by them. One
axis is the vector axis: its loop is the innermost, except that a reduction along another axis goes
inside it, so that its accumulators stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright import ops
from tilewright.codegen.code import Code, Element, constant_text, llvm_type, memory_type, vector
from tilewright.codegen.cpu.buffers import Buffer
from tilewright.codegen.cpu.effects import AssertRoot, AtomicRoot, HistogramRoot, PrintRoot
from tilewright.codegen.cpu.masks import fullness
from tilewright.codegen.cpu.pull import Coordinate, Index, Puller
from tilewright.codegen.regions import apply_region, identity
from tilewright.ir.core import Op, Result, Value

STREAM_BYTES = 16  # the narrowest store that goes past the caches

__all__ = ["FillRoot", "Nest", "ReduceRoot", "Root", "StoreRoot", "write_nest"]


@dataclass(eq=False)
class StoreRoot:
    """Write a tile to the user's memory."""

    op: ops.Store

    @property
    def pulls(self) -> tuple[Value, ...]:
        return self.op.operands

    def prepare(self, puller: Puller, index: Index) -> Element:
        return puller.pull(self.op.value, index)

    def finish(self, puller: Puller, index: Index, element: Element) -> None:
        op = self.op
        kind, align = memory_type(op.value.type.element), op.value.type.element.itemsize
        varying = [axis for axis, c in enumerate(index) if not c.is_uniform]
        if not varying:
            self._finish_scalar(puller, index, element)
            return
        text = puller.to_memory(
            puller.widen(element, op.value.type.element), op.value.type.element, puller.lanes
        )
        mask = puller.mask(op.mask, index)
        if puller.runs(op.pointer, index, varying) == "contiguous":
            address = puller.pull(op.pointer, tuple(c.first for c in index)).text
            if mask is None and self._may_stream(puller, varying[0]):
                puller.stream(kind, text, address)
            else:
                puller.store_contiguous(kind, text, address, align, mask)
        else:
            puller.scatter(kind, text, puller.vector(op.pointer, index), align, mask)

    def _may_stream(self, puller: Puller, axis: int) -> bool:
        """Whether the kernel says that it will not read this soon, and vectors start aligned."""
        op = self.op
        says_so = op.cache_modifier in {".cs", ".wt"} or op.eviction_policy == "evict_first"
        size = op.value.type.element.itemsize * puller.lanes
        aligned = puller.facts.divisibility(op.pointer, axis) % STREAM_BYTES == 0
        return says_so and aligned and size % STREAM_BYTES == 0

    def _finish_scalar(self, puller: Puller, index: Index, element: Element) -> None:
        op, code = self.op, puller.code
        kind, align = memory_type(op.value.type.element), op.value.type.element.itemsize
        address = puller.pull(op.pointer, index)
        text = puller.to_memory(element.text, op.value.type.element, 1)
        store = f"store {kind} {text}, ptr {address.text}, align {align}"
        if op.mask is None:
            code.line(store)
            return
        with puller.code.guarded(puller.pull(op.mask, index).text):
            code.line(store)


@dataclass(eq=False)
class FillRoot:
    """Write a tile to a buffer. From then on `keeps`, if any, is read from there."""

    value: Value
    buffer: Buffer
    keeps: Value | None = None

    @property
    def pulls(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def sources(self) -> tuple[Value, ...]:
        """What is pulled although the tile itself has a buffer: this root computes it."""
        if self.keeps is not self.value or isinstance(self.value, ops.Load):
            return self.pulls
        home = self.value.op if isinstance(self.value, Result) else self.value
        return home.operands if isinstance(home, Op) else self.pulls

    def prepare(self, puller: Puller, index: Index) -> Element:
        return puller.pull(self.value, index)

    def finish(self, puller: Puller, index: Index, element: Element) -> None:
        puller.write(self.buffer, index, element)


@dataclass(eq=False)
class ReduceRoot:
    """Reduce tiles along an axis; results are scalars, or tiles in buffers."""

    op: ops.Reduce
    buffers: tuple[Buffer, ...] = ()
    slots: list[list[str]] = field(default_factory=list)  # accumulators: [chunk][input]
    started: str = ""

    @property
    def pulls(self) -> tuple[Value, ...]:
        return self.op.inputs

    @property
    def identity(self) -> float | None:
        return identity(self.op.combine)

    def enter(self, puller: Puller, chunks: int) -> None:
        """Set up the accumulators of `chunks` vectors."""
        code = puller.code
        neutral = self.identity
        self.slots = [
            [code.alloca(self._type(puller, v)) for v in self.op.inputs] for _ in range(chunks)
        ]
        if neutral is None:
            self.started = code.alloca("i1")
            code.line(f"store i1 false, ptr {self.started}")
            return
        for (slot,) in self.slots:
            type_ = self._type(puller, self.op.inputs[0])
            text = self._neutral(puller, neutral)
            code.line(f"store {type_} {text}, ptr {slot}")

    def _type(self, puller: Puller, value: Value) -> str:
        return vector(llvm_type(value.type.element), puller.lanes)

    def _neutral(self, puller: Puller, neutral: float) -> str:
        element = self.op.inputs[0].type.element
        one = Element(constant_text(neutral, element), 1, 0)
        return puller.widen(one, element)

    def prepare(self, puller: Puller, index: Index) -> list[Element]:
        return [
            Element(puller.vector(v, index), puller.lanes, puller.code.level)
            for v in self.op.inputs
        ]

    def update(self, puller: Puller, chunk: int, elements: list[Element], *, along: bool) -> None:
        """Combine elements into the accumulators; `along`: the lanes themselves get reduced."""
        code, slots = puller.code, self.slots[chunk]
        predicate = puller.predicate if along else None
        neutral = self.identity
        types = [self._type(puller, v) for v in self.op.inputs]
        if predicate and neutral is not None:
            outside = self._neutral(puller, neutral)
            text = self._choose(puller, predicate, types[0], elements[0].text, outside)
            elements = [Element(text, puller.lanes, code.level)]
        old = [
            Element(code.assign(f"load {t}, ptr {s}"), puller.lanes, code.level)
            for t, s in zip(types, slots, strict=True)
        ]
        combined = apply_region(puller, self.op.combine, old + elements)
        new = [
            puller.widen(e, v.type.element) for e, v in zip(combined, self.op.inputs, strict=True)
        ]
        if neutral is None:
            new = self._unless_first(puller, new, old, elements, predicate)
        for text, type_, slot in zip(new, types, slots, strict=True):
            code.line(f"store {type_} {text}, ptr {slot}")

    def _unless_first(
        self,
        puller: Puller,
        combined: list[str],
        old: list[Element],
        elements: list[Element],
        predicate: str | None,
    ) -> list[str]:
        """Take the elements as they are where nothing has been accumulated yet."""
        started = puller.code.assign(f"load i1, ptr {self.started}")
        result = []
        for text, before, x, value in zip(combined, old, elements, self.op.inputs, strict=True):
            type_ = self._type(puller, value)
            kept = text
            if predicate:
                kept = self._choose(puller, predicate, type_, text, before.text)
            result.append(
                puller.code.assign(f"select i1 {started}, {type_} {kept}, {type_} {x.text}")
            )
        return result

    def _choose(self, puller: Puller, flags: str, type_: str, x: str, y: str) -> str:
        return puller.code.assign(
            f"select {vector('i1', puller.lanes)} {flags}, {type_} {x}, {type_} {y}"
        )

    def end_step(self, puller: Puller) -> None:
        """All chunks have seen an element."""
        if self.started:
            puller.code.line(f"store i1 true, ptr {self.started}")

    def leave(self, puller: Puller, indices: list[Index], valid_lanes: int) -> None:
        """Write the results: one vector for each of `indices`, or across lanes when it is empty."""
        code = puller.code
        sums = [
            [
                Element(
                    code.assign(f"load {self._type(puller, v)}, ptr {slot}"),
                    puller.lanes,
                    code.level,
                )
                for v, slot in zip(self.op.inputs, slots, strict=True)
            ]
            for slots in self.slots
        ]
        if indices:
            for index, elements in zip(indices, sums, strict=False):
                self._deliver(puller, index, elements)
            return
        total = sums[0]
        for other in sums[1:]:
            total = apply_region(puller, self.op.combine, total + other)
        self._deliver(puller, (), self._across_lanes(puller, total, valid_lanes))

    def _across_lanes(self, puller: Puller, parts: list[Element], valid: int) -> list[Element]:
        """Halve the vector until one lane is left; lanes that hold nothing are left out."""
        code = puller.code
        lanes = puller.lanes
        while lanes > 1:
            half = lanes // 2
            if valid > half and valid < lanes:  # an odd end: fold lane by lane
                return self._lane_by_lane(puller, parts, lanes, valid)
            low, high = (
                [
                    self._slice(code, e, v, lanes, start, half)
                    for e, v in zip(parts, self.op.inputs, strict=True)
                ]
                for start in (0, half)
            )
            parts = low if valid <= half else apply_region(puller, self.op.combine, low + high)
            lanes, valid = half, min(valid, half)
        return parts

    def _slice(
        self, code: Code, e: Element, value: Value, lanes: int, start: int, count: int
    ) -> Element:
        kind = llvm_type(value.type.element)
        type_ = vector(kind, lanes)
        if count == 1:
            return Element(
                code.assign(f"extractelement {type_} {e.text}, i32 {start}"), 1, code.level
            )
        picks = ", ".join(f"i32 {start + i}" for i in range(count))
        text = code.assign(
            f"shufflevector {type_} {e.text}, {type_} poison, <{count} x i32> <{picks}>"
        )
        return Element(text, count, code.level)

    def _lane_by_lane(
        self, puller: Puller, parts: list[Element], lanes: int, valid: int
    ) -> list[Element]:
        def lane(i: int) -> list[Element]:
            return [
                self._slice(puller.code, e, v, lanes, i, 1)
                for e, v in zip(parts, self.op.inputs, strict=True)
            ]

        total = lane(0)
        for i in range(1, valid):
            total = apply_region(puller, self.op.combine, total + lane(i))
        return total

    def _deliver(self, puller: Puller, index: Index, elements: list[Element]) -> None:
        for result, element, number in zip(
            self.op.results, elements, range(len(elements)), strict=True
        ):
            if self.buffers:
                puller.write(self.buffers[number], index or self.outer_index, element)
            else:
                puller.scalars[result] = element

    outer_index: Index = ()


Root = StoreRoot | FillRoot | ReduceRoot | AtomicRoot | AssertRoot | HistogramRoot | PrintRoot


@dataclass(eq=False)
class Nest:
    """Roots over one index space, with the axis that is vectorised and how wide."""

    shape: tuple[int, ...]
    roots: list[Root] = field(default_factory=list)
    vector_axis: int = 0
    lanes: int = 1
    masks: list[Value] = field(default_factory=list)
    read_for_the_last_time: frozenset[ops.Load] = frozenset()

    @property
    def sources(self) -> tuple[Value, ...]:
        """What the roots pull."""
        return tuple(
            v for r in self.roots for v in (r.sources if isinstance(r, FillRoot) else r.pulls)
        )

    @property
    def reduced_axis(self) -> int | None:
        """The axis of the reductions (one for all of a nest), if any."""
        for root in self.roots:
            if isinstance(root, ReduceRoot):
                return root.op.axis
        return None


def write_nest(puller: Puller, nest: Nest, *, unroll: int) -> None:
    """Write the loops of a nest at the current place."""
    outer = puller.base_level, puller.written, puller.lanes, puller.writes_memory
    puller.base_level = puller.code.level
    masks = nest.masks if nest.lanes > 1 else []
    puller.lanes = 1
    full = fullness(puller, masks) if masks else None
    puller.written = frozenset(r.buffer for r in nest.roots if isinstance(r, FillRoot))
    puller.writes_memory = any(not isinstance(r, FillRoot | ReduceRoot) for r in nest.roots)
    puller.lanes = nest.lanes
    puller.ending_loads = nest.read_for_the_last_time
    if full is None:
        with puller.code.section():
            _NestWriter(puller, nest, unroll).write()
        for result in _scalar_results(nest):
            text = puller.scalars[result].text
            puller.scalars[result] = Element(text, 1, puller.code.level)
    else:
        _write_versions(puller, nest, unroll, full.text, frozenset(masks))
    puller.ending_loads = frozenset()
    for root in nest.roots:
        if isinstance(root, FillRoot) and root.keeps is not None:
            puller.buffers[root.keeps] = root.buffer
    puller.base_level, puller.written, puller.lanes, puller.writes_memory = outer


def _write_versions(
    puller: Puller, nest: Nest, unroll: int, full: str, masks: frozenset[Value]
) -> None:
    """Write the nest twice: without masks, for when they are full, and with them."""
    code = puller.code
    results = _scalar_results(nest)
    slots = [code.alloca(llvm_type(r.type.element)) for r in results]
    whole, partly, done = code.label("whole"), code.label("partly"), code.label("both")
    with code.section():  # what is hoisted out goes before the branch
        code.line(f"br i1 {full}, label %{whole}, label %{partly}")
        for label, known in ((whole, masks), (partly, frozenset[Value]())):
            with code.section():
                code.place(label)
                puller.base_level, puller.full_masks = code.level, known
                with code.section():
                    _NestWriter(puller, nest, unroll).write()
                for result, slot in zip(results, slots, strict=True):
                    kind = llvm_type(result.type.element)
                    code.line(f"store {kind} {puller.scalars[result].text}, ptr {slot}")
                code.line(f"br label %{done}")
        code.place(done)
    puller.full_masks = frozenset()
    for result, slot in zip(results, slots, strict=True):
        text = code.assign(f"load {llvm_type(result.type.element)}, ptr {slot}")
        puller.scalars[result] = Element(text, 1, code.level)


def _scalar_results(nest: Nest) -> list[Value]:
    return [
        result
        for root in nest.roots
        if isinstance(root, ReduceRoot) and not root.buffers
        for result in root.op.results
    ]


class _NestWriter:
    def __init__(self, puller: Puller, nest: Nest, unroll: int) -> None:
        self.puller, self.nest, self.unroll = puller, nest, unroll
        self.reduces = [r for r in nest.roots if isinstance(r, ReduceRoot)]
        v, r = nest.vector_axis, nest.reduced_axis
        rank = len(nest.shape)
        self.order = [a for a in range(rank) if a not in {v, r}] + [v]
        if r is not None and r != v:
            self.order.append(r)

    def write(self) -> None:
        self._axis(0, [[Coordinate("0")] * len(self.nest.shape)])
        for root in self.nest.roots:
            if isinstance(root, AssertRoot):
                root.leave(self.puller)

    def _axis(self, depth: int, indices: list[list[Coordinate]]) -> None:
        if depth == len(self.order):
            self._body(indices)
            return
        axis = self.order[depth]
        if axis == self.nest.vector_axis:
            self._vector_axis(depth, indices[0])
        else:
            self._plain_axis(depth, axis, indices)

    def _plain_axis(self, depth: int, axis: int, indices: list[list[Coordinate]]) -> None:
        code, extent = self.puller.code, self.nest.shape[axis]
        reduced = axis == self.nest.reduced_axis
        if reduced:
            for root in self.reduces:
                root.enter(self.puller, len(indices))
        if extent == 1:
            self._axis(depth + 1, [_with(i, axis, Coordinate("0")) for i in indices])
        else:
            with code.counted_loop("0", str(extent), "1") as i:
                here = Coordinate(i, code.level)
                self._axis(depth + 1, [_with(index, axis, here) for index in indices])
        if reduced:
            for root in self.reduces:
                outer = [tuple(i[:axis] + i[axis + 1 :]) for i in indices]
                root.leave(self.puller, outer, self.puller.lanes)

    def _vector_axis(self, depth: int, index: list[Coordinate]) -> None:
        code, axis, lanes = self.puller.code, self.nest.vector_axis, self.puller.lanes
        extent = self.nest.shape[axis]
        full, rest = divmod(extent, lanes)
        unroll = max(1, min(self.unroll, full))
        groups, single = divmod(full, unroll)
        reduced = axis == self.nest.reduced_axis
        if reduced:
            for root in self.reduces:
                root.enter(self.puller, unroll)
        step = lanes * unroll

        def run(bases: list[str], predicate: str | None = None) -> None:
            self.puller.predicate = predicate
            stride = 0 if lanes == 1 else 1
            level = code.level
            coordinates = [Coordinate(b, 0 if b.isdigit() else level, stride) for b in bases]
            self._axis(depth + 1, [_with(index, axis, c) for c in coordinates])
            self.puller.predicate = None

        if groups > 1:
            with code.counted_loop("0", str(groups * step), str(step)) as i:
                run(
                    [i]
                    + [code.assign(f"add nuw nsw i32 {i}, {u * lanes}") for u in range(1, unroll)]
                )
        elif groups:
            with code.section():
                run([str(u * lanes) for u in range(unroll)])
        for chunk in range(single):
            with code.section():
                run([str(groups * step + chunk * lanes)])
        if rest:
            with code.section():
                run([str(full * lanes)], _first_lanes(rest, lanes))
        if reduced:
            for root in self.reduces:
                root.outer_index = tuple(index[:axis] + index[axis + 1 :])
                root.leave(self.puller, [], min(extent, lanes))

    def _body(self, indices: list[list[Coordinate]]) -> None:
        along = self.nest.vector_axis == self.nest.reduced_axis
        for chunk, coordinates in enumerate(indices):
            index = tuple(coordinates)
            # Everything is read before anything is written: a tile may be updated in place.
            prepared = [root.prepare(self.puller, index) for root in self.nest.roots]
            for root, elements in zip(self.nest.roots, prepared, strict=True):
                if isinstance(root, ReduceRoot):
                    root.update(self.puller, chunk, elements, along=along)  # type: ignore[arg-type]
                else:
                    root.finish(self.puller, index, elements)  # type: ignore[arg-type]
        for reduce in self.reduces:
            reduce.end_step(self.puller)


def _with(index: list[Coordinate], axis: int, c: Coordinate) -> list[Coordinate]:
    return [*index[:axis], c, *index[axis + 1 :]]


def _first_lanes(count: int, lanes: int) -> str | None:
    if lanes == 1:
        return None
    bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(lanes))
    return f"<{bits}>"
