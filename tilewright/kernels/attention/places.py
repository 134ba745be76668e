"""Where a program of attention works: its sequence, its heads, and the keys that queries see."""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl

__all__ = [
    "Place",
    "Sizes",
    "first_query_of",
    "key_segments",
    "keys_of",
    "loaded_block",
    "numbers_of",
    "of_head",
    "place_of",
    "queries_of",
    "query_segments",
    "results_of",
    "store_block",
    "store_numbers",
    "values_of",
    "with_blocks",
]


class Sizes(NamedTuple):
    """The sizes of the arrays; of sequences in one array, `queries` and `keys` are those of all."""

    batch: Any
    heads: Any
    key_heads: Any
    shared: Any  # query heads for each key head
    queries: Any
    keys: Any
    width: Any  # elements of a query and of a key
    value_width: Any
    rows: Any  # numbers for each head in arrays with a number for each query
    block: Any = None  # rows and columns of the blocks of which only some are there, a constant


class Place(NamedTuple):
    """The sequence and the head that a program works on."""

    batch: Any
    head: Any
    array_batch: Any  # where the sequence is in the arrays
    first_query: Any
    first_key: Any
    queries: Any  # how many the sequence has
    keys: Any
    offset: Any  # the position of the first query
    blocks: Any = None  # where the numbers of the blocks to go over are; None: all of them


@tw.jit
def sequence_of(starts, batch, length):
    """Return where a sequence is: its batch in the arrays, its first row there, its length.

    Of a sequence that is partly outside of the arrays, that is the part inside.
    """
    if starts is None:
        return batch, 0, length
    else:  # noqa: RET505 - both are compiled, and have other types
        start = tl.minimum(tl.maximum(tl.load(starts + batch), 0), length)
        end = tl.minimum(tl.load(starts + batch + 1), length)
        return batch * 0, start, tl.maximum(end - start, 0)


@tw.jit
def place_of(terms, sizes, batch, head):
    """Return the place of a sequence's head. Sequences of one array end at the same position."""
    array_batch, first_query, queries = sequence_of(terms.query_starts, batch, sizes.queries)
    _, first_key, keys = sequence_of(terms.key_starts, batch, sizes.keys)
    offset = terms.offset
    if terms.query_starts is not None:
        offset = keys - queries
    if terms.key_lengths is not None:
        keys = tl.minimum(keys, tl.load(terms.key_lengths + batch).to(tl.int32))
    return Place(batch, head, array_batch, first_query, first_key, queries, keys, offset)


@tw.jit
def first_query_of(terms, BLOCK_M: tl.constexpr):
    """Return the first query of this program's block."""
    block = tl.program_id(0)
    if terms.right is not None:
        # The programs with the most keys come first, so that none of them is the last.
        block = tl.num_programs(0) - 1 - block
    return block * BLOCK_M


@tw.jit
def of_head(place, head):
    """Return the same place for another head."""
    batch, _, array_batch, first_query, first_key, queries, keys, offset, blocks = place
    return Place(batch, head, array_batch, first_query, first_key, queries, keys, offset, blocks)


@tw.jit
def with_blocks(place, blocks):
    """Return the same place, where the blocks to go over are listed."""
    batch, head, array_batch, first_query, first_key, queries, keys, offset, _ = place
    return Place(batch, head, array_batch, first_query, first_key, queries, keys, offset, blocks)


@tw.jit
def rows_of(ptr, shape, strides, BLOCK: tl.constexpr):
    """Return a descriptor of (batch, heads, rows, width), for blocks of `BLOCK` rows of a head."""
    steps = [strides[0], strides[1], strides[2], 1]
    return tl.make_tensor_descriptor(ptr, shape, steps, BLOCK)


