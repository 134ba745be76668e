"""What the registers of a lane, and the lanes of a warp, hold of a run of consecutive elements.

This decides how wide the accesses to global memory are: `contiguous_elements` is what one lane can
move at once, `coalesced_elements` what a warp then covers without a gap. How far the elements of
the tile are consecutive in memory is not a matter of layout; the smaller number counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tilewright.layout.f2 import Echelon, combination, independent, log2, span
from tilewright.layout.linear import LinearLayout

__all__ = [
    "coalesced_elements",
    "contiguous_elements",
    "distinct_registers",
    "memory_vectors",
    "register_copies",
    "unit_registers",
]


def contiguous_elements(layout: LinearLayout, axis: int) -> int:
    """Return how many consecutive elements along `axis` each lane holds, aligned to that number.

    >>> tile = LinearLayout.from_bases(
    ...     {"register": [(0, 1), (2, 0), (0, 2)], "lane": [(0, 4), (1, 0)]},
    ...     {"dim0": 4, "dim1": 8},
    ... )
    >>> contiguous_elements(tile, axis=1), coalesced_elements(tile, axis=1, elements=4)
    (4, 8)
    """
    return 1 << len(_axis_units(layout, axis))


def coalesced_elements(layout: LinearLayout, axis: int, elements: int) -> int:
    """Return how many consecutive elements the lanes of a warp cover with `elements` each."""
    ordered = _axis_first(layout, axis)
    vector = [1 << bit for bit in range(log2(elements))]
    covered = Echelon([*vector, *ordered.columns_of("lane")])
    run = 0
    while run < ordered.outputs[0].bits and 1 << run in covered:
        run += 1
    return 1 << run


def memory_vectors(layout: LinearLayout, axis: int, elements: int) -> tuple[tuple[int, ...], ...]:
    """Return the registers in groups of `elements` that are consecutive along `axis`, in order.

    `elements` is at most `contiguous_elements`. Of registers that hold the same element only the
    first occurs; see `register_copies`.
    """
    units = _axis_units(layout, axis)[: log2(elements)]
    if 1 << len(units) != elements:
        raise ValueError(f"no groups of {elements} elements along axis {axis}:\n{layout}")
    columns = _axis_first(layout, axis).columns_of("register")
    solver = Echelon(columns)
    first = [1 << bit for bit, column in enumerate(columns) if solver.solve(column) == 1 << bit]
    starts = []
    for mask in independent(first, units):
        inside = combination(columns, mask) & (elements - 1)
        starts.append(mask ^ combination(units, inside))
    groups = (tuple(start ^ mask for mask in span(units)) for start in span(starts))
    return tuple(sorted(groups))


@lru_cache(maxsize=4096)
def register_copies(layout: LinearLayout) -> tuple[int, ...]:
    """Return for each register the first register of the lane that holds the same element.

    >>> register_copies(LinearLayout.from_bases({"register": [(1,), (0,)]}, {"dim0": 2}))
    (0, 1, 0, 1)
    """
    columns = layout.columns_of("register")
    solver = Echelon(columns)
    solutions = [solver.solve(column) or 0 for column in columns]
    return tuple(span(solutions))


@lru_cache(maxsize=4096)
def distinct_registers(layout: LinearLayout) -> tuple[int, ...]:
    """Return the registers that hold no copy of what another one of the lane holds before them.

    >>> distinct_registers(LinearLayout.from_bases({"register": [(1,), (0,)]}, {"dim0": 2}))
    (0, 1)
    """
    return tuple(sorted(set(register_copies(layout))))


def unit_registers(registers: Sequence[int], others: Sequence[int], limit: int) -> list[int]:
    """Return masks of register bits that step by 1, 2, 4, … elements, at most `limit` of them.

    `registers` and `others` are the places, along a line of elements, of the bits of registers and
    of everything else. A step that others take too would let the order of the registers differ
    from lane to lane, and ends the list.
    """
    solver = Echelon(registers)
    units: list[int] = []
    while len(units) < limit:
        mask = solver.solve(1 << len(units))
        if mask is None or any(other >> len(units) & 1 for other in others):
            break
        units.append(mask)
    return units


def _axis_first(layout: LinearLayout, axis: int) -> LinearLayout:
    inner = f"dim{axis}"
    return layout.transpose_outputs([inner, *(n for n in layout.output_names if n != inner)])


def _axis_units(layout: LinearLayout, axis: int) -> list[int]:
    ordered = _axis_first(layout, axis)
    others = ordered.columns_of(*(name for name in ordered.input_names if name != "register"))
    return unit_registers(ordered.columns_of("register"), others, ordered.outputs[0].bits)
