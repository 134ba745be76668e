"""The forward pass of attention, in one go over the keys: Dao et al., "FlashAttention", 2022."""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.attention.lists import key_steps, row_at
from tilewright.kernels.attention.logits import kept, kept_factor, logits_of, weights_of
from tilewright.kernels.attention.places import (
    first_query_of,
    keys_of,
    loaded_block,
    place_of,
    queries_of,
    results_of,
    store_block,
    store_numbers,
    values_of,
)
from tilewright.kernels.attention.tiles import FORWARD, tuned
from tilewright.kernels.rows import accumulator

__all__ = ["attention_kernel"]


@tw.jit
def scores_of(operands, sizes, place, first, DTYPE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the products of the queries and a block of keys."""
    queries, k, _ = operands
    keys = loaded_block(k, place.array_batch, place.head // sizes.shared, place.first_key + first)
    return tl.dot(queries, tl.trans(keys), input_precision=PRECISION, out_dtype=DTYPE)


@tw.jit
def folded(
    operands,
    state,
    scores,
    terms,
    sizes,
    place,
    query,
    scale,
    first,
    EDGE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the state with the block of values from `first` on, by the scores of its keys."""
    highest, total, acc = state
    has_masks: tl.constexpr = terms.bias is not None or terms.mask_mod is not None
    can_be_empty: tl.constexpr = EDGE or has_masks or terms.score_mod is not None
    key = first + tl.arange(0, scores.shape[1])
    logits, factor = logits_of(scores, terms, place, query[:, None], key[None, :], scale, EDGE)
    p, highest, rescale = weights_of(logits, factor, highest, can_be_empty)
    total = total * rescale + tl.sum(p, axis=1)
    if terms.seed is not None:
        p = tl.where(kept(terms, place, query[:, None], key[None, :], sizes.heads), p, 0.0)
    key_head = place.head // sizes.shared
    values = loaded_block(operands[2], place.array_batch, key_head, place.first_key + first)
    p = p.to(values.dtype)
    acc = acc * rescale[:, None]
    acc = tl.dot(p, values, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return highest, total, acc


@tw.jit
def attend(
    operands,
    state,
    ahead,
    terms,
    sizes,
    place,
    query,
    scale,
    start,
    end,
    BLOCK_N: tl.constexpr,
    EDGE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Go over the keys from `start` to `end`; return the state, and the scores after them.

    `ahead`: the scores of the first block, whose softmax then runs beside the products of the
    next block's; or None, as where these are steps of a list.
    """
    DTYPE: tl.constexpr = state[2].dtype
    for step in tl.range(start, end, BLOCK_N):
        first = row_at(place, sizes, step)
        if ahead is None:
            scores = scores_of(operands, sizes, place, first, DTYPE, PRECISION)
        else:
            scores = ahead
            ahead = scores_of(operands, sizes, place, first + BLOCK_N, DTYPE, PRECISION)
        state = folded(
            operands, state, scores, terms, sizes, place, query, scale, first, EDGE, PRECISION
        )
    return state, ahead


@tw.jit
def attend_all(
    operands,
    state,
    terms,
    sizes,
    place,
    query,
    scale,
    bounds,
    BLOCK_N: tl.constexpr,
    IS_PLAIN: tl.constexpr,
    AHEAD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Go over the segments of keys between the bounds."""
    DTYPE: tl.constexpr = state[2].dtype
    last = bounds[3]
    ahead = None
    if AHEAD:  # the last block, by itself: there is always one, with keys that are seen or without
        last = bounds[0] + tl.maximum(tl.cdiv(bounds[3] - bounds[0], BLOCK_N) - 1, 0) * BLOCK_N
        ahead = scores_of(operands, sizes, place, bounds[0], DTYPE, PRECISION)
    for part in tl.static_range(3):
        if part == 1 or (part == 0 and terms.left is not None) or (part == 2 and not IS_PLAIN):
            state, ahead = attend(
                operands,
                state,
                ahead,
                terms,
                sizes,
                place,
                query,
                scale,
                bounds[part],
                tl.minimum(bounds[part + 1], last),
                BLOCK_N,
                part != 1,
                PRECISION,
            )
    if AHEAD:
        state = folded(
            operands,
            state,
            ahead,
            terms,
            sizes,
            place,
            query,
            scale,
            last,
            not IS_PLAIN,
            PRECISION,
        )
    return state


@tuned(FORWARD, "IS_PLAIN", "IS_CAUSAL")
@tw.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    strides,
    sizes,
    terms,
    scale: tl.float64,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    IS_PLAIN: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AHEAD: tl.constexpr = False,
):
    """Attention of `BLOCK_M` queries of a head; `IS_PLAIN`: to whole blocks of keys, all alike.

    `IS_CAUSAL`: with no other terms than a limit on later keys, for which blocks are chosen.
    `AHEAD`: the products of a block of queries and keys run beside the softmax of the one before.
    """
    DTYPE: tl.constexpr = accumulator(q_ptr.dtype.element_ty)
    place = place_of(terms, sizes, tl.program_id(2), tl.program_id(1))
    first = first_query_of(terms, BLOCK_M)
    if terms.query_starts is not None and first >= place.queries:  # of a shorter sequence
        return
    q = queries_of(q_ptr, sizes, strides[0], BLOCK_M, WIDTH)
    k = keys_of(k_ptr, sizes, strides[1], BLOCK_N, WIDTH)
    v = values_of(v_ptr, sizes, strides[2], BLOCK_N, VALUE_WIDTH)
    query = first + tl.arange(0, BLOCK_M)
    queries = loaded_block(q, place.array_batch, place.head, place.first_query + first)
    highest = tl.full((BLOCK_M,), -float("inf"), DTYPE)
    state = (highest, tl.zeros((BLOCK_M,), DTYPE), tl.zeros((BLOCK_M, VALUE_WIDTH), DTYPE))
    scale = scale.to(DTYPE)
    place, bounds = key_steps(terms, sizes, place, first, BLOCK_M, BLOCK_N, IS_PLAIN)
    highest, total, acc = attend_all(
        (queries, k, v),
        state,
        terms,
        sizes,
        place,
        query,
        scale,
        bounds,
        BLOCK_N,
        IS_PLAIN,
        AHEAD,
        PRECISION,
    )
    if terms.seed is not None:
        acc = acc * kept_factor(terms)
    lse = highest + tl.log2(total)
    if not IS_PLAIN or terms.lists is not None:
        # Without keys the result is 0, and what the backward pass divides by is infinite.
        is_empty = total == 0.0
        total = tl.where(is_empty, 1.0, total)
        lse = tl.where(is_empty, float("inf"), lse)
    store_numbers(lse_ptr, sizes, place, query, lse)
    out = out_ptr
    if BY_DESCRIPTOR:
        out = results_of(out_ptr, sizes, strides[3], BLOCK_M, VALUE_WIDTH)
    row = place.first_query + first
    count = place.queries - first
    acc = tl.fdiv(acc, total[:, None])
    store_block(out, strides[3], place, row, count, acc, sizes.value_width, BY_DESCRIPTOR)
