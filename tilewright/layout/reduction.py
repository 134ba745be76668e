"""The steps of a reduction along one axis of a tile: in registers, between lanes, between warps."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.layout.f2 import Echelon, dependencies
from tilewright.layout.linear import Dimension, LinearLayout

__all__ = ["Partner", "reduction_steps"]


class Partner(NamedTuple):
    """Where a place finds the value to combine its own with: its indices xored with these masks."""

    register: int = 0
    lane: int = 0
    warp: int = 0
    block: int = 0


def reduction_steps(layout: LinearLayout, axis: int) -> tuple[Partner, ...]:
    """Return the steps after which every place holds the reduction of its whole line along `axis`.

    In each step every place combines its value with that of its partner. Steps that stay in the
    registers of a lane come first, then those between lanes of a warp, then those between warps,
    and blocks. Copies of one element are never combined. What remains is `slice_of(layout, axis)`,
    and a register step need only be computed for the registers that later steps read.

    >>> tile = LinearLayout.from_bases(
    ...     {"register": [(0, 1), (1, 0)], "lane": [(0, 2), (2, 0)]}, {"dim0": 4, "dim1": 4}
    ... )
    >>> reduction_steps(tile, axis=1)
    (Partner(register=1, lane=0, warp=0, block=0), Partner(register=0, lane=1, warp=0, block=0))
    """
    names = Partner._fields
    ordered = layout.sublayout(names, layout.output_names)
    lines = ordered.remove_output(f"dim{axis}")
    copies = Echelon(dependencies(ordered.columns))
    steps = [mask for mask in dependencies(lines.columns) if copies.add(mask)]
    return tuple(_partner(ordered.inputs, mask) for mask in steps)


def _partner(inputs: tuple[Dimension, ...], mask: int) -> Partner:
    indices = []
    for _, bits in inputs:
        indices.append(mask & ((1 << bits) - 1))
        mask >>= bits
    return Partner(*indices)