@tw.jit
def queries_of(ptr, sizes, strides, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return a descriptor of the queries, or of their gradient."""
    shape = [sizes.batch, sizes.heads, sizes.queries, sizes.width]
    return rows_of(ptr, shape, strides, [1, 1, ROWS, WIDTH])


@tw.jit
def keys_of(ptr, sizes, strides, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return a descriptor of the keys."""
    shape = [sizes.batch, sizes.key_heads, sizes.keys, sizes.width]
    return rows_of(ptr, shape, strides, [1, 1, ROWS, WIDTH])


@tw.jit
def values_of(ptr, sizes, strides, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return a descriptor of the values."""
    shape = [sizes.batch, sizes.key_heads, sizes.keys, sizes.value_width]
    return rows_of(ptr, shape, strides, [1, 1, ROWS, WIDTH])


@tw.jit
def results_of(ptr, sizes, strides, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return a descriptor of the results, or of their gradient."""
    shape = [sizes.batch, sizes.heads, sizes.queries, sizes.value_width]
    return rows_of(ptr, shape, strides, [1, 1, ROWS, WIDTH])


@tw.jit
def loaded_block(array, batch, head, row):
    """Return the rows of a head from `row` on, as a matrix."""
    block = array.load([batch, head, row, 0])
    return tl.reshape(block, (block.shape[2], block.shape[3]))


@tw.jit
def numbers_of(ptr, sizes, place, query, other):
    """Return the numbers of queries of a head, and `other` for those that there are not."""
    row = (place.array_batch * sizes.heads + place.head).to(tl.int64) * sizes.rows
    numbers = tl.load(ptr + row + place.first_query + query)
    return tl.where(query < place.queries, numbers, other)


@tw.jit
def store_numbers(ptr, sizes, place, query, numbers):
    """Store a number for each query of a head that there is."""
    row = (place.array_batch * sizes.heads + place.head).to(tl.int64) * sizes.rows
    tl.store(ptr + row + place.first_query + query, numbers, mask=query < place.queries)


@tw.jit
def store_block(array, strides, place, row, count, block, width, BY_DESCRIPTOR: tl.constexpr):
    """Store the first `count` rows of a block, from `row` on, in the place's head of an array.

    `array` is a descriptor, which cuts off what is outside of the array, or a pointer, where the
    rows of another sequence may follow or rows are not aligned.
    """
    if BY_DESCRIPTOR:
        block = tl.reshape(block.to(array.dtype), (1, 1, block.shape[0], block.shape[1]))
        array.store([place.array_batch, place.head, row, 0], block)
    else:
        number = tl.arange(0, block.shape[0])
        column = tl.arange(0, block.shape[1])
        corner = place.array_batch.to(tl.int64) * strides[0] + place.head.to(tl.int64) * strides[1]
        at = corner + (row + number).to(tl.int64)[:, None] * strides[2] + column[None, :]
        mask = (number < count)[:, None] & (column < width)[None, :]
        tl.store(array + at, block.to(array.dtype.element_ty), mask=mask)


@tw.jit
def key_segments(terms, place, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return from where to where the queries from `first` on see keys, by their positions.

    These are four numbers: between the middle two, multiples of `BLOCK_N`, all see all; some may
    see some from the first to the second one, and from the third one to the last. Ranges may be
    empty; the first one ends where the last one does, at the latest.
    """
    last = tl.minimum(first + BLOCK_M, place.queries) - 1
    start = 0
    whole_start = 0
    end = place.keys
    whole_end = place.keys
    if terms.right is not None:
        end = tl.maximum(tl.minimum(end, last + place.offset + terms.right + 1), 0)
        whole_end = tl.maximum(tl.minimum(whole_end, first + place.offset + terms.right + 1), 0)
    whole_end = whole_end // BLOCK_N * BLOCK_N
    if terms.left is not None:
        start = tl.maximum(first + place.offset - terms.left, 0) // BLOCK_N * BLOCK_N
        whole_start = tl.cdiv(tl.maximum(last + place.offset - terms.left, 0), BLOCK_N) * BLOCK_N
        whole_end = tl.maximum(whole_end, whole_start)
    return start, whole_start, whole_end, end


@tw.jit
def query_segments(terms, place, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return from where to where queries see the keys from `first` on, as `key_segments` does.

    Numbers of queries are rounded to multiples of `BLOCK_M`.
    """
    last = tl.minimum(first + BLOCK_N, place.keys) - 1
    start = 0
    whole_start = 0
    end = tl.cdiv(place.queries, BLOCK_M) * BLOCK_M
    whole_end = end
    if terms.right is not None:
        start = tl.maximum(first - place.offset - terms.right, 0) // BLOCK_M * BLOCK_M
        whole_start = tl.cdiv(tl.maximum(last - place.offset - terms.right, 0), BLOCK_M) * BLOCK_M
    if terms.left is not None:
        reach = tl.maximum(last - place.offset + terms.left + 1, 0)
        end = tl.minimum(end, tl.cdiv(reach, BLOCK_M) * BLOCK_M)
        whole = tl.maximum(first - place.offset + terms.left + 1, 0) // BLOCK_M * BLOCK_M
        whole_end = tl.maximum(tl.minimum(whole_end, whole), whole_start)
    return start, whole_start, whole_end, end
