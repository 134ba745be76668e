"""The backward pass of attention in one go over the logits: Dao, "FlashAttention-2", 2023.

Arrays are (batch * heads * length, HEAD), contiguous, and `length` is a multiple of the blocks.
`lse`, that of the forward pass in base 2, and `delta` are (batch * heads, length). The gradient of
the queries is summed in fp32 by all programs that have a part of it, with `IS_TRANSPOSED` as
(batch * heads * HEAD, length): then no tile is transposed on the way to a product.
"""

import triton
import triton.language as tl


@triton.jit
def prepare_kernel(
    out_ptr, grad_ptr, delta_ptr, query_sums_ptr, HEAD: tl.constexpr, BLOCK: tl.constexpr
):
    """`delta = sum(out * grad)` of each query, and zeros to sum the queries' gradients in."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    out = tl.load(out_ptr + at).to(tl.float32)
    grad = tl.load(grad_ptr + at).to(tl.float32)
    tl.store(delta_ptr + row, tl.sum(out * grad, axis=1))
    tl.store(query_sums_ptr + at, tl.zeros((BLOCK, HEAD), tl.float32))


@triton.jit
def finish_kernel(
    query_sums_ptr,
    query_grad_ptr,
    scale,
    length,
    HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
):
    """Scale and round the sums of `BLOCK` queries of the head `program_id(1)`."""
    head = tl.program_id(1).to(tl.int64)
    query = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = tl.arange(0, HEAD)
    at = (head * length + query)[:, None] * HEAD + feature[None, :]
    if IS_TRANSPOSED:
        at_sums = (head * HEAD + feature)[:, None] * length + query[None, :]
        sums = tl.trans(tl.load(query_sums_ptr + at_sums))
    else:
        sums = tl.load(query_sums_ptr + at)
    tl.store(query_grad_ptr + at, (sums * scale).to(query_grad_ptr.dtype.element_ty))


@triton.jit
def go_over_queries(
    keys,
    values,
    key_grad,
    value_grad,
    q,
    grad,
    query_sums,
    lse,
    delta,
    scale_log2,
    head,
    length,
    first_key,
    start,
    end,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_MASKED: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
):
    """Add to the gradients what the queries from `start` to `end` contribute."""
    for first in tl.range(start, end, BLOCK_M):
        row = head * length + first
        queries = q.load([row, 0])
        # Keys along the first axis: p and dp are then left operands of the next products.
        logits = tl.dot(keys, tl.trans(queries))
        p = tl.exp2(logits * scale_log2 - lse.load([head, first]))
        if IS_MASKED:
            query = first + tl.arange(0, BLOCK_M)
            key = first_key + tl.arange(0, BLOCK_N)
            p = tl.where(query[None, :] >= key[:, None], p, 0.0)
        out_grad = grad.load([row, 0])
        value_grad = tl.dot(p.to(out_grad.dtype), out_grad, value_grad)
        p_grad = tl.dot(values, tl.trans(out_grad))
        logits_grad = (p * (p_grad - delta.load([head, first]))).to(queries.dtype)
        key_grad = tl.dot(logits_grad, queries, key_grad)
        if IS_TRANSPOSED:
            query_sums.atomic_add([head * HEAD, first], tl.dot(tl.trans(keys), logits_grad))
        else:
            query_sums.atomic_add([row, 0], tl.dot(tl.trans(logits_grad), keys))
    return key_grad, value_grad


@triton.jit
def attention_backward_kernel(
    q,
    k,
    v,
    grad,
    query_sums,
    k_grad,
    v_grad,
    lse,
    delta,
    scale,
    scale_log2,
    length,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
):
    """`BLOCK_N` keys of the head `program_id(1)`; operands but numbers are descriptors.

    `IS_CAUSAL` needs a `BLOCK_N` that is a multiple of `BLOCK_M`.
    """
    first_key = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    key_row = head * length + first_key
    keys = k.load([key_row, 0])
    values = v.load([key_row, 0])
    key_grad = tl.zeros((BLOCK_N, HEAD), tl.float32)
    value_grad = tl.zeros((BLOCK_N, HEAD), tl.float32)
    start = 0
    if IS_CAUSAL:
        start = first_key + BLOCK_N
        key_grad, value_grad = go_over_queries(
            keys,
            values,
            key_grad,
            value_grad,
            q,
            grad,
            query_sums,
            lse,
            delta,
            scale_log2,
            head,
            length,
            first_key,
            first_key,
            start,
            HEAD,
            BLOCK_M,
            BLOCK_N,
            True,
            IS_TRANSPOSED,
        )
    key_grad, value_grad = go_over_queries(
        keys,
        values,
        key_grad,
        value_grad,
        q,
        grad,
        query_sums,
        lse,
        delta,
        scale_log2,
        head,
        length,
        first_key,
        start,
        length,
        HEAD,
        BLOCK_M,
        BLOCK_N,
        False,
        IS_TRANSPOSED,
    )
    k_grad.store([key_row, 0], (key_grad * scale).to(k_grad.dtype))
    v_grad.store([key_row, 0], value_grad.to(v_grad.dtype))
