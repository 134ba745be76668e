"""Fused attention: forward with pointers and with block pointers, and backward."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def _attend(
    acc, l_i, m_i, q, k_ptr, v_ptr, stride_n, first, last, rows, scale, n_ctx,
    BLOCK_N: tl.constexpr, HEAD: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take a range of keys into the running maximum, sum and output."""
    dims = tl.arange(0, HEAD)
    for place in tl.range(first, last, BLOCK_N, num_stages=2):
        start = tl.multiple_of(place, BLOCK_N)
        keys = start + tl.arange(0, BLOCK_N)
        inside = keys < n_ctx
        k = tl.load(
            k_ptr + keys[None, :] * stride_n + dims[:, None], mask=inside[None, :], other=0.0
        )
        scores = tl.dot(q, k) * scale
        if MASKED:  # noqa: SIM108 - a choice at compile time
            visible = (rows[:, None] >= keys[None, :]) & inside[None, :]
        else:
            visible = inside[None, :]
        scores = tl.where(visible, scores, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.math.exp2(scores - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(
            v_ptr + keys[:, None] * stride_n + dims[None, :], mask=inside[:, None], other=0.0
        )
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@tw.jit
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, log_sum_ptr, scale, stride_h, stride_n, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head.to(tl.int64) * stride_h
    rows = first_row + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    offsets = rows[:, None] * stride_n + dims[None, :]
    mask = rows[:, None] < n_ctx
    q = tl.load(q_ptr + base + offsets, mask=mask, other=0.0)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    l_i -= 1.0
    qk_scale = scale * 1.4426950408889634  # 1 / log(2)
    if CAUSAL:
        diagonal = first_row // BLOCK_N * BLOCK_N
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptr + base, v_ptr + base, stride_n, 0, diagonal,
            rows, qk_scale, n_ctx, BLOCK_N, HEAD, False,
        )  # fmt: skip
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptr + base, v_ptr + base, stride_n, diagonal,
            min(first_row + BLOCK_M, n_ctx), rows, qk_scale, n_ctx, BLOCK_N, HEAD, True,
        )  # fmt: skip
    else:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptr + base, v_ptr + base, stride_n, 0, n_ctx,
            rows, qk_scale, n_ctx, BLOCK_N, HEAD, False,
        )  # fmt: skip
    tl.store(log_sum_ptr + head * n_ctx + rows, m_i + tl.math.log2(l_i), mask=rows < n_ctx)
    acc = acc / l_i[:, None]
    tl.store(out_ptr + base + offsets, acc.to(out_ptr.dtype.element_ty), mask=mask)


