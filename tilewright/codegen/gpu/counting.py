"""Counting and sorting through shared memory."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Element, dtype, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import SHARED
from tilewright.codegen.gpu.tile_table import TileTable, coordinates, linear_position
from tilewright.codegen.gpu.words import WORD_BITS
from tilewright.codegen.wider import extended, float_of
from tilewright.errors import Unsupported
from tilewright.ir.core import Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout, distinct_registers

__all__ = ["count", "sort_tile"]


def count(puller: Puller, placement: Placement, op: ops.Histogram) -> None:
    """Count in shared memory, by atomics, and read the counts.

    What is not to be counted goes to a bin behind the last one: atomics without a condition are
    faster, in particular those of a warp that add 1.
    """
    target, layout = placement.home(op), placement.of_elements(op.x)
    zero = Element("0", 1, 0)
    with TileTable(puller, op.element, op.num_bins + 1) as table:
        for _, position, flag in _places(puller, op, target):
            table.write(position, zero, flag)
        table.write(
            Element(str(op.num_bins), 1, 0), zero, puller.threads.is_first(placement.num_warps)
        )
        table.publish()
        for register, _, flag in _places(puller, op.x, layout):
            number = _bin(puller, op, layout, register, flag)
            address = table.address(number)
            puller.code.assign(f"atomicrmw add {SHARED} {address}, i32 1 monotonic")
        table.publish()
        _read(puller, op, target, table)


def _bin(
    puller: Puller, op: ops.Histogram, layout: LinearLayout, register: int, acts: Element | None
) -> Element:
    """The bin of an element."""
    code, kind = puller.code, dtype(op.x.type.element)
    text = extended(code, puller.pull(op.x, layout, register).text, kind, WORD_BITS)
    wide = f"i{max(WORD_BITS, kind.primitive_bitwidth)}"
    bounds = f"{wide} {text}, {wide} {op.num_bins}"
    text = code.call(wide, f"llvm.umin.{wide}", bounds)
    if wide == "i64":
        text = code.assign(f"trunc i64 {text} to i32")
    mask = None if op.mask is None else puller.pull(op.mask, layout, register)
    taken = puller.both(acts, mask)
    if taken is not None:
        text = code.assign(f"select i1 {taken.text}, i32 {text}, i32 {op.num_bins}")
    return Element(text, 1, code.level)


def sort_tile(puller: Puller, placement: Placement, op: ops.Sort) -> None:
    """Sort the lines along the last axis: an element goes where as many come before it.

    Each thread compares its elements with all of their lines, which is stable and works for any
    size; for lines much longer than a thousand there are better ways.
    """
    layout = placement.of_elements(op.x)
    kind, size = op.type.element, op.type.size
    with TileTable(puller, kind, size) as found, TileTable(puller, kind, size) as ordered:
        found.fill(op.x, layout)
        found.publish()
        for register, position, flag in _places(puller, op.x, layout):
            element = puller.pull(op.x, layout, register)
            rank = _rank(puller, op, found, element, layout, register)
            column = puller.threads.coordinate(layout, len(op.shape) - 1, register)
            row = puller.code.assign(f"sub i32 {position.text}, {column.text}")
            place = puller.code.assign(f"add i32 {row}, {rank}")
            ordered.write(Element(place, 1, puller.code.level), element, flag)
        ordered.publish()
        _read(puller, op, placement.home(op), ordered)


def _rank(
    puller: Puller,
    op: ops.Sort,
    table: TileTable,
    element: Element,
    layout: LinearLayout,
    register: int,
) -> str:
    """How many elements of its line come before an element."""
    code, kind = puller.code, dtype(op.type.element)
    size = op.shape[-1]
    own = coordinates(puller, layout, register, [0] * len(op.shape))
    inside = puller.inside(op.x, layout, register)
    row = linear_position(code, [*own[:-1], Element("0", 1, 0)], op.shape)
    start = (
        row.text
        if inside is None
        else code.assign(f"select i1 {inside.text}, i32 {row.text}, i32 0")
    )
    slot = code.alloca("i32")
    code.line(f"store i32 0, ptr {slot}")
    with code.counted_loop("0", str(size), "1") as j:
        at = Element(code.assign(f"add i32 {start}, {j}"), 1, code.level)
        other = table.read(at)
        before = _comes_before(puller, kind, op, other.text, element.text)
        behind = _comes_before(puller, kind, op, element.text, other.text)
        is_left = code.assign(f"icmp ult i32 {j}, {own[-1].text}")
        not_behind = code.assign(f"xor i1 {behind}, true")
        stays = code.assign(f"and i1 {is_left}, {not_behind}")
        counted = code.assign(f"zext i1 {code.assign(f'or i1 {before}, {stays}')} to i32")
        total = code.assign(f"add i32 {code.assign(f'load i32, ptr {slot}')}, {counted}")
        code.line(f"store i32 {total}, ptr {slot}")
    return code.assign(f"load i32, ptr {slot}")


def _comes_before(puller: Puller, kind: DType, op: ops.Sort, x: str, y: str) -> str:
    """Whether `x` must stand before `y`; NaN counts as the largest."""
    code, type_ = puller.code, llvm_type(kind)
    small, large = (y, x) if op.descending else (x, y)
    if not kind.is_floating():
        sign = "s" if kind.is_int_signed() else "u"
        return code.assign(f"icmp {sign}lt {type_} {small}, {large}")
    if kind.short_name == "bf16":
        small, large = (float_of(code, text, kind) for text in (small, large))
        type_ = "float"
    elif type_.startswith("i"):
        raise Unsupported(f"sorting {kind} on a GPU", location=op.location, hint="sort it as fp16")
    less = code.assign(f"fcmp olt {type_} {small}, {large}")
    is_nan = code.assign(f"fcmp uno {type_} {large}, {large}")
    is_number = code.assign(f"fcmp ord {type_} {small}, {small}")
    return code.assign(f"or i1 {less}, {code.assign(f'and i1 {is_nan}, {is_number}')}")


# -- tables ---------------------------------------------------------------------------------------


def _places(
    puller: Puller, value: Value, layout: LinearLayout
) -> list[tuple[int, Element, Element | None]]:
    """Registers, their positions in row-major order, and which threads act for them."""
    first = puller.threads.is_first_holder(layout)
    found = []
    for register in distinct_registers(layout):
        place = coordinates(puller, layout, register, [0] * len(value.shape))
        position = linear_position(puller.code, place, value.shape)
        flag = puller.both(puller.inside(value, layout, register), first)
        found.append((register, position, flag))
    return found


def _read(puller: Puller, value: Value, layout: LinearLayout, table: TileTable) -> None:
    """Let a tile be what a table holds."""
    code = puller.code
    elements: dict[int, Element] = {}
    for register, position, _ in _places(puller, value, layout):
        inside = puller.inside(value, layout, register)
        safe = position
        if inside is not None:
            text = code.assign(f"select i1 {inside.text}, i32 {position.text}, i32 0")
            safe = Element(text, 1, code.level)
        elements[register] = table.read(safe)
    puller.residents[value] = Resident.of(layout, elements)
