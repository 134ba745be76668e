"""Attention in one pass, softmax included: Dao et al., "FlashAttention", 2022."""

import math

import tilewright as tw
import tilewright.language as tl


@tw.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale_log2,
    length,
    HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Queries `BLOCK_M * program_id(0)` on, of the head `program_id(1)`.

    Arrays are (batch * heads, length, HEAD), contiguous. `scale_log2` is the scale of the logits
    times log2(e): exp2 takes one multiplication less than exp.
    """
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * length * HEAD
    query = start_m + tl.arange(0, BLOCK_M)
    feature = tl.arange(0, HEAD)
    key = tl.arange(0, BLOCK_N)
    at_query = head + query[:, None] * HEAD + feature[None, :]

    q = tl.load(q_ptr + at_query, mask=query[:, None] < length, other=0.0)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    end = min(start_m + BLOCK_M, length) if CAUSAL else length
    for start_n in range(0, end, BLOCK_N):
        at_key = head + (start_n + key)[:, None] * HEAD + feature[None, :]
        is_key = start_n + key < length
        k = tl.load(k_ptr + at_key, mask=is_key[:, None], other=0.0)
        logits = tl.dot(q, tl.trans(k)) * scale_log2
        is_seen = is_key[None, :]
        if CAUSAL:
            is_seen &= query[:, None] >= (start_n + key)[None, :]
        logits = tl.where(is_seen, logits, -float("inf"))

        new_highest = tl.maximum(highest, tl.max(logits, axis=1))
        p = tl.exp2(logits - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at_key, mask=is_key[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        highest = new_highest

    out = acc / total[:, None]
    tl.store(out_ptr + at_query, out.to(out_ptr.dtype.element_ty), mask=query[:, None] < length)


def attention(q, k, v, out, causal=False, block_m=128, block_n=128):
    """`out = softmax(q kᵀ / √d) v`; arrays are (batch, heads, length, d), contiguous."""
    batch, heads, length, head = q.shape
    grid = (tw.cdiv(length, block_m), batch * heads)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        math.log2(math.e) / math.sqrt(head),
        length,
        HEAD=head,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        CAUSAL=causal,
    )
