"""Register layouts for any target: blocked, and slices of other layouts.

Also the two steps with which all families of register layouts end: warps are spread over the tile,
and the pattern that results is fitted to the tile's shape.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.f2 import independent, is_power_of_two
from tilewright.layout.linear import Dimension, LinearLayout

__all__ = ["axis_names", "blocked", "fit", "slice_of", "spread_warps"]


def axis_names(rank: int) -> list[str]:
    """Return the names of the coordinates of a tile: dim0, dim1, …."""
    return [f"dim{axis}" for axis in range(rank)]


def blocked(
    shape: Sequence[int],
    size_per_thread: Sequence[int],
    threads_per_warp: Sequence[int],
    warps_per_block: Sequence[int],
    order: Sequence[int],
) -> LinearLayout:
    """Return the layout in which each lane holds a small block, and lanes and warps tile the rest.

    `order` lists the axes, the one along which registers, lanes and warps are counted first in
    front. A tile larger than the pattern repeats it in further registers, first along `order[0]`;
    along an axis where the tile is smaller, places hold copies.

    >>> from tilewright.layout.table import draw
    >>> print(draw(blocked((4, 4), (1, 2), (2, 2), (2, 1), (1, 0))))
    w0,l0,r0 w0,l0,r1 w0,l1,r0 w0,l1,r1
    w0,l2,r0 w0,l2,r1 w0,l3,r0 w0,l3,r1
    w1,l0,r0 w1,l0,r1 w1,l1,r0 w1,l1,r1
    w1,l2,r0 w1,l2,r1 w1,l3,r0 w1,l3,r1
    """
    layout = LinearLayout.empty(("register", "lane", "warp"))
    parts = (size_per_thread, "register"), (threads_per_warp, "lane"), (warps_per_block, "warp")
    for sizes, place in parts:
        for axis in order:
            layout *= LinearLayout.identity(sizes[axis], place, f"dim{axis}")
    return fit(layout, shape)


def slice_of(parent: LinearLayout, axis: int) -> LinearLayout:
    """Return the layout of a tile that lacks one axis of `parent`: what reducing that axis leaves.

    Register bits that then only hold copies are dropped; lanes and warps stay, with copies.

    >>> rows = slice_of(blocked((4, 4), (1, 2), (2, 2), (2, 1), (1, 0)), axis=1)
    >>> print(rows)
    register:
    lane: (0,) (1,)
    warp: (2,)
    to dim0 4
    """
    removed = parent.remove_output(f"dim{axis}")
    numbered = axis_names(len(removed.outputs))
    removed = removed.rename(dict(zip(removed.output_names, numbered, strict=True)))
    registers = independent(removed.columns_of("register"))
    others = [dimension for dimension in parent.inputs if dimension.name != "register"]
    columns = (*registers, *removed.columns_of(*(dimension.name for dimension in others)))
    inputs = (Dimension("register", len(registers)), *others)
    return LinearLayout(inputs, removed.outputs, columns)


def spread_warps(
    tile: LinearLayout, warps: Sequence[int], order: Sequence[int], shared_axis: int | None = None
) -> LinearLayout:
    """Place one `tile` per warp side by side, counting the warps along `order[0]` first.

    Warps along `shared_axis` hold the same elements.
    """
    for axis in order:
        make = LinearLayout.zeros if axis == shared_axis else LinearLayout.identity
        tile *= make(warps[axis], "warp", f"dim{axis}")
    return tile


def fit(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """Repeat a pattern in further registers until it fills `shape`, or fold it where it is larger.

    Registers grow along the outputs in the order in which `layout` lists them. A place whose
    coordinate lies outside of the tile holds the element at the remainder.
    """
    if not all(is_power_of_two(size) for size in shape):
        raise ValueError(f"sizes of a tile in registers are powers of two, not {tuple(shape)}")
    sizes = dict(zip(axis_names(len(shape)), shape, strict=True))
    for name in layout.output_names:
        repeats = max(1, sizes[name] // layout.output_size(name))
        layout *= LinearLayout.identity(repeats, "register", name)
    bases = {
        place: [tuple(basis.get(name, 0) % sizes[name] for name in sizes) for basis in group]
        for place, group in ((name, layout.bases(name)) for name in layout.input_names)
    }
    return LinearLayout.from_bases(bases, sizes)
