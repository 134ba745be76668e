"""Persistent matrix product and fused attention through tensor descriptors."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def _place(tile, num_in_group, num_m, GROUP_M: tl.constexpr):
    """The row and the column of blocks that a number stands for, columns of a group first."""
    group = tile // num_in_group
    first_m = group * GROUP_M
    size_m = min(num_m - first_m, GROUP_M)
    return first_m + tile % size_m, tile % num_in_group // size_m


@tw.jit
def _store_tile(
    c_desc, m, n, acc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HALVES: tl.constexpr
):
    if HALVES:
        halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        c_desc.store([m, n], left.to(c_desc.dtype))
        c_desc.store([m, n + BLOCK_N // 2], right.to(c_desc.dtype))
    else:
        c_desc.store([m, n], acc.to(c_desc.dtype))


@tw.jit
def matmul_persistent(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """C = A B^T; each program computes every PROGRAMS-th tile."""
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)
    first = tl.program_id(axis=0)
    for tile in tl.range(first, num_m * num_n, PROGRAMS, flatten=True):
        block_m, block_n = _place(tile, GROUP_M * num_n, num_m, GROUP_M)
        m, n = block_m * BLOCK_M, block_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k_tile in range(k_tiles):
            a = a_desc.load([m, k_tile * BLOCK_K])
            b = b_desc.load([n, k_tile * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        _store_tile(c_desc, m, n, acc, BLOCK_M, BLOCK_N, HALVES)


@tw.jit
def matmul_persistent_made_in_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """The same; the kernel makes the descriptors. All arrays have the stride."""
    a_desc = tl.make_tensor_descriptor(
        a_ptr, shape=[M, K], strides=[stride, 1], block_shape=[BLOCK_M, BLOCK_K]
    )
    b_desc = tl.make_tensor_descriptor(
        b_ptr, shape=[N, K], strides=[stride, 1], block_shape=[BLOCK_N, BLOCK_K]
    )
    c_desc = tl.make_tensor_descriptor(
        c_ptr,
        shape=[M, N],
        strides=[stride, 1],
        block_shape=[BLOCK_M, BLOCK_N if not HALVES else BLOCK_N // 2],
    )
    matmul_persistent(
        a_desc, b_desc, c_desc, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, PROGRAMS, HALVES
    )


@tw.jit
def _maybe_make(desc_or_ptr, shape, strides, block_shape):
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    return tl.make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape)


@tw.jit
def _attend(
    acc, l_i, m_i, q, k_desc, v_desc, first_row, rows, scale, start_m, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """Take the keys before the diagonal (stage 1), on it (2), or all (3) into the output."""
    if STAGE == 1:
        low, high = 0, start_m * BLOCK_M
    elif STAGE == 2:
        low, high = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        low = tl.multiple_of(low, BLOCK_M)
    else:
        low, high = 0, n_ctx
    row = first_row + low
    for start in tl.range(low, high, BLOCK_N):
        k = k_desc.load([row, 0]).T
        scores = tl.dot(q, k)
        if STAGE == 2:
            visible = rows[:, None] >= (start + tl.arange(0, BLOCK_N))[None, :]
            scores = scores * scale + tl.where(visible, 0, -1.0e6)
            m_new = tl.maximum(m_i, tl.max(scores, 1))
            scores -= m_new[:, None]
        else:
            m_new = tl.maximum(m_i, tl.max(scores, 1) * scale)
            scores = scores * scale - m_new[:, None]
        p = tl.math.exp2(scores)
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([row, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
        row += BLOCK_N
    return acc, l_i, m_i


@tw.jit
def attention(
    q, k, v, out, log_sum_ptr, scale, heads, n_ctx,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """Forward attention over arrays or descriptors of [heads * n_ctx, HEAD]."""
    size = heads * n_ctx
    q = _maybe_make(q, [size, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    k = _maybe_make(k, [size, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    v = _maybe_make(v, [size, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    out = _maybe_make(out, [size, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    start_m, head = tl.program_id(0), tl.program_id(1)
    first_row = head * n_ctx
    rows = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    scale = scale * 1.44269504  # 1 / log(2)
    queries = q.load([first_row + start_m * BLOCK_M, 0])
    if STAGE & 1:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, queries, k, v, first_row, rows, scale, start_m, n_ctx,
            BLOCK_M, BLOCK_N, 4 - STAGE,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, queries, k, v, first_row, rows, scale, start_m, n_ctx,
            BLOCK_M, BLOCK_N, 2,
        )  # fmt: skip
    tl.store(log_sum_ptr + first_row + rows, m_i + tl.math.log2(l_i))
    acc = acc / l_i[:, None]
    out.store([first_row + start_m * BLOCK_M, 0], acc.to(out.dtype))
