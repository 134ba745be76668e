"""Computing one element of a tile where a thread needs it.

`Puller.pull(value, layout, register)` writes the code for the element of `value` that the layout
puts into this register of the thread, calling itself for the operands: a chain of elementwise ops
is straight-line code. Ops that only move elements hand on another layout. What has been computed
is found again, so the registers of one layout are computed once, for all that need them.

A tile that lives in registers of its own is a *resident*: it ends the recursion. Pulled in another
layout it is converted, all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.arithmetic import lower
from tilewright.codegen.code import Code, Element, constant_text, dtype, llvm_type, memory_type
from tilewright.codegen.gpu.convert import Staged, convert, stage
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.moved import goes_through_memory, moved_elements
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.quotients import Quotients, are_shared
from tilewright.codegen.gpu.remainder import remainder
from tilewright.codegen.gpu.shared import Shared
from tilewright.codegen.gpu.shared_area import SharedArea
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.gpu.threads import (
    Threads,
    constant_runs,
    register_offset,
    thread_columns,
)
from tilewright.codegen.gpu.views import cut, operand_layout, padded, split_layout, without
from tilewright.codegen.gpu.words import from_words
from tilewright.codegen.uses import Uses
from tilewright.codegen.wider import extended
from tilewright.errors import InternalError, Location
from tilewright.ir.core import Op, Result, Value
from tilewright.ir.types import PointerType
from tilewright.layout import LinearLayout, Rename, plan_conversion, register_copies
from tilewright.ops.elementwise import Elementwise
from tilewright.ops.memory import pointee as pointee_of

__all__ = ["Puller", "Resident"]


@dataclass(frozen=True)
class Resident:
    """A tile in registers: an element for each register of the layout."""

    layout: LinearLayout
    elements: tuple[Element, ...]

    @classmethod
    def of(cls, layout: LinearLayout, elements: Mapping[int, Element]) -> Resident:
        """Return a tile of the elements of those registers that are no copies of others."""
        return cls(layout, tuple(elements[first] for first in register_copies(layout)))


class Puller:
    """Writes the elements of tiles on demand."""

    def __init__(self, code: Code, machine: GpuMachine, uses: Uses, placement: Placement) -> None:
        self.code, self.machine, self.uses = code, machine, uses
        self.placement = placement
        self.threads = Threads(code, machine)
        self.shared = Shared(code, machine)
        self.scalars: dict[Value, Element] = {}
        self.residents: dict[Value, Resident] = {}
        self.tiles: dict[Value, SharedTile] = {}
        self.ahead: set[Value] = set()  # scalars that the loop has loaded ahead
        self._staged: dict[tuple[Value, LinearLayout], Staged | None] | None = None
        self._pulled: dict[Value, list[LinearLayout]] = {}
        self._ends: dict[Value, tuple[Value, ...]] = {}
        self._constant_over: dict[Value, tuple[int, ...]] = {}

    # -- elements of values -----------------------------------------------------------------------

    def scalar(self, value: Value) -> Element:
        """Return a scalar, which has been computed before (constants are literals)."""
        if value in self.scalars:
            return self.scalars[value]
        if isinstance(value, ops.Full):
            return Element(constant_text(value.value, value.of.element), 1, 0)
        location = value.location if isinstance(value, Op) else None
        raise InternalError(f"scalar {value} has not been computed", location=location)

    def pull(self, value: Value, layout: LinearLayout, register: int) -> Element:
        """Return the element of `value` in a register of `layout`."""
        if not value.shape:
            return self.scalar(value)
        register = register_copies(layout)[register]
        if isinstance(value, Elementwise):
            register = constant_runs(layout, self._constancies(value))[register]
        key = (value, layout, register)
        known = self.code.lookup(key)
        if known is None:
            with self.code.at(_place(value)):
                known = self.code.remember(key, self._element(value, layout, register))
        return known

    def _constancies(self, value: Value) -> tuple[int, ...]:
        """Over how many aligned elements along each axis a tile does not change."""
        if value not in self._constant_over:
            found = (self.uses.facts.constancy(value, axis) for axis in range(len(value.shape)))
            self._constant_over[value] = tuple(count & -count for count in found)
        return self._constant_over[value]

    def pull_all(self, value: Value, layout: LinearLayout) -> tuple[Element, ...]:
        """Return the elements of all registers."""
        registers = range(layout.input_size("register"))
        return tuple(self.pull(value, layout, register) for register in registers)

    def tile_of(self, value: Value) -> SharedTile | None:
        """Return where a value lies in shared memory, if it does."""
        if value in self.tiles:
            return self.tiles[value]
        if isinstance(value, ops.Permute) and value.order == (1, 0):
            tile = self.tile_of(value.x)
            return tile.transposed() if tile is not None else None
        if isinstance(value, ops.Reshape) and _drops_axes(value.x.shape, value.shape):
            tile = self.tile_of(value.x)
            return tile.without_axes() if tile is not None else None
        return self.tile_of(value.x) if isinstance(value, ops.Hint) else None

    def _from_tile(
        self, value: Value, tile: SharedTile, layout: LinearLayout, register: int
    ) -> Element:
        """Load the registers of one move, of which one is asked for."""
        access = tile.memory.access(layout, by_matrices=self.machine.has_matrix_loads)
        move = next(move for move in access.moves if register in move.registers)
        area = SharedArea(self, tile.start, tile.memory.element_bits)
        texts = area.load(access, move)
        level, element = self.code.level, value.type.element
        found = None
        for number, text in zip(move.registers, texts, strict=True):
            (held,) = from_words(self.code, [text], element, tile.memory.element_bits, 1)
            loaded = self.code.remember((value, layout, number), Element(held, 1, level))
            found = loaded if number == register else found
        assert found is not None
        return found

    def warp_number(self) -> str:
        """Return the number of the warp, which all its threads know to be the same."""
        known = self.code.lookup("warp number")
        if known is None:
            shift = self.machine.warp_size.bit_length() - 1
            own = self.code.assign(f"lshr i32 {self.threads.number}, {shift}", 0)
            text = self.machine.shuffle_from(own, "0", level=0)
            known = self.code.remember("warp number", Element(text, 1, 0))
        return known.text

    def _element(self, value: Value, layout: LinearLayout, register: int) -> Element:
        tile = self.tiles.get(value)
        if tile is not None:
            return self._from_tile(value, tile, layout, register)
        resident = self._resident(value, layout)
        if resident is None and goes_through_memory(value):
            return self._at_once(value, layout, register)
        if resident is None:
            return self._compute(value, layout, register)
        if resident.layout == layout:
            return resident.elements[register]
        if self._staged is not None:
            staged = self._stage(value, resident, layout)
            if staged is not None:
                return staged[register]
        return self._at_once(value, layout, register, resident)

    def _resident(self, value: Value, layout: LinearLayout) -> Resident | None:
        """Return the registers that a tile is moved from, instead of computing it."""
        return (
            self.residents.get(value)
            or self._computed_elsewhere(value, layout)
            or self._narrowed(value, layout)
        )

    def is_recipe(self, value: Value, layout: LinearLayout) -> bool:
        """Whether pulling an element of a tile in a layout only computes with its operands'."""
        if value in self.tiles or not self.uses.is_virtual(value) or goes_through_memory(value):
            return False
        return self._resident(value, layout) is None

    def side_of(
        self, value: ops.Join, layout: LinearLayout, register: int
    ) -> tuple[Value, LinearLayout] | None:
        """Return which of two joined tiles a register holds an element of, and in what layout.

        None where that depends on the thread.
        """
        last = len(value.shape) - 1
        if any(column & 1 for column in thread_columns(layout, last)):
            return None
        side = value.operands[register_offset(layout, last, register) & 1]
        return side, without(layout, last)

    def _at_once(
        self, value: Value, layout: LinearLayout, register: int, resident: Resident | None = None
    ) -> Element:
        """Return an element of a tile of which all registers are written at once."""
        key = ("moved", value, layout)
        if self.code.lookup((*key, 0)) is None:
            if resident is None:
                assert isinstance(value, Op)
                sources = [self.placement.of_elements(v) for v in value.operands]
                with self.shared.at(value.location):
                    moved = moved_elements(self, value, layout, sources)
            else:
                kind = value.type.element
                moved = convert(self, resident.elements, kind, resident.layout, layout)
            for number, element in enumerate(moved):
                self.code.remember((*key, number), element)
        found = self.code.lookup((*key, register))
        assert found is not None
        return found

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """Inside, what comes through shared memory is loaded when it is pulled, and not before.

        Products pull their operands step by step, and so need not hold all of them.
        """
        staged: dict[tuple[Value, LinearLayout], Staged | None] = {}
        self._staged = staged
        yield
        self._staged = None
        for tile in staged.values():
            if tile is not None:
                tile.release()

    def _stage(self, value: Value, resident: Resident, layout: LinearLayout) -> Staged | None:
        assert self._staged is not None
        key = (value, layout)
        if key not in self._staged:
            element = value.type.element
            made = stage(self, resident.elements, element, resident.layout, layout)
            self._staged[key] = made
        return self._staged[key]

    def _computed_elsewhere(self, value: Value, layout: LinearLayout) -> Resident | None:
        """Return a tile that was computed in another layout, where moving it is cheaper."""
        layouts = self._pulled.setdefault(value, [])
        if layout not in layouts:
            layouts.append(layout)
        if len(layouts) == 1 or not self.uses.is_expensive(value):
            return None
        for other in layouts:
            if other == layout:
                continue
            copies = register_copies(other)
            known = [self.code.lookup((value, other, register)) for register in copies]
            elements = tuple(element for element in known if element is not None)
            if len(elements) == len(known):
                return Resident(other, elements)
        return None

    def _narrowed(self, value: Value, layout: LinearLayout) -> Resident | None:
        """Return a tile that is narrowed before it is moved: half as many bytes move then."""
        if not isinstance(value, ops.Cast) or value.to.itemsize >= value.x.type.element.itemsize:
            return None
        for leaf in self._ends_of(value):
            source = self.residents.get(leaf)
            if source is None:
                continue
            plan = plan_conversion(source.layout, layout, leaf.type.element.storage_bits)
            if isinstance(plan, Rename):
                return None
            return Resident(source.layout, self.pull_all(value, source.layout))
        return None

    def _ends_of(self, value: Value) -> tuple[Value, ...]:
        """The tiles of the same shape that computing an element of `value` ends at."""
        if value not in self._ends:
            self._ends[value] = tuple(
                leaf
                for leaf, same_index in self.uses.leaves((value,))
                if same_index and leaf.shape == value.shape
            )
        return self._ends[value]

    def _compute(self, value: Value, layout: LinearLayout, register: int) -> Element:
        match value:
            case ops.Full():
                return Element(constant_text(value.value, value.of.element), 1, 0)
            case ops.Arange(start=start):
                return self._add(self.threads.coordinate(layout, 0, register), start)
            case Result(op=ops.Split(x=x), index=half):
                return self.pull(x, split_layout(layout), 2 * register + half)
            case ops.Join(x=x, y=y):
                return self._joined(value, (x, y), layout, register)
            case ops.Cat(x=x, y=y):
                return self._concatenated(value, (x, y), layout, register)
            case ops.PointerAdd() if register:
                stepped = self._stepped(value, layout, register)
                if stepped is not None:
                    return stepped
            case ops.Div(exact=True) if dtype(value.type.element).short_name == "fp32":
                return self._quotient(value, layout, register)
        if not isinstance(value, Op):
            raise InternalError(f"cannot compute {value}")
        inner = operand_layout(value, layout)
        if inner is not None:
            return self.pull(value.operands[0], inner, register)
        return self.apply(value, [self.pull(v, layout, register) for v in value.operands])

    def _quotient(self, value: ops.Div, layout: LinearLayout, register: int) -> Element:
        """Write one element, or those of all registers at once where they share divisors."""
        registers = self._distinct(value, layout)
        if not are_shared(len(registers), len(self._distinct(value.y, layout))):
            return self.apply(value, [self.pull(v, layout, register) for v in value.operands])
        pairs = {
            r: (self.pull(value.x, layout, r), self.pull(value.y, layout, r)) for r in registers
        }
        found = Quotients(self.code, self.machine, pairs).write()
        for number, element in found.items():
            self.code.remember((value, layout, number), element)
        return found[register]

    def _distinct(self, value: Value, layout: LinearLayout) -> list[int]:
        """The registers of a layout that hold elements of their own."""
        runs = constant_runs(layout, self._constancies(value))
        return sorted({runs[register] for register in register_copies(layout)})

    def apply(self, op: Op, elements: list[Element]) -> Element:
        """Write an elementwise op."""
        if isinstance(op, ops.PointerAdd):
            return self.pointer_add(op, *elements)
        if isinstance(op, ops.Rem) and op.type.element.is_floating():
            return remainder(self.code, op, *elements)
        level = max((e.level for e in elements), default=0)
        return Element(lower(self.code, op, [e.text for e in elements], 1, level), 1, level)

    def pointer_add(self, op: ops.PointerAdd, pointer: Element, offset: Element) -> Element:
        """Advance by elements of the pointee."""
        kind = dtype(op.offset.type.element)
        level = max(pointer.level, offset.level)
        text = extended(self.code, offset.text, kind, 64, offset.level)
        pointee = memory_type(pointee_of(op, op.pointer))
        return Element(
            self.code.assign(f"getelementptr {pointee}, ptr {pointer.text}, i64 {text}", level),
            1,
            level,
        )

    def _stepped(
        self, value: ops.PointerAdd, layout: LinearLayout, register: int
    ) -> Element | None:
        """Return an address as a constant distance from that in register 0, where it is one.

        That is so where addresses are evenly spaced and the register's part of the coordinate adds
        to the thread's.
        """
        element = value.type.element
        assert isinstance(element, PointerType)
        distance = 0
        for axis in range(len(value.shape)):
            step = register_offset(layout, axis, register)
            if not step:
                continue
            stride = self.uses.facts.stride(value, axis)
            if stride is None or stride.scalar is not None:
                return None
            if any(column & step for column in thread_columns(layout, axis)):
                return None
            distance += step * stride.factor * element.element_ty.itemsize
        first = self.pull(value, layout, 0)
        text = self.code.assign(f"getelementptr i8, ptr {first.text}, i64 {distance}", first.level)
        return Element(text, 1, first.level)

    def _add(self, element: Element, amount: int) -> Element:
        if not amount:
            return element
        if element.text.isdigit():
            return Element(str(int(element.text) + amount), 1, 0)
        text = self.code.assign(f"add nsw i32 {element.text}, {amount}", element.level)
        return Element(text, 1, element.level)

    # -- two tiles side by side -------------------------------------------------------------------

    def _joined(
        self, value: ops.Join, sides: tuple[Value, Value], layout: LinearLayout, register: int
    ) -> Element:
        side = self.side_of(value, layout, register)
        if side is not None:
            return self.pull(*side, register)
        last = len(value.shape) - 1
        return self._either(value, sides, layout, without(layout, last), register, (last, 1))

    def _concatenated(
        self, value: ops.Cat, sides: tuple[Value, Value], layout: LinearLayout, register: int
    ) -> Element:
        half = value.x.shape[value.axis]
        inner = cut(layout, padded(value.x.shape))
        return self._either(value, sides, layout, inner, register, (value.axis, half))

    def _either(
        self,
        value: Op,
        sides: tuple[Value, Value],
        layout: LinearLayout,
        inner: LinearLayout,
        register: int,
        place: tuple[int, int],
    ) -> Element:
        """Elements of the first side where a bit of a coordinate is 0, else of the second."""
        axis, bit = place
        if not any(column & bit for column in thread_columns(layout, axis)):
            side = sides[bool(register_offset(layout, axis, register) & bit)]
            return self.pull(side, inner, register)
        where = self.threads.coordinate(layout, axis, register)
        x, y = (self.pull(side, inner, register) for side in sides)
        kept = self.code.assign(f"and i32 {where.text}, {bit}", where.level)
        flag = self.code.assign(f"icmp eq i32 {kept}, 0", where.level)
        level = max(where.level, x.level, y.level)
        kind = llvm_type(value.operands[0].type.element)
        text = self.code.assign(f"select i1 {flag}, {kind} {x.text}, {kind} {y.text}", level)
        return Element(text, 1, level)

    def is_first_thread(self) -> Element:
        """Return whether this is the thread that does what one has to do."""
        text = self.code.assign(f"icmp eq i32 {self.threads.number}, 0", 0)
        return Element(text, 1, 0)

    # -- the ends of tiles ------------------------------------------------------------------------

    def inside(self, value: Value, layout: LinearLayout, register: int) -> Element | None:
        """Return whether a register lies in a tile that was padded; None where it surely does."""
        total: Element | None = None
        for axis, (size, whole) in enumerate(zip(value.shape, padded(value.shape), strict=True)):
            if size == whole:
                continue
            where = self.threads.coordinate(layout, axis, register)
            text = self.code.assign(f"icmp ult i32 {where.text}, {size}", where.level)
            total = self.both(total, Element(text, 1, where.level))
        return total

    def both(self, x: Element | None, y: Element | None) -> Element | None:
        """Return whether two conditions hold; None stands for true."""
        if x is None or y is None:
            return x or y
        level = max(x.level, y.level)
        return Element(self.code.assign(f"and i1 {x.text}, {y.text}", level), 1, level)


def _place(value: Value) -> Location | None:
    """Where the user has written what computes a value."""
    if isinstance(value, Result):
        value = value.op
    return value.location if isinstance(value, Op) else None


def _drops_axes(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a tile becomes a matrix by losing axes of size 1 in front."""
    return len(after) == 2 and len(before) > 2 and tuple(before[-2:]) == tuple(after)
