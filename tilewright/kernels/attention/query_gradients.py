"""The gradient of the queries, in one go over the keys: Dao, "FlashAttention-2", 2023."""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.attention.lists import key_steps, row_at
from tilewright.kernels.attention.logits import score_gradients
from tilewright.kernels.attention.places import (
    first_query_of,
    keys_of,
    loaded_block,
    numbers_of,
    place_of,
    queries_of,
    results_of,
    store_block,
    store_numbers,
    values_of,
)
from tilewright.kernels.attention.tiles import QUERY_GRADIENTS, tuned
from tilewright.kernels.rows import accumulator

__all__ = ["query_gradients_kernel"]


@tw.jit
def go_over_keys(
    operands,
    query_gradient,
    terms,
    sizes,
    place,
    query,
    scale,
    bias_gradient_ptr,
    start,
    end,
    BLOCK_N: tl.constexpr,
    EDGE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add to the gradient of queries what the keys from `start` to `end` contribute."""
    queries, out_gradient, lse, delta, k, v = operands
    DTYPE: tl.constexpr = query_gradient.dtype
    key_head = place.head // sizes.shared
    for step in tl.range(start, end, BLOCK_N):
        first = row_at(place, sizes, step)
        row = place.first_key + first
        key = first + tl.arange(0, BLOCK_N)
        keys = loaded_block(k, place.array_batch, key_head, row)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION, out_dtype=DTYPE)
        values = loaded_block(v, place.array_batch, key_head, row)
        products = tl.dot(
            out_gradient, tl.trans(values), input_precision=PRECISION, out_dtype=DTYPE
        )
        _, gradients, logit_gradients = score_gradients(
            scores,
            products,
            lse[:, None],
            delta[:, None],
            terms,
            place,
            query[:, None],
            key[None, :],
            scale,
            sizes.heads,
            EDGE,
        )
        if bias_gradient_ptr is not None:
            head = (place.batch * sizes.heads + place.head).to(tl.int64)
            at = (head * sizes.queries + query[:, None]) * sizes.keys + key[None, :]
            inside = (query < place.queries)[:, None] & (key < sizes.keys)[None, :]
            tl.store(bias_gradient_ptr + at, logit_gradients, mask=inside)
        gradients = gradients.to(keys.dtype)
        query_gradient = tl.dot(
            gradients, keys, query_gradient, input_precision=PRECISION, out_dtype=DTYPE
        )
    return query_gradient


@tuned(QUERY_GRADIENTS)
@tw.jit
def query_gradients_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    results,
    numbers,
    gradients,
    strides,
    sizes,
    terms,
    scale: tl.float64,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    IS_PLAIN: tl.constexpr,
    PRECISION: tl.constexpr,
    BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The gradient of `BLOCK_M` queries of a head, that of the bias, and `delta`.

    `results` are the result and its gradient, `numbers` what there is for each query: `lse` and
    `delta`; `gradients` those of the queries, and of the bias or None.
    """
    DTYPE: tl.constexpr = accumulator(q_ptr.dtype.element_ty)
    place = place_of(terms, sizes, tl.program_id(2), tl.program_id(1))
    first = first_query_of(terms, BLOCK_M)
    if terms.query_starts is not None and first >= place.queries:  # of a shorter sequence
        return
    place, bounds = key_steps(terms, sizes, place, first, BLOCK_M, BLOCK_N, IS_PLAIN)
    q = queries_of(q_ptr, sizes, strides[0], BLOCK_M, WIDTH)
    k = keys_of(k_ptr, sizes, strides[1], BLOCK_N, WIDTH)
    v = values_of(v_ptr, sizes, strides[2], BLOCK_N, VALUE_WIDTH)
    out = results_of(results[0], sizes, strides[3], BLOCK_M, VALUE_WIDTH)
    out_gradients = results_of(results[1], sizes, strides[4], BLOCK_M, VALUE_WIDTH)
    query = first + tl.arange(0, BLOCK_M)
    row = place.first_query + first
    queries = loaded_block(q, place.array_batch, place.head, row)
    out_gradient = loaded_block(out_gradients, place.array_batch, place.head, row)
    out = loaded_block(out, place.array_batch, place.head, row)
    delta = tl.sum(out.to(DTYPE) * out_gradient.to(DTYPE), axis=1)
    lse = numbers_of(numbers[0], sizes, place, query, float("inf"))
    store_numbers(numbers[1], sizes, place, query, delta)
    scale = scale.to(DTYPE)
    gradient = tl.zeros((BLOCK_M, WIDTH), DTYPE)
    for part in tl.static_range(3):
        if part == 1 or (part == 0 and terms.left is not None) or (part == 2 and not IS_PLAIN):
            gradient = go_over_keys(
                (queries, out_gradient, lse, delta, k, v),
                gradient,
                terms,
                sizes,
                place,
                query,
                scale,
                gradients[1],
                bounds[part],
                tl.minimum(bounds[part + 1], bounds[3]),
                BLOCK_N,
                part != 1,
                PRECISION,
            )
    array = gradients[0]
    if BY_DESCRIPTOR:
        array = queries_of(array, sizes, strides[5], BLOCK_M, WIDTH)
    count = place.queries - first
    gradient *= scale
    store_block(array, strides[5], place, row, count, gradient, sizes.width, BY_DESCRIPTOR)
