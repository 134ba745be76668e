"""Attention of one new token to a paged cache: Kwon et al., "PagedAttention", 2023.

`keys` and `values` are (pages, PAGE, key heads, HEAD); row b of `table` has the pages of sequence b
in order. The query heads that share a key head are the rows of a tile, padded to what `dot` takes.
"""

import triton
import triton.language as tl


@triton.jit
def paged_decode_kernel(
    q_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    length_ptr,
    part_ptr,
    lse_ptr,
    scale_log2,
    pages_in_row,
    KEY_HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One of `SPLITS` parts of a sequence, for one key head."""
    sequence = tl.program_id(0)
    key_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(length_ptr + sequence)
    in_split = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    start = split * in_split
    end = tl.minimum(start + in_split, length)

    shared = tl.arange(0, BLOCK_M)
    feature = tl.arange(0, HEAD)
    head = (sequence * KEY_HEADS + key_head) * SHARED + shared
    is_head = shared < SHARED
    at_query = head[:, None] * HEAD + feature[None, :]
    q = tl.load(q_ptr + at_query, mask=is_head[:, None], other=0.0)
    highest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), tl.float32)
    for first in range(start, end, BLOCK_N):
        token = first + tl.arange(0, BLOCK_N)
        is_token = token < end
        at_page = table_ptr + sequence * pages_in_row + token // PAGE
        page = tl.load(at_page, mask=is_token, other=0).to(tl.int64)
        place = (page * PAGE + token % PAGE) * (KEY_HEADS * HEAD) + key_head * HEAD
        at = place[:, None] + feature[None, :]
        keys = tl.load(key_ptr + at, mask=is_token[:, None], other=0.0)
        logits = tl.dot(q, tl.trans(keys)) * scale_log2
        logits = tl.where(is_token[None, :], logits, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(logits, axis=1))
        p = tl.exp2(logits - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(p, axis=1)
        values = tl.load(value_ptr + at, mask=is_token[:, None], other=0.0)
        acc = tl.dot(p.to(values.dtype), values, acc * rescale[:, None])
        highest = new_highest

    # A part without tokens has the weight exp2(-inf) in the sum of all parts.
    is_empty = total == 0.0
    out = acc / tl.where(is_empty, 1.0, total)[:, None]
    lse = tl.where(is_empty, -float("inf"), highest + tl.log2(tl.where(is_empty, 1.0, total)))
    part = head * SPLITS + split
    at_part = part[:, None] * HEAD + feature[None, :]
    tl.store(part_ptr + at_part, out, mask=is_head[:, None])
    tl.store(lse_ptr + part, lse, mask=is_head)


@triton.jit
def join_parts_kernel(part_ptr, lse_ptr, out_ptr, HEAD: tl.constexpr, SPLITS: tl.constexpr):
    """Add up the parts of one query head by their weights."""
    head = tl.program_id(0)
    part = head * SPLITS + tl.arange(0, SPLITS)
    feature = tl.arange(0, HEAD)
    lse = tl.load(lse_ptr + part)
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    parts = tl.load(part_ptr + part[:, None] * HEAD + feature[None, :])
    out = tl.sum(parts * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(out_ptr + head * HEAD + feature, out.to(out_ptr.dtype.element_ty))
