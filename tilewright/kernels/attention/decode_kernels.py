"""The kernels of decoding: attention of a few new tokens to all that came before them.

The queries that share a key head are the rows of a tile. A long sequence is shared out to several
programs (Dao et al., "Flash-Decoding", 2023), whose parts a second kernel joins.
"""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.attention.logits import logits_of, weights_of
from tilewright.kernels.attention.places import Place
from tilewright.kernels.rows import accumulator

__all__ = ["decode_kernel", "join_parts_kernel"]


@tw.jit
def token_places(table, strides, step, pages, sequence, token, is_token, PAGE: tl.constexpr):
    """Return where tokens are in a cache whose axes have the steps `step`, and which are there.

    The cache has pages, or a row for each sequence. What the table names a page but is none has no
    tokens.
    """
    if table is None:
        return sequence.to(tl.int64) * step[0] + token.to(tl.int64) * step[1], is_token
    else:  # noqa: RET505 - both are compiled
        at_page = table + sequence.to(tl.int64) * strides[3] + token // PAGE
        page = tl.load(at_page, mask=is_token, other=0).to(tl.int64)
        # One comparison, for below 0, too: each lane of each layout makes it anew.
        is_there = is_token & (page.to(tl.uint64) < pages)
        return page * step[0] + (token % PAGE) * step[1], is_there


@tw.jit
def loaded_tokens(ptr, places, is_token, width, WIDTH: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Return rows of a cache; with `IS_WHOLE` a row has no padding."""
    feature = tl.arange(0, WIDTH)
    mask = is_token[:, None]
    if not IS_WHOLE:
        mask = mask & (feature < width)[None, :]
    return tl.load(ptr + places[:, None] + feature[None, :], mask=mask, other=0.0)


@tw.jit
def loaded_queries(ptr, strides, sizes, sequence, query, head, WIDTH: tl.constexpr):
    """Return the queries that share a key head, as rows."""
    feature = tl.arange(0, WIDTH)
    corner = ptr + sequence.to(tl.int64) * strides[0]
    at = query[:, None] * strides[1] + head[:, None] * strides[2] + feature[None, :]
    inside = (query < sizes.queries)[:, None] & (feature < sizes.width)[None, :]
    return tl.load(corner + at, mask=inside, other=0.0)


@tw.jit
def store_part(out_ptr, lse_ptr, sizes, result, is_row, state, split, SPLITS: tl.constexpr):
    """Store a part of some results, and the logarithms of sums of its weights."""
    highest, total, acc = state
    # A part without tokens has the weight exp2(-inf) in the sum of all parts.
    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    part = result.to(tl.int64) * SPLITS + split
    feature = tl.arange(0, acc.shape[1])
    at = part[:, None] * sizes.value_width + feature[None, :]
    inside = is_row[:, None] & (feature < sizes.value_width)[None, :]
    tl.store(out_ptr + at, tl.fdiv(acc, total[:, None]).to(out_ptr.dtype.element_ty), mask=inside)
    if SPLITS > 1:
        lse = tl.where(is_empty, -float("inf"), highest + tl.log2(total))
        tl.store(lse_ptr + part, lse, mask=is_row)


@tw.jit
def decode_kernel(
    q_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    lse_ptr,
    table,
    lengths,
    strides,
    pages,
    sizes,
    terms,
    scale: tl.float64,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One of `SPLITS` parts of a sequence, for one key head.

    `strides` are those of queries, keys and values, and of the table's rows.
    """
    DTYPE: tl.constexpr = accumulator(q_ptr.dtype.element_ty)
    sequence, key_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.minimum(tl.load(lengths + sequence), sizes.keys).to(tl.int32)
    start = tl.maximum(length - sizes.queries - terms.left, 0) if terms.left is not None else 0
    in_split = tl.cdiv(tl.cdiv(length - start, SPLITS), BLOCK_N) * BLOCK_N
    start += split * in_split
    end = tl.minimum(start + in_split, length)

    row = tl.arange(0, BLOCK_M)
    query, head = row // sizes.shared, key_head * sizes.shared + row % sizes.shared
    q = loaded_queries(q_ptr, strides[0], sizes, sequence, query, head, WIDTH)
    offset = length - sizes.queries
    place = Place(sequence, head[:, None], 0, 0, 0, sizes.queries, end, offset)
    keys_ptr = key_ptr + key_head * strides[1][2]
    values_ptr = value_ptr + key_head * strides[2][2]
    highest = tl.full((BLOCK_M,), -float("inf"), DTYPE)
    total = tl.zeros((BLOCK_M,), DTYPE)
    acc = tl.zeros((BLOCK_M, VALUE_WIDTH), DTYPE)
    scale = scale.to(DTYPE)
    for first in range(start, end, BLOCK_N):
        token = first + tl.arange(0, BLOCK_N)
        is_token = token < end
        places, is_there = token_places(
            table, strides, strides[1], pages, sequence, token, is_token, PAGE
        )
        keys = loaded_tokens(keys_ptr, places, is_there, sizes.width, WIDTH, IS_WHOLE)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION, out_dtype=DTYPE)
        if table is not None:
            scores = tl.where(is_there[None, :], scores, float("nan"))
        logits, factor = logits_of(
            scores, terms, place, query[:, None], token[None, :], scale, True
        )
        p, highest, rescale = weights_of(logits, factor, highest, True)
        total = total * rescale + tl.sum(p, axis=1)
        places, is_there = token_places(
            table, strides, strides[2], pages, sequence, token, is_token, PAGE
        )
        values = loaded_tokens(
            values_ptr, places, is_there, sizes.value_width, VALUE_WIDTH, IS_WHOLE
        )
        p = p.to(values.dtype)
        acc = acc * rescale[:, None]
        acc = tl.dot(p, values, acc, input_precision=PRECISION, out_dtype=DTYPE)

    result = (sequence * sizes.queries + query) * sizes.heads + head
    is_row = query < sizes.queries
    state = (highest, total, acc)
    store_part(out_ptr, lse_ptr, sizes, result, is_row, state, split, SPLITS)


@tw.jit
def join_parts_kernel(
    part_ptr, lse_ptr, out_ptr, value_width, SPLITS: tl.constexpr, VALUE_WIDTH: tl.constexpr
):
    """Add up the parts of the result for one head of a query by their weights."""
    result = tl.program_id(0).to(tl.int64)
    part = result * SPLITS + tl.arange(0, SPLITS)
    feature = tl.arange(0, VALUE_WIDTH)
    inside = feature < value_width
    lse = tl.load(lse_ptr + part)
    highest = tl.max(lse, axis=0)
    weight = tl.exp2(lse - tl.where(highest == -float("inf"), 0.0, highest))
    at = part[:, None] * value_width + feature[None, :]
    parts = tl.load(part_ptr + at, mask=inside[None, :], other=0.0)
    total = tl.sum(weight, axis=0)
    out = tl.sum(parts * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    at_result = result * value_width + feature
    tl.store(out_ptr + at_result, out.to(out_ptr.dtype.element_ty), mask=inside)
