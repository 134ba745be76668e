"""A ragged grouped product: each row of the left operand belongs to one of several experts."""

import triton
import triton.language as tl


@triton.jit
def grouped_matmul_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    starts_ptr,
    N,
    K,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """`out[i] = x[i] @ weight[e]` for the rows from `starts[e]` to `starts[e + 1]`.

    The blocks divide N and K. The second axis of the grid has enough programs for all tiles of
    `BLOCK_M` rows, however ragged the experts are; the last of them find nothing to do.
    """
    expert = tl.arange(0, EXPERTS)
    start = tl.load(starts_ptr + expert)
    end = tl.load(starts_ptr + expert + 1)
    tiles = tl.cdiv(end - start, BLOCK_M)
    last = tl.cumsum(tiles, axis=0)
    tile = tl.program_id(1)
    # The experts whose tiles all come before this one; how many they are is the expert's number.
    is_before = last <= tile
    chosen = tl.sum(is_before.to(tl.int32), axis=0)
    if chosen < EXPERTS:
        first = tile - tl.sum(tl.where(is_before, tiles, 0), axis=0)
        chosen_end = tl.load(starts_ptr + chosen + 1)
        row = tl.load(starts_ptr + chosen) + first * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        # Rows past the end read the last row: only the store needs a mask for them.
        x_row = tl.minimum(row, chosen_end - 1).to(tl.int64)
        x_ptrs = x_ptr + x_row[:, None] * K + k[None, :]
        weight = weight_ptr + chosen.to(tl.int64) * K * N
        weight_ptrs = weight + k[:, None] * N + column[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for _ in range(0, K, BLOCK_K):
            acc = tl.dot(tl.load(x_ptrs), tl.load(weight_ptrs), acc)
            x_ptrs += BLOCK_K
            weight_ptrs += BLOCK_K * N
        out_ptrs = out_ptr + row.to(tl.int64)[:, None] * N + column[None, :]
        out = acc.to(out_ptr.dtype.element_ty)
        tl.store(out_ptrs, out, mask=(row < chosen_end)[:, None])
