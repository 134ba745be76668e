"""The backward pass of attention in one go over the logits: Dao, "FlashAttention-2", 2023.

Arrays are (batch * heads * length, HEAD), contiguous, and `length` is a multiple of the blocks. The
gradient of the queries is summed in fp32 by all programs that have a part of it. `lse` is that of
the forward pass, in base 2.
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
def finish_kernel(query_sums_ptr, query_grad_ptr, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    grad = tl.load(query_sums_ptr + at) * scale
    tl.store(query_grad_ptr + at, grad.to(query_grad_ptr.dtype.element_ty))


@triton.jit
def go_over_queries(
    keys,
    values,
    key_grad,
    value_grad,
    q,
    grad,
    query_sums,
    lse_ptr,
    delta_ptr,
    scale_log2,
    head,
    first_key,
    start,
    end,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Add to the gradients what the queries from `start` to `end` contribute."""
    for first in tl.range(start, end, BLOCK_M):
        query = first + tl.arange(0, BLOCK_M)
        queries = q.load([head + first, 0])
        lse = tl.load(lse_ptr + head + query)
        # Keys along the first axis: p and dp are then left operands of the next products.
        logits = tl.dot(keys, tl.trans(queries))
        p = tl.exp2(logits * scale_log2 - lse[None, :])
        if IS_MASKED:
            key = first_key + tl.arange(0, BLOCK_N)
            p = tl.where(query[None, :] >= key[:, None], p, 0.0)
        out_grad = grad.load([head + first, 0])
        value_grad = tl.dot(p.to(out_grad.dtype), out_grad, value_grad)
        delta = tl.load(delta_ptr + head + query)
        p_grad = tl.dot(values, tl.trans(out_grad))
        logits_grad = (p * (p_grad - delta[None, :])).to(queries.dtype)
        key_grad = tl.dot(logits_grad, queries, key_grad)
        query_sums.atomic_add([head + first, 0], tl.dot(tl.trans(logits_grad), keys))
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
    lse_ptr,
    delta_ptr,
    scale,
    scale_log2,
    length,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """`BLOCK_N` keys of the head `program_id(1)`; operands but the last are descriptors."""
    first_key = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1) * length
    keys = k.load([head + first_key, 0])
    values = v.load([head + first_key, 0])
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
            lse_ptr,
            delta_ptr,
            scale_log2,
            head,
            first_key,
            first_key,
            start,
            BLOCK_M,
            BLOCK_N,
            True,
        )
    key_grad, value_grad = go_over_queries(
        keys,
        values,
        key_grad,
        value_grad,
        q,
        grad,
        query_sums,
        lse_ptr,
        delta_ptr,
        scale_log2,
        head,
        first_key,
        start,
        length,
        BLOCK_M,
        BLOCK_N,
        False,
    )
    k_grad.store([head + first_key, 0], (key_grad * scale).to(k_grad.dtype))
    v_grad.store([head + first_key, 0], value_grad.to(v_grad.dtype))