@tw.jit
def forward_block_pointers(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, stride_h, stride_n, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * stride_h
    q_block = tl.make_block_ptr(
        base=q_ptr + base, shape=(n_ctx, HEAD), strides=(stride_n, 1), offsets=(first_row, 0),
        block_shape=(BLOCK_M, HEAD), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        base=k_ptr + base, shape=(HEAD, n_ctx), strides=(1, stride_n), offsets=(0, 0),
        block_shape=(HEAD, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        base=v_ptr + base, shape=(n_ctx, HEAD), strides=(stride_n, 1), offsets=(0, 0),
        block_shape=(BLOCK_N, HEAD), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        base=out_ptr + base, shape=(n_ctx, HEAD), strides=(stride_n, 1), offsets=(first_row, 0),
        block_shape=(BLOCK_M, HEAD), order=(1, 0),
    )  # fmt: skip
    rows = first_row + tl.arange(0, BLOCK_M)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    q = (q * (scale * 1.4426950408889634)).to(q.dtype)
    last = min(first_row + BLOCK_M, n_ctx) if CAUSAL else n_ctx
    for start in range(0, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        scores = tl.where(keys[None, :] < n_ctx, tl.dot(q, k), -1.0e6)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.math.exp2(scores - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))
    tl.store(out_block, (acc / l_i[:, None]).to(out_ptr.dtype.element_ty), boundary_check=(0,))


@tw.jit
def backward_prepare(
    out_ptr, dout_ptr, delta_ptr, n_ctx, BLOCK_M: tl.constexpr, HEAD: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    offsets = (head * n_ctx + rows[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    mask = rows[:, None] < n_ctx
    out = tl.load(out_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(delta_ptr + head * n_ctx + rows, tl.sum(out * dout, axis=1), mask=rows < n_ctx)


@tw.jit
def _probabilities(q, k, rows, keys, log_sum, scale, n_ctx, CAUSAL: tl.constexpr):
    """exp2 of the scores, rows down and keys across."""
    scores = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
    visible = (rows[:, None] < n_ctx) & (keys[None, :] < n_ctx)
    if CAUSAL:
        visible &= rows[:, None] >= keys[None, :]
    return tl.where(visible, tl.math.exp2(scores - log_sum[:, None]), 0.0)


@tw.jit
def backward_keys(
    q_ptr, k_ptr, v_ptr, dout_ptr, dk_ptr, dv_ptr, log_sum_ptr, delta_ptr, scale, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first_key = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    keys = first_key + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, HEAD)
    base = head * n_ctx * HEAD
    key_offsets = base + keys[:, None] * HEAD + dims[None, :]
    key_mask = keys[:, None] < n_ctx
    k = tl.load(k_ptr + key_offsets, mask=key_mask, other=0.0)
    v = tl.load(v_ptr + key_offsets, mask=key_mask, other=0.0)
    dk = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    first = first_key // BLOCK_M * BLOCK_M if CAUSAL else 0
    for start in range(first, n_ctx, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = rows < n_ctx
        offsets = base + rows[:, None] * HEAD + dims[None, :]
        q = tl.load(q_ptr + offsets, mask=inside[:, None], other=0.0)
        dout = tl.load(dout_ptr + offsets, mask=inside[:, None], other=0.0)
        log_sum = tl.load(log_sum_ptr + head * n_ctx + rows, mask=inside, other=0.0)
        delta = tl.load(delta_ptr + head * n_ctx + rows, mask=inside, other=0.0)
        p = _probabilities(q, k, rows, keys, log_sum, scale, n_ctx, CAUSAL)
        dv += tl.dot(tl.trans(p).to(dout.dtype), dout)
        dp = tl.dot(dout, tl.trans(v))
        ds = (p * (dp - delta[:, None])).to(q.dtype)
        dk += tl.dot(tl.trans(ds), q)
    tl.store(dv_ptr + key_offsets, dv.to(dv_ptr.dtype.element_ty), mask=key_mask)
    tl.store(dk_ptr + key_offsets, (dk * scale).to(dk_ptr.dtype.element_ty), mask=key_mask)


@tw.jit
def backward_queries(
    q_ptr, k_ptr, v_ptr, dout_ptr, dq_ptr, log_sum_ptr, delta_ptr, scale, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    rows = first_row + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    base = head * n_ctx * HEAD
    offsets = base + rows[:, None] * HEAD + dims[None, :]
    inside = rows < n_ctx
    q = tl.load(q_ptr + offsets, mask=inside[:, None], other=0.0)
    dout = tl.load(dout_ptr + offsets, mask=inside[:, None], other=0.0)
    log_sum = tl.load(log_sum_ptr + head * n_ctx + rows, mask=inside, other=0.0)
    delta = tl.load(delta_ptr + head * n_ctx + rows, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    last = min(first_row + BLOCK_M, n_ctx) if CAUSAL else n_ctx
    for start in range(0, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        key_offsets = base + keys[:, None] * HEAD + dims[None, :]
        k = tl.load(k_ptr + key_offsets, mask=keys[:, None] < n_ctx, other=0.0)
        v = tl.load(v_ptr + key_offsets, mask=keys[:, None] < n_ctx, other=0.0)
        p = _probabilities(q, k, rows, keys, log_sum, scale, n_ctx, CAUSAL)
        dp = tl.dot(dout, tl.trans(v))
        ds = (p * (dp - delta[:, None])).to(k.dtype)
        dq += tl.dot(ds, k)
    tl.store(dq_ptr + offsets, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside[:, None])
