"""Drawing a layout: the tile as a table that shows in each cell where that element lives."""

from __future__ import annotations

from tilewright.layout.linear import LinearLayout

__all__ = ["draw"]

_LETTERS = {"register": "r", "lane": "l", "warp": "w", "block": "b", "offset": ""}
_ORDER = ("block", "warp", "lane", "register", "offset")


def draw(layout: LinearLayout) -> str:
    """Return the tile as text, rows along the first output and columns along the second.

    A cell names the places of its element: block, warp, lane and register by their first letters,
    offsets as numbers. Inputs of one index are left out. Further outputs are taken at index 0.

    >>> tile = LinearLayout.from_bases({"offset": [(0, 1), (1, 1)]}, {"dim0": 2, "dim1": 2})
    >>> print(draw(tile))
    0 1
    3 2
    """
    shown = [*layout.output_names, "", ""][:2]
    cells: dict[tuple[int, int], list[str]] = {}
    for packed in range(1 << layout.input_bits):
        place = _place(layout, packed)
        coordinates = layout(**place)
        row, column = (coordinates.pop(name, 0) for name in shown)
        if not any(coordinates.values()):
            cells.setdefault((row, column), []).append(_label(layout, place))
    rows, columns = (layout.output_size(name) for name in shown)
    table = [["=".join(cells.get((r, c), ["-"])) for c in range(columns)] for r in range(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )


def _place(layout: LinearLayout, packed: int) -> dict[str, int]:
    place = {}
    for name, bits in layout.inputs:
        place[name] = packed & ((1 << bits) - 1)
        packed >>= bits
    return place


def _label(layout: LinearLayout, place: dict[str, int]) -> str:
    names = [name for name in _ORDER if layout.input_size(name) > 1]
    names += [name for name, bits in layout.inputs if bits and name not in _ORDER]
    return ",".join(f"{_LETTERS.get(name, name[0])}{place[name]}" for name in names) or "0"
