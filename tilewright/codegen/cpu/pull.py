"""Computing one element (or one vector of elements) of a tile where it is needed.

Tiles are functions of an index. `Puller.pull(value, index)` writes the code for the elements of
`value` at `index`, calling itself for the operands, so that a chain of elementwise ops becomes one
loop body. Shape ops only change the index; a tile that was stored is read back from its buffer.

An index has a `Coordinate` for each axis: the same for all lanes (`stride` 0), evenly spaced over
the lanes, or any vector of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.arithmetic import lower
from tilewright.codegen.code import (
    Code,
    Element,
    constant_text,
    dtype,
    llvm_type,
    mangled,
    memory_type,
    vector,
)
from tilewright.codegen.cpu.buffers import PAGE_BYTES, Buffer
from tilewright.codegen.cpu.lane_memory import LaneMemory
from tilewright.errors import InternalError, Location
from tilewright.ir.core import Op, Result, Value
from tilewright.ir.types import ElementType
from tilewright.ops.memory import pointee as pointee_of
from tilewright.passes.axis_info import AxisInfo

__all__ = ["Coordinate", "Index", "Puller"]


@dataclass(frozen=True)
class Coordinate:
    """Where along one axis: `base + stride * lane`, or lane by lane (`base` is then a vector)."""

    base: str
    level: int = 0
    stride: int = 0
    is_vector: bool = False

    @property
    def is_uniform(self) -> bool:
        return not self.stride and not self.is_vector

    @property
    def first(self) -> Coordinate:
        """The place of lane 0 (only for evenly spaced lanes)."""
        return Coordinate(self.base, self.level)


ZERO = Coordinate("0")
Index = tuple[Coordinate, ...]


class Puller(LaneMemory):
    """Writes the elements of tiles on demand. `lanes` is the width of the vectors being written."""

    def __init__(self, code: Code, facts: AxisInfo) -> None:
        super().__init__(code)
        self.facts = facts
        self.scalars: dict[Value, Element] = {}
        self.buffers: dict[Value, Buffer] = {}
        self.scratch = "%scratch"
        # What the loops being written leave alone may be read before them, from this section on.
        self.base_level = 0
        self.written: frozenset[Buffer] = frozenset()
        self.full_masks: frozenset[Value] = frozenset()  # known to leave no lane out
        self.ending_loads: frozenset[ops.Load] = frozenset()  # this nest is the last to read them
        self.writes_memory = False

    # -- elements of values -----------------------------------------------------------------------

    def pull(self, value: Value, index: Index) -> Element:
        """Return the elements of `value` at `index`."""
        if not value.shape:
            return self.scalar(value)
        known = self.code.lookup((value, index, self.predicate, self.lanes))
        if known is not None:
            return known
        if value not in self.buffers:
            return self.compute(value, index)
        element = self.read(self.buffers[value], index)
        return self.code.remember((value, index, self.predicate, self.lanes), element)

    def compute(self, value: Value, index: Index) -> Element:
        """Return elements by computing them, whether or not the tile has a buffer."""
        return self.code.remember(
            (value, index, self.predicate, self.lanes), self._compute(value, index)
        )

    def scalar(self, value: Value) -> Element:
        """Return a scalar, which has been computed before (constants are literals)."""
        if value in self.scalars:
            return self.scalars[value]
        if isinstance(value, ops.Full):
            return Element(constant_text(value.value, value.of.element), 1, 0)
        raise InternalError(f"scalar {value} has not been computed", location=_location(value))

    def vector(self, value: Value, index: Index) -> str:
        """Return the elements of `value` as a full vector."""
        return self.widen(self.pull(value, index), value.type.element)

    def widen(self, element: Element, type_: ElementType) -> str:
        return self.code.splat(element, llvm_type(type_), self.lanes)

    def _compute(self, value: Value, index: Index) -> Element:
        match value:
            case ops.Full():
                return Element(constant_text(value.value, value.of.element), 1, 0)
            case ops.Arange(start=start):
                return self._offset(self.coordinate(index[0]), start)
            case ops.Broadcast(x=x):
                sizes = x.shape
                return self.pull(
                    x, tuple(ZERO if n == 1 else c for n, c in zip(sizes, index, strict=False))
                )
            case ops.ExpandDims(x=x, axis=axis):
                return self.pull(x, index[:axis] + index[axis + 1 :])
            case ops.Permute(x=x, order=order):
                source = [ZERO] * len(order)
                for axis, coordinate in zip(order, index, strict=True):
                    source[axis] = coordinate
                return self.pull(x, tuple(source))
            case ops.Hint(x=x):
                return self.pull(x, index)
            case ops.Reshape(x=x):
                return self.pull(x, self.reshaped(index, value.shape, x.shape))
            case Result(op=ops.Split(x=x), index=half):
                return self.pull(x, (*index, Coordinate(str(half))))
            case ops.Join(x=x, y=y):
                return self._choose(index[-1], "1", x, index[:-1], y, index[:-1])
            case ops.Cat(x=x, y=y, axis=axis):
                return self._concatenated(x, y, axis, index)
            case ops.Gather(x=x, index=where, axis=axis):
                return self._gathered(x, where, axis, index)
            case ops.Load():
                return self.load(value, index)
            case ops.Select(condition=condition, x=x) if condition in self.full_masks:
                # Only in these loops, even where the element itself is computed before them.
                element = self.pull(x, index)
                return Element(element.text, element.lanes, max(element.level, self.base_level))
            case Op():
                return self._elementwise(value, index)
        raise InternalError(f"cannot compute {value}", location=_location(value))

    def _elementwise(self, op: Op, index: Index) -> Element:
        elements = [self.pull(v, index) for v in op.operands]
        if isinstance(op, ops.PointerAdd):
            return self.pointer_add(op, *elements)
        lanes = max(e.lanes for e in elements)
        level = max(e.level for e in elements)
        texts = [
            self.code.splat(e, llvm_type(v.type.element), lanes)
            for e, v in zip(elements, op.operands, strict=True)
        ]
        return Element(lower(self.code, op, texts, lanes, level), lanes, level)

    def pointer_add(self, op: ops.PointerAdd, pointer: Element, offset: Element) -> Element:
        """Advance by elements of the pointee; a scalar base takes offsets for all lanes."""
        kind = dtype(op.offset.type.element)
        level, lanes = max(pointer.level, offset.level), max(pointer.lanes, offset.lanes)
        text = offset.text
        if kind.primitive_bitwidth < 64:
            extend = "sext" if kind.is_int_signed() else "zext"
            narrow, wide = vector(llvm_type(kind), offset.lanes), vector("i64", offset.lanes)
            text = self.code.assign(f"{extend} {narrow} {text} to {wide}", offset.level)
        pointee = memory_type(pointee_of(op, op.pointer))
        result = self.code.assign(
            f"getelementptr {pointee}, {vector('ptr', pointer.lanes)} {pointer.text}, "
            f"{vector('i64', offset.lanes)} {text}",
            level,
        )
        return Element(result, lanes, level)

    # -- indices ----------------------------------------------------------------------------------

    def coordinate(self, c: Coordinate) -> Element:
        """Return a coordinate as i32 numbers."""
        if c.is_vector:
            return Element(c.base, self.lanes, c.level)
        if not c.stride:
            return Element(c.base, 1, c.level)
        key = ("coordinate", c, self.lanes)
        known = self.code.lookup(key)
        if known is None:
            steps = ", ".join(f"i32 {lane * c.stride}" for lane in range(self.lanes))
            base = self.code.splat(Element(c.base, 1, c.level), "i32", self.lanes)
            text = self.code.assign(f"add <{self.lanes} x i32> {base}, <{steps}>", c.level)
            known = self.code.remember(key, Element(text, self.lanes, c.level))
        return known

    def _offset(self, element: Element, amount: int) -> Element:
        return self._integer("add", element, amount) if amount else element

    def _integer(self, instruction: str, x: Element, y: Element | int) -> Element:
        """Write an i32 instruction on numbers of either width."""
        if isinstance(y, int):
            y = Element(str(y), 1, 0)
        if _is_number(x.text) and _is_number(y.text):
            a, b = int(x.text), int(y.text)
            folded = {"add": a + b, "mul": a * b, "udiv": a // (b or 1), "urem": a % (b or 1)}
            return Element(str(folded[instruction]), 1, 0)
        lanes, level = max(x.lanes, y.lanes), max(x.level, y.level)
        a_text, b_text = (self.code.splat(e, "i32", lanes) for e in (x, y))
        flags = "nuw nsw " if instruction in {"add", "mul"} else ""
        text = self.code.assign(
            f"{instruction} {flags}{vector('i32', lanes)} {a_text}, {b_text}", level
        )
        return Element(text, lanes, level)

    def linear(self, index: Index, strides: Sequence[int]) -> Coordinate:
        """Return the coordinate `sum(index * strides)`."""
        lane_stride = sum(c.stride * s for c, s in zip(index, strides, strict=True))
        if any(c.is_vector for c in index):
            return _from_element(self._weighted(list(map(self.coordinate, index)), strides))
        bases = [Element(c.base, 1, c.level) for c in index]
        total = self._weighted(bases, strides)
        return Coordinate(total.text, total.level, lane_stride)

    def _weighted(self, elements: list[Element], weights: Sequence[int]) -> Element:
        total = Element("0", 1, 0)
        # Outer terms first, so that partial sums stay in outer sections.
        for e, weight in sorted(
            zip(elements, weights, strict=True), key=lambda pair: pair[0].level
        ):
            if weight and e.text != "0":
                term = e if weight == 1 else self._integer("mul", e, weight)
                total = term if total.text == "0" else self._integer("add", total, term)
        return total

    def reshaped(self, index: Index, shape: tuple[int, ...], source: tuple[int, ...]) -> Index:
        """Translate an index into `shape` to one into `source` with the same row-major position."""
        kept = _matching_axes(index, shape, source)
        if kept is not None:
            return kept
        linear = self.linear(index, _row_major(shape))
        result: list[Coordinate] = []
        inner = source[-1] if source else 1
        if linear.stride == 1 and self._stays_inside(inner, shape):
            # All lanes lie in one row of the source.
            rest = self._split_position(linear.first, source)
            return (*rest[:-1], Coordinate(rest[-1].base, rest[-1].level, 1))
        result = self._split_position(_from_element(self.coordinate(linear)), source)
        return tuple(result)

    def _stays_inside(self, inner: int, shape: tuple[int, ...]) -> bool:
        # Vectors start at multiples of the lanes, in rows of shape[-1] elements.
        return inner % self.lanes == 0 and shape[-1] % self.lanes == 0

    def _split_position(self, position: Coordinate, shape: tuple[int, ...]) -> list[Coordinate]:
        rest = self.coordinate(position)
        result: list[Coordinate] = []
        for size in reversed(shape[1:]):
            result.append(_from_element(self._integer("urem", rest, size)))
            rest = self._integer("udiv", rest, size)
        return [*([_from_element(rest)] if shape else []), *reversed(result)]

    def _choose(
        self, c: Coordinate, bound: str, x: Value, x_index: Index, y: Value, y_index: Index
    ) -> Element:
        """Elements of `x` where `c` is below `bound`, else of `y`."""
        if c.is_uniform and _is_number(c.base):
            below = int(c.base) < int(bound)
            return self.pull(x, x_index) if below else self.pull(y, y_index)
        where = self.coordinate(c)
        a, b = self.pull(x, x_index), self.pull(y, y_index)
        lanes, level = max(where.lanes, a.lanes, b.lanes), max(where.level, a.level, b.level)
        limit = self.code.splat(Element(bound, 1, 0), "i32", where.lanes)
        flag = self.code.assign(
            f"icmp slt {vector('i32', where.lanes)} {where.text}, {limit}", where.level
        )
        kind = llvm_type(x.type.element)
        flags = self.code.splat(Element(flag, where.lanes, where.level), "i1", lanes)
        type_ = vector(kind, lanes)
        text = self.code.assign(
            f"select {vector('i1', lanes)} {flags}, {type_} {self.code.splat(a, kind, lanes)}, "
            f"{type_} {self.code.splat(b, kind, lanes)}",
            level,
        )
        return Element(text, lanes, level)

    def _concatenated(self, x: Value, y: Value, axis: int, index: Index) -> Element:
        """Each side is read at a place inside it, also where the other side is chosen."""
        split, end = x.shape[axis], y.shape[axis]
        c = index[axis]
        if c.is_uniform and _is_number(c.base):
            place = int(c.base)
            source, at = (x, place) if place < split else (y, place - split)
            return self.pull(source, (*index[:axis], Coordinate(str(at)), *index[axis + 1 :]))
        where = self.coordinate(c)
        low = self._clamped(where, split - 1)
        high = self._clamped(self._signed_add(where, -split), end - 1)
        x_index = (*index[:axis], _from_element(low), *index[axis + 1 :])
        y_index = (*index[:axis], _from_element(high), *index[axis + 1 :])
        return self._choose(c, str(split), x, x_index, y, y_index)

    def _signed_add(self, x: Element, amount: int) -> Element:
        type_ = vector("i32", x.lanes)
        other = self.code.splat(Element(str(amount), 1, 0), "i32", x.lanes)
        return Element(
            self.code.assign(f"add {type_} {x.text}, {other}", x.level), x.lanes, x.level
        )

    def _clamped(self, x: Element, high: int) -> Element:
        type_, name = vector("i32", x.lanes), mangled("i32", x.lanes)
        zero, top = (self.code.splat(Element(str(n), 1, 0), "i32", x.lanes) for n in (0, high))
        text = self.code.call(
            type_, f"llvm.smax.{name}", f"{type_} {x.text}, {type_} {zero}", x.level
        )
        text = self.code.call(type_, f"llvm.smin.{name}", f"{type_} {text}, {type_} {top}", x.level)
        return Element(text, x.lanes, x.level)

    def _gathered(self, x: Value, where: Value, axis: int, index: Index) -> Element:
        """Read the stored tile `x` at the place that `where` gives; 0 where that is outside."""
        place = self.pull(where, index)
        kind = dtype(where.type.element)
        wide = self._to_i64(place, kind)
        type_ = vector("i64", place.lanes)
        size = self.code.splat(Element(str(x.shape[axis]), 1, 0), "i64", place.lanes)
        inside = self.code.assign(f"icmp ult {type_} {wide}, {size}", place.level)
        zero = self.code.splat(Element("0", 1, 0), "i64", place.lanes)
        flags = vector("i1", place.lanes)
        safe = self.code.assign(
            f"select {flags} {inside}, {type_} {wide}, {type_} {zero}", place.level
        )
        narrow = self.code.assign(
            f"trunc {type_} {safe} to {vector('i32', place.lanes)}", place.level
        )
        c = _from_element(Element(narrow, place.lanes, place.level))
        taken = self.pull(x, (*index[:axis], c, *index[axis + 1 :]))
        lanes, level = max(taken.lanes, place.lanes), max(taken.level, place.level)
        scalar = llvm_type(x.type.element)
        full = vector(scalar, lanes)
        text = (
            self.code.assign(
                f"select {vector('i1', lanes)} "
                f"{self.code.splat(Element(inside, place.lanes, place.level), 'i1', lanes)}, "
                f"{full} {self.code.splat(taken, scalar, lanes)}, {full} zeroinitializer",
                level,
            )
            if lanes > 1
            else self.code.assign(
                f"select i1 {inside}, {scalar} {taken.text}, {scalar} {_zero(scalar)}", level
            )
        )
        return Element(text, lanes, level)

    def _to_i64(self, e: Element, kind: ElementType) -> str:
        bits = dtype(kind).primitive_bitwidth
        if bits == 64:
            return e.text
        extend = "sext" if kind.is_int_signed() else "zext"
        return self.code.assign(
            f"{extend} {vector(llvm_type(kind), e.lanes)} {e.text} to {vector('i64', e.lanes)}",
            e.level,
        )

    # -- memory -----------------------------------------------------------------------------------

    def address(self, buffer: Buffer, position: Coordinate) -> str:
        """Return the address (or addresses) of an element of a buffer."""
        e = Element(position.base, self.lanes if position.is_vector else 1, position.level)
        if _is_number(e.text):
            place = buffer.offset + int(e.text) * buffer.itemsize
            return self.code.assign(f"getelementptr i8, ptr {self.scratch}, i64 {place}", 0)
        base = self.code.assign(f"getelementptr i8, ptr {self.scratch}, i64 {buffer.offset}", 0)
        return self.code.assign(
            f"getelementptr {buffer.memory_type}, ptr {base}, {vector('i32', e.lanes)} {e.text}",
            e.level,
        )

    def read(self, buffer: Buffer, index: Index) -> Element:
        """Return the elements of a buffer at `index`."""
        position = self.linear(index, buffer.strides)
        level = self._read_level(buffer, position)
        kind = buffer.memory_type
        if position.stride == 1 or position.is_uniform:
            lanes = self.lanes if position.stride else 1
            address = self.address(buffer, position.first)
            text = self.code.assign(
                f"load {vector(kind, lanes)}, ptr {address}, align {buffer.itemsize}", level
            )
            return self.from_memory(text, buffer.type.element, lanes, level)
        places = _from_element(self.coordinate(position))
        addresses = self.address(buffer, places)
        text = self.gather(kind, addresses, buffer.itemsize, None, None, level)
        return self.from_memory(text, buffer.type.element, self.lanes, level)

    def _read_level(self, buffer: Buffer, position: Coordinate) -> int:
        if buffer in self.written:
            return self.code.level
        return max(position.level, self.base_level)

    def write(self, buffer: Buffer, index: Index, element: Element) -> None:
        """Store elements into a buffer at `index`."""
        position = self.linear(index, buffer.strides)
        kind = buffer.memory_type
        if position.is_uniform:
            text = self.to_memory(element.text, buffer.type.element, 1)
            address = self.address(buffer, position)
            self.code.line(f"store {kind} {text}, ptr {address}, align {buffer.itemsize}")
            return
        text = self.to_memory(
            self.widen(element, buffer.type.element), buffer.type.element, self.lanes
        )
        if position.stride == 1:
            self.store_contiguous(
                kind, text, self.address(buffer, position.first), buffer.itemsize, None
            )
        else:
            places = _from_element(self.coordinate(position))
            self.scatter(kind, text, self.address(buffer, places), buffer.itemsize, None)

    def load(self, op: ops.Load, index: Index) -> Element:
        """Return the elements of a load at `index`: one vector load wherever that is legal."""
        element = op.type.element
        kind, align = memory_type(element), element.itemsize
        level = self.code.level
        varying = [axis for axis, c in enumerate(index) if not c.is_uniform]
        if not varying:
            return self._load_scalar(op, index)
        runs = self.runs(op.pointer, index, varying)
        mask = self.mask(op.mask, index)
        other = None
        if op.other is not None:
            other = self.to_memory(self.vector(op.other, index), element, self.lanes)
        if runs == "contiguous":
            address = self.pull(op.pointer, tuple(c.first for c in index))
            text = self.load_contiguous(kind, address.text, align, mask, other)
            if mask is None:
                self.prefetch_behind(op, address.text)
        elif runs == "constant" and mask is None:
            return self._load_scalar(op, tuple(c.first for c in index))
        else:
            addresses = self.vector(op.pointer, index)
            if runs == "unknown":
                text = self.load_where_consecutive(kind, addresses, align, mask, other)
            else:
                text = self.gather(kind, addresses, align, mask, other)
        return self.from_memory(text, element, self.lanes, level)

    def prefetch_behind(self, op: ops.Load, address: str) -> None:
        """Ask for memory behind rows of pages: a page on, or a row where the caches have this one.

        The machine does so by itself only up to the end of a page, and not at all while a program
        works from the caches. Most kernels go on there, in the next turn or program.
        """
        row_bytes = op.type.size * op.type.element.itemsize
        if max(op.type.shape) < op.type.size or row_bytes < PAGE_BYTES:
            return
        self.prefetch(address, row_bytes if op in self.ending_loads else PAGE_BYTES)

    def runs(self, pointer: Value, index: Index, varying: list[int]) -> str:
        """Say how the lanes' addresses follow each other.

        `contiguous` and `constant` are certain, `unknown` is worth a look at run time, `any` not.
        """
        axis = varying[0]
        if len(varying) > 1 or index[axis].is_vector or index[axis].stride != 1:
            return "any"
        enough = min(self.lanes, pointer.shape[axis])

        def fits(run: int) -> bool:
            return run >= pointer.shape[axis] or (run >= enough and run % self.lanes == 0)

        if fits(self.facts.contiguity(pointer, axis)):
            return "contiguous"
        if fits(self.facts.constancy(pointer, axis)):
            return "constant"
        return "unknown" if self.facts.axes(pointer)[axis].stride is None else "any"

    def mask(self, mask: Value | None, index: Index) -> str | None:
        """Return the lanes that take part: the op's own mask and those inside the tile."""
        if mask is None or mask in self.full_masks:
            return self.predicate
        text = self.vector(mask, index)
        if self.predicate is None:
            return text
        type_ = vector("i1", self.lanes)
        return self.code.assign(f"and {type_} {text}, {self.predicate}")

    def _load_scalar(self, op: ops.Load, index: Index) -> Element:
        kind, align = memory_type(op.type.element), op.type.element.itemsize
        address = self.pull(op.pointer, index)
        masked = op.mask is not None and op.mask not in self.full_masks
        mask = self.pull(op.mask, index) if masked and op.mask is not None else None
        level = max(address.level, self.base_level, 0 if mask is None else mask.level)
        if self.writes_memory:
            level = self.code.level
        if mask is None:
            text = self.code.assign(f"load {kind}, ptr {address.text}, align {align}", level)
            return self.from_memory(text, op.type.element, 1, level)
        other = "zeroinitializer"
        if op.other is not None:
            instead = self.pull(op.other, index)
            level = max(level, instead.level)
            plain = self.to_memory(instead.text, op.type.element, 1, level)
            other = self.code.assign(
                f"insertelement <1 x {kind}> poison, {kind} {plain}, i32 0", level
            )
        flag = self.code.assign(f"insertelement <1 x i1> poison, i1 {mask.text}, i32 0", level)
        whole = self.code.call(
            f"<1 x {kind}>",
            f"llvm.masked.load.v1{mangled(kind, 1)}.p0",
            f"ptr align {align} {address.text}, <1 x i1> {flag}, <1 x {kind}> {other}",
            level,
        )
        text = self.code.assign(f"extractelement <1 x {kind}> {whole}, i32 0", level)
        return self.from_memory(text, op.type.element, 1, level)


def _location(value: Value) -> Location | None:
    return value.location if isinstance(value, Op) else None


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _zero(scalar: str) -> str:
    if scalar == "ptr":
        return "null"
    return "0.0" if scalar in {"float", "double", "half"} else "false" if scalar == "i1" else "0"


def _from_element(e: Element) -> Coordinate:
    return Coordinate(e.text, e.level, is_vector=e.lanes > 1)


def _row_major(shape: tuple[int, ...]) -> list[int]:
    strides: list[int] = []
    stride = 1
    for n in reversed(shape):
        strides.append(stride)
        stride *= n
    return strides[::-1]


def _matching_axes(index: Index, shape: tuple[int, ...], source: tuple[int, ...]) -> Index | None:
    """Translate an index when the shapes differ in axes of size 1 only."""
    if [n for n in shape if n != 1] != [n for n in source if n != 1]:
        return None
    rest = iter([c for c, n in zip(index, shape, strict=True) if n != 1])
    return tuple(next(rest) if n != 1 else ZERO for n in source)
