"""Tiles that come out of shared memory: gathers, and moves that no layout can say.

Of such an op all registers of a layout are computed at once, since all threads must take part.
"""

from __future__ import annotations

from math import prod

from tilewright import ops
from tilewright.codegen.code import Element, constant_text, dtype, llvm_type
from tilewright.codegen.gpu.tile_table import Tiles, TileTable, coordinates, linear_position
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.wider import extended
from tilewright.ir.core import Op, Value
from tilewright.layout import LinearLayout, register_copies

__all__ = ["goes_through_memory", "moved_elements"]


def goes_through_memory(value: Value) -> bool:
    """Whether an op's elements come out of shared memory."""
    match value:
        case ops.Gather():
            return True
        case ops.Reshape(x=x):
            kept = [n for n in value.shape if n != 1] == [n for n in x.shape if n != 1]
            whole = padded(x.shape) == x.shape and padded(value.shape) == value.shape
            return not kept and not whole
        case ops.Cat(x=x, y=y, axis=axis):
            size = x.shape[axis]
            return x.shape != y.shape or bool(size & size - 1)
    return False


def moved_elements(
    tiles: Tiles, value: Op, layout: LinearLayout, sources: list[LinearLayout]
) -> list[Element]:
    """Return the elements of all registers; `sources` say where the operands are computed."""
    first = value.operands[0]
    count = prod((value if isinstance(value, ops.Cat) else first).shape)
    read = _gathered if isinstance(value, ops.Gather) else _at_own_place
    copies = register_copies(layout)
    with TileTable(tiles, first.type.element, count) as table:
        if isinstance(value, ops.Cat):
            start = [0] * len(value.shape)
            start[value.axis] = first.shape[value.axis]
            table.fill(first, sources[0], value.shape)
            table.fill(value.y, sources[1], value.shape, start)
        else:
            table.fill(first, sources[0])
        table.publish()
        found = {r: read(tiles, value, layout, r, table) for r in sorted(set(copies))}
    return [found[register] for register in copies]


def _at_own_place(
    tiles: Tiles, value: Op, layout: LinearLayout, register: int, table: TileTable
) -> Element:
    """The element with the same number in row-major order."""
    place = coordinates(tiles, layout, register, [0] * len(value.shape))
    position = linear_position(tiles.code, place, value.shape)
    return table.read(_clamped(tiles, position, tiles.inside(value, layout, register)))


def _gathered(
    tiles: Tiles, value: Op, layout: LinearLayout, register: int, table: TileTable
) -> Element:
    """The element at the place that the index gives; 0 where that is outside."""
    assert isinstance(value, ops.Gather)
    code = tiles.code
    kind = dtype(value.index.type.element)
    where = tiles.pull(value.index, layout, register)
    text = extended(code, where.text, kind, 64)
    size = value.x.shape[value.axis]
    known = Element(code.assign(f"icmp ult i64 {text}, {size}"), 1, code.level)
    flag = tiles.both(known, tiles.inside(value, layout, register))
    assert flag is not None
    place = coordinates(tiles, layout, register, [0] * len(value.shape))
    place[value.axis] = Element(code.assign(f"trunc i64 {text} to i32"), 1, code.level)
    position = linear_position(code, place, value.x.shape)
    taken = table.read(_clamped(tiles, position, flag))
    element = llvm_type(value.type.element)
    zero = constant_text(0, value.type.element)
    chosen = code.assign(f"select i1 {flag.text}, {element} {taken.text}, {element} {zero}")
    return Element(chosen, 1, code.level)


def _clamped(tiles: Tiles, position: Element, flag: Element | None) -> Element:
    """The position, or 0 where it is none."""
    if flag is None:
        return position
    text = tiles.code.assign(f"select i1 {flag.text}, i32 {position.text}, i32 0")
    return Element(text, 1, tiles.code.level)
