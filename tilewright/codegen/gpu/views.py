"""Layouts of tiles of any size, and how the ops that only move elements change them.

Registers hold tiles whose sizes are powers of two: a tile of other sizes is padded, and what lies
beyond its end is never read from memory, stored or reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tilewright import ops
from tilewright.ir.core import Op
from tilewright.layout.blocked import axis_names, slice_of
from tilewright.layout.linear import LinearLayout

__all__ = ["cut", "operand_layout", "padded", "result_layout", "split_layout", "without"]


def padded(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes rounded up to powers of two.

    >>> padded((3, 64))
    (4, 64)
    """
    return tuple(1 << (size - 1).bit_length() for size in shape)


@lru_cache(maxsize=4096)
def cut(layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    """Return the layout with coordinates modulo the sizes of a smaller tile."""
    sizes = dict(zip(axis_names(len(shape)), shape, strict=True))
    bases = {
        place: [tuple(basis[name] % size for name, size in sizes.items()) for basis in group]
        for place, group in ((name, layout.bases(name)) for name in layout.input_names)
    }
    return LinearLayout.from_bases(bases, sizes)


def operand_layout(op: Op, layout: LinearLayout) -> LinearLayout | None:
    """Return where the same registers lie in the operand of an op that only moves elements.

    None stands for an op that does more.
    """
    match op:
        case ops.Broadcast(x=x):
            return cut(layout, padded(x.shape))
        case ops.ExpandDims(axis=axis):
            return without(layout, axis)
        case ops.Permute(order=order):
            return _permuted(layout, order)
        case ops.Hint():
            return layout
        case ops.Reshape(x=x):
            return _refolded(layout, padded(x.shape))
    return None


def result_layout(
    op: ops.ExpandDims | ops.Permute | ops.Reshape | ops.Split, layout: LinearLayout
) -> LinearLayout:
    """Return where the elements of the operand's registers lie in the result of such an op.

    Of a tile that is split, both halves are where it was, with copies where one half was.
    """
    match op:
        case ops.Permute(order=order):
            return _permuted(layout, tuple(order.index(axis) for axis in range(len(order))))
        case ops.ExpandDims() | ops.Reshape():
            return _refolded(layout, padded(op.shape))
    return slice_of(layout, len(op.x.shape) - 1)


@lru_cache(maxsize=4096)
def without(layout: LinearLayout, axis: int) -> LinearLayout:
    """Return the layout without an axis; registers stay, also those that then hold copies."""
    smaller = layout.remove_output(f"dim{axis}")
    names = axis_names(len(smaller.outputs))
    return smaller.rename(dict(zip(smaller.output_names, names, strict=True)))


@lru_cache(maxsize=4096)
def _permuted(layout: LinearLayout, order: tuple[int, ...]) -> LinearLayout:
    names = {f"dim{i}": f"dim{axis}" for i, axis in enumerate(order)}
    return layout.rename(names).transpose_outputs(axis_names(len(order)))


@lru_cache(maxsize=4096)
def _refolded(layout: LinearLayout, source: tuple[int, ...]) -> LinearLayout:
    """Row-major: the last axis has the lowest bits."""
    names = axis_names(len(source))
    sizes = dict(zip(reversed(names), reversed(source), strict=True))
    last_first = layout.transpose_outputs(list(reversed(layout.output_names)))
    return last_first.reshape_outputs(sizes).transpose_outputs(names)


@lru_cache(maxsize=4096)
def split_layout(layout: LinearLayout) -> LinearLayout:
    """Return a layout with one more axis, of size 2, along which register bit 0 goes."""
    rank = len(layout.outputs)
    halves = LinearLayout.identity(2, "register", f"dim{rank}") * layout
    return halves.transpose_outputs(axis_names(rank + 1))
