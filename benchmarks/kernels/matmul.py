"""Matrix products whose operands are loaded through pointers."""

import triton
import triton.language as tl


@triton.jit
def place_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of a tile: down `GROUP_M` tiles, then one to the right, to share the cache."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * tiles_n
    first_m = tile // group_size * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    in_group = tile % group_size
    return first_m + in_group % height, in_group // height


@triton.jit
def store_product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """Compute the tile of this program; with `IS_WHOLE` the blocks divide the sizes."""
    tile_m, tile_n = place_of_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    if IS_WHOLE:
        a_row = row
        b_column = column
    else:
        # Rows that are not there read others that are: only the store needs a mask for them.
        a_row = row % M
        b_column = column % N
    a_ptrs = a_ptr + a_row[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + b_column[None, :] * stride_bn

    is_integer: tl.constexpr = a_ptr.dtype.element_ty == tl.int8
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if is_integer else tl.float32)
    for start in range(0, K, BLOCK_K):
        if IS_WHOLE:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=k[None, :] < K - start, other=0.0)
            b = tl.load(b_ptrs, mask=k[:, None] < K - start, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c = acc.to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + row[:, None] * stride_cm + column[None, :]
    if IS_WHOLE:
        tl.store(c_ptrs, c)
    else:
        tl.store(c_ptrs, c, mask=(row[:, None] < M) & (column[None, :] < N))


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    store_product(
        a_ptr,
        b_ptr,
        c_ptr,
        M,
        N,
        K,
        stride_am,
        stride_ak,
        stride_bk,
        stride_bn,
        stride_cm,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        GROUP_M,
        IS_WHOLE,
    )


@triton.jit
def batched_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_az,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bk,
    stride_bn,
    stride_cz,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """The product number `program_id(1)` of many."""
    z = tl.program_id(1).to(tl.int64)
    store_product(
        a_ptr + z * stride_az,
        b_ptr + z * stride_bz,
        c_ptr + z * stride_cz,
        M,
        N,
        K,
        stride_am,
        stride_ak,
        stride_bk,
        stride_bn,
        stride_cm,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        GROUP_M,
        IS_WHOLE,
    )
