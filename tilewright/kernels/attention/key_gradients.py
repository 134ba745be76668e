"""The gradients of keys and values, in one go over the queries: no sum is made by atomics."""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.attention.lists import query_steps, row_at
from tilewright.kernels.attention.logits import score_gradients
from tilewright.kernels.attention.places import (
    keys_of,
    loaded_block,
    numbers_of,
    of_head,
    place_of,
    queries_of,
    results_of,
    store_block,
    values_of,
)
from tilewright.kernels.attention.tiles import KEY_GRADIENTS, tuned
from tilewright.kernels.rows import accumulator

__all__ = ["key_gradients_kernel"]


@tw.jit
def go_over_queries(
    operands,
    state,
    terms,
    sizes,
    place,
    key,
    scale,
    start,
    end,
    BLOCK_M: tl.constexpr,
    EDGE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add to the gradients of keys and values what the queries from `start` to `end` contribute."""
    keys, values, q, out_gradients, lse_ptr, delta_ptr = operands
    key_gradient, value_gradient = state
    DTYPE: tl.constexpr = key_gradient.dtype
    for step in tl.range(start, end, BLOCK_M):
        first = row_at(place, sizes, step)
        row = place.first_query + first
        query = first + tl.arange(0, BLOCK_M)
        queries = loaded_block(q, place.array_batch, place.head, row)
        # Keys along the first axis: weights and gradients are then left operands of products.
        scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION, out_dtype=DTYPE)
        out_gradient = loaded_block(out_gradients, place.array_batch, place.head, row)
        products = tl.dot(
            values, tl.trans(out_gradient), input_precision=PRECISION, out_dtype=DTYPE
        )
        lse = numbers_of(lse_ptr, sizes, place, query, float("inf"))
        delta = numbers_of(delta_ptr, sizes, place, query, 0.0)
        weights, gradients, _ = score_gradients(
            scores,
            products,
            lse[None, :],
            delta[None, :],
            terms,
            place,
            query[None, :],
            key[:, None],
            scale,
            sizes.heads,
            EDGE,
        )
        weights = weights.to(out_gradient.dtype)
        value_gradient = tl.dot(
            weights, out_gradient, value_gradient, input_precision=PRECISION, out_dtype=DTYPE
        )
        gradients = gradients.to(queries.dtype)
        key_gradient = tl.dot(
            gradients, queries, key_gradient, input_precision=PRECISION, out_dtype=DTYPE
        )
    return key_gradient, value_gradient


@tuned(KEY_GRADIENTS)
@tw.jit
def key_gradients_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_gradient_ptr,
    numbers,
    gradients,
    strides,
    sizes,
    terms,
    scale: tl.float64,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
    BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The gradients of `BLOCK_N` keys and values, from all heads of queries that share them."""
    DTYPE: tl.constexpr = accumulator(q_ptr.dtype.element_ty)
    place = place_of(terms, sizes, tl.program_id(2), tl.program_id(1))
    first = tl.program_id(0) * BLOCK_N
    stored_keys = sizes.keys if terms.key_starts is None else place.keys
    if terms.key_starts is not None and first >= stored_keys:  # of a shorter sequence
        return
    q = queries_of(q_ptr, sizes, strides[0], BLOCK_M, WIDTH)
    k = keys_of(k_ptr, sizes, strides[1], BLOCK_N, WIDTH)
    v = values_of(v_ptr, sizes, strides[2], BLOCK_N, VALUE_WIDTH)
    out_gradients = results_of(out_gradient_ptr, sizes, strides[3], BLOCK_M, VALUE_WIDTH)
    key = first + tl.arange(0, BLOCK_N)
    keys = loaded_block(k, place.array_batch, place.head, place.first_key + first)
    values = loaded_block(v, place.array_batch, place.head, place.first_key + first)
    scale = scale.to(DTYPE)
    state = (tl.zeros((BLOCK_N, WIDTH), DTYPE), tl.zeros((BLOCK_N, VALUE_WIDTH), DTYPE))
    for number in range(sizes.shared):
        own = of_head(place, place.head * sizes.shared + number)
        own, bounds = query_steps(terms, sizes, own, first, BLOCK_M, BLOCK_N)
        for part in tl.static_range(3):
            is_bounded = (terms.right, None, terms.left)[part] is not None
            if part == 1 or is_bounded:
                state = go_over_queries(
                    (keys, values, q, out_gradients, numbers[0], numbers[1]),
                    state,
                    terms,
                    sizes,
                    own,
                    key,
                    scale,
                    bounds[part],
                    tl.minimum(bounds[part + 1], bounds[3]),
                    BLOCK_M,
                    part != 1,
                    PRECISION,
                )
    is_seen = (key < place.keys)[:, None]
    key_gradient = tl.where(is_seen, state[0] * scale, 0.0)
    value_gradient = tl.where(is_seen, state[1], 0.0)
    key_array, value_array = gradients
    if BY_DESCRIPTOR:
        key_array = keys_of(key_array, sizes, strides[4], BLOCK_N, WIDTH)
        value_array = values_of(value_array, sizes, strides[5], BLOCK_N, VALUE_WIDTH)
    row = place.first_key + first
    count = stored_keys - first
    store_block(key_array, strides[4], place, row, count, key_gradient, sizes.width, BY_DESCRIPTOR)
    store_block(
        value_array, strides[5], place, row, count, value_gradient, sizes.value_width, BY_DESCRIPTOR
    )
