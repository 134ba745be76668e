"""Lists of the blocks that there are, for attention of which only some are.

A program goes over the rows of the blocks in its list: step `s` is in block `s // size` of the
list, whose number says which rows of the array these are. Lists are in ascending order, so what
is seen by positions is a range of steps, too.
"""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.attention.places import key_segments, query_segments, with_blocks
from tilewright.kernels.block_sparse import parts_of

__all__ = ["Lists", "key_steps", "lists_of", "query_steps", "row_at"]


class Lists(NamedTuple):
    """The blocks in each row of blocks, or in each column."""

    starts: Any  # where in `numbers` the list of a row begins; the next one's begins where it ends
    numbers: Any  # of the columns that these blocks are in
    at_head: Any  # how many rows a head has; 0 where heads have the same ones


def lists_of(table: Any, shape: list[int], *, by_column: bool) -> Lists:
    """Return the lists of a block sparsity that has this table and this shape."""
    parts, (heads, rows, columns, _, _) = parts_of(table, shape), shape
    if by_column:
        return Lists(parts["column_starts"], parts["row_by_column"], columns if heads > 1 else 0)
    return Lists(parts["row_starts"], parts["column"], rows if heads > 1 else 0)


@tw.jit
def row_at(place, sizes, step):
    """Return the number of the row at a step that is the first one of a tile."""
    if place.blocks is None:
        return step
    else:  # noqa: RET505 - both are compiled
        return tl.load(place.blocks + step // sizes.block) * sizes.block + step % sizes.block


@tw.jit
def key_steps(
    terms, sizes, place, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_PLAIN: tl.constexpr
):
    """Return the place, and from where to where its queries see keys, as `key_segments` does.

    If there are lists, these are steps of the one that the place then has.
    """
    bounds = key_segments(terms, place, first, BLOCK_M, BLOCK_N)
    if terms.lists is None:
        return place, bounds
    else:  # noqa: RET505 - both are compiled
        return steps_of(terms, sizes, place, first, bounds, terms.left is not None, not IS_PLAIN)


@tw.jit
def query_steps(terms, sizes, place, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the place, and from where to where queries see its keys, as `key_steps` does."""
    bounds = query_segments(terms, place, first, BLOCK_M, BLOCK_N)
    if terms.lists is None:
        return place, bounds
    else:  # noqa: RET505 - both are compiled
        # There are numbers of queries up to a multiple of 128.
        ends_within = terms.left is not None or sizes.block > 128
        begins_within = terms.right is not None
        return steps_of(terms, sizes, place, first, bounds, begins_within, ends_within)


@tw.jit
def steps_of(
    terms, sizes, place, first, bounds, BEGINS_WITHIN: tl.constexpr, ENDS_WITHIN: tl.constexpr
):
    """Return the place with the list of the row `first`, and `bounds` as steps instead of rows.

    Bounds are as `key_segments` returns them. Unless `BEGINS_WITHIN`, the first two are at the
    beginning of the list, and unless `ENDS_WITHIN`, the others at its end.
    """
    at = terms.lists.starts + place.head * terms.lists.at_head + first // sizes.block
    begin = tl.load(at)
    count = tl.load(at + 1) - begin
    place = with_blocks(place, terms.lists.numbers + begin)
    start, whole_start = count * 0, count * 0
    whole_end, end = count * sizes.block, count * sizes.block
    if BEGINS_WITHIN:
        start = steps_from_beginning(place, sizes, count, start, bounds[0])
        whole_start = steps_from_beginning(place, sizes, count, start, bounds[1])
    if ENDS_WITHIN:
        end = steps_from_end(place, sizes, end, bounds[3])
        whole_end = steps_from_end(place, sizes, end, bounds[2])
    return place, (start, whole_start, whole_end, end)


# What is out of bounds is a few blocks at an end of most lists. They are looked at one by one: so
# the loops over tiles count with numbers that all threads share, which GPUs keep apart.


@tw.jit
def steps_from_beginning(place, sizes, count, start, bound):
    """Return how many steps are before a bound; at least `start` are."""
    block = start // sizes.block
    row = tl.load(place.blocks + block, mask=block < count, other=0) * sizes.block
    while (block < count) & (row + sizes.block <= bound):
        block += 1
        row = tl.load(place.blocks + block, mask=block < count, other=0) * sizes.block
    within = tl.where(block < count, tl.maximum(bound - row, 0), 0)
    return block * sizes.block + within


@tw.jit
def steps_from_end(place, sizes, end, bound):
    """Return how many steps are before a bound; at most `end` are."""
    block = tl.cdiv(end, sizes.block) - 1
    row = tl.load(place.blocks + block, mask=block >= 0, other=0) * sizes.block
    while (block >= 0) & (row >= bound):
        block -= 1
        row = tl.load(place.blocks + block, mask=block >= 0, other=0) * sizes.block
    within = tl.where(block >= 0, tl.minimum(bound - row, sizes.block), sizes.block)
    return block * sizes.block + within
