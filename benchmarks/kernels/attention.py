"""Attention in one pass, softmax included: Dao et al., "FlashAttention", 2022.

Arrays are (batch * heads * length, HEAD), contiguous, and `length` is a multiple of the blocks.
`scale_log2` is the scale of the logits times log2(e): exp2 takes one multiplication less than exp.
The backward pass needs `lse`, the base-2 logarithm of the sum of exp2 of the scaled logits.
"""

import triton
import triton.language as tl


@triton.jit
def fold_logits(logits, highest, total, acc, scale_log2, seen, IS_MASKED: tl.constexpr):
    """Turn logits into weights beside the highest logit so far; rescale what was summed before."""
    if IS_MASKED:
        logits = tl.where(seen, logits, -float("inf"))
    new_highest = tl.maximum(highest, tl.max(logits, axis=1) * scale_log2)
    p = tl.exp2(logits * scale_log2 - new_highest[:, None])
    rescale = tl.exp2(highest - new_highest)
    total = total * rescale + tl.sum(p, axis=1)
    return p, new_highest, total, acc * rescale[:, None]


@triton.jit
def attend_by_descriptors(
    q,
    k,
    v,
    highest,
    total,
    acc,
    scale_log2,
    head,
    query,
    start,
    end,
    BLOCK_N: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Go over the keys from `start` to `end`."""
    for first in tl.range(start, end, BLOCK_N):
        keys = k.load([head + first, 0])
        logits = tl.dot(q, tl.trans(keys))
        seen = query[:, None] >= (first + tl.arange(0, BLOCK_N))[None, :]
        p, highest, total, acc = fold_logits(
            logits, highest, total, acc, scale_log2, seen, IS_MASKED
        )
        values = v.load([head + first, 0])
        acc = tl.dot(p.to(values.dtype), values, acc)
    return highest, total, acc


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    lse_ptr,
    scale_log2,
    length,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """`BLOCK_M` queries of the head `program_id(1)`; operands are tensor descriptors.

    `IS_CAUSAL` needs a `BLOCK_M` that is a multiple of `BLOCK_N`.
    """
    # Causal: the programs with the most keys come first, so that none of them is the last.
    block = tl.program_id(0)
    if IS_CAUSAL:
        block = tl.num_programs(0) - 1 - block
    first_query = block * BLOCK_M
    head = tl.program_id(1) * length
    query = first_query + tl.arange(0, BLOCK_M)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    queries = q.load([head + first_query, 0])
    whole = first_query if IS_CAUSAL else length
    highest, total, acc = attend_by_descriptors(
        queries, k, v, highest, total, acc, scale_log2, head, query, 0, whole, BLOCK_N, False
    )
    if IS_CAUSAL:
        highest, total, acc = attend_by_descriptors(
            queries,
            k,
            v,
            highest,
            total,
            acc,
            scale_log2,
            head,
            query,
            first_query,
            first_query + BLOCK_M,
            BLOCK_N,
            True,
        )
    tl.store(lse_ptr + head + query, highest + tl.log2(total))
    out.store([head + first_query, 0], tl.fdiv(acc, total[:, None]).to(out.dtype))


@triton.jit
def attend_by_pointers(
    q,
    k_ptrs,
    v_ptrs,
    highest,
    total,
    acc,
    scale_log2,
    query,
    start,
    end,
    HEAD: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Go over the keys from `start` to `end`; the pointers are those of the keys from 0 on."""
    k_ptrs += start * HEAD
    v_ptrs += start * HEAD
    for first in tl.range(start, end, BLOCK_N):
        logits = tl.dot(q, tl.trans(tl.load(k_ptrs)))
        seen = query[:, None] >= (first + tl.arange(0, BLOCK_N))[None, :]
        p, highest, total, acc = fold_logits(
            logits, highest, total, acc, scale_log2, seen, IS_MASKED
        )
        values = tl.load(v_ptrs)
        acc = tl.dot(p.to(values.dtype), values, acc)
        k_ptrs += BLOCK_N * HEAD
        v_ptrs += BLOCK_N * HEAD
    return highest, total, acc


@triton.jit
def pointer_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    scale_log2,
    length,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """As `attention_kernel`; operands are pointers."""
    block = tl.program_id(0)
    if IS_CAUSAL:
        block = tl.num_programs(0) - 1 - block
    first_query = block * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * length
    query = first_query + tl.arange(0, BLOCK_M)
    feature = tl.arange(0, HEAD)
    at_query = (head + query)[:, None] * HEAD + feature[None, :]
    at_key = (head + tl.arange(0, BLOCK_N))[:, None] * HEAD + feature[None, :]
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    q = tl.load(q_ptr + at_query)
    k_ptrs = k_ptr + at_key
    v_ptrs = v_ptr + at_key
    whole = first_query if IS_CAUSAL else length
    highest, total, acc = attend_by_pointers(
        q, k_ptrs, v_ptrs, highest, total, acc, scale_log2, query, 0, whole, HEAD, BLOCK_N, False
    )
    if IS_CAUSAL:
        highest, total, acc = attend_by_pointers(
            q,
            k_ptrs,
            v_ptrs,
            highest,
            total,
            acc,
            scale_log2,
            query,
            first_query,
            first_query + BLOCK_M,
            HEAD,
            BLOCK_N,
            True,
        )
    tl.store(lse_ptr + head + query, highest + tl.log2(total))
    tl.store(out_ptr + at_query, tl.fdiv(acc, total[:, None]).to(out_ptr.dtype.element_ty))
