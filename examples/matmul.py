"""Matrix product, with tiles of programs taken in groups so that what they share stays in cache."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def place_of_block(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column, in blocks, of this program: down `GROUP_M` blocks, then one to the right."""
    pid = tl.program_id(0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * blocks_n
    group = pid // group_size
    first_m = group * GROUP_M
    rows_in_group = min(blocks_m - first_m, GROUP_M)
    return first_m + (pid % group_size) % rows_in_group, (pid % group_size) // rows_in_group


@tw.jit
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
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """`c = a @ b` for sizes of any kind."""
    block_m, block_n = place_of_block(M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (row % M)[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + (column % N)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=k[None, :] < K - start, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - start, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + row[:, None] * stride_cm + column[None, :] * stride_cn
    mask = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@tw.jit
def whole_matmul_kernel(
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
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """`c = a @ b` for sizes that the blocks divide: nothing to mask."""
    block_m, block_n = place_of_block(M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + row[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + column[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + row[:, None] * stride_cm + column[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


autotuned_matmul_kernel = tw.autotune(
    [
        tw.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 4})
        for m, n, k in ((64, 64, 256), (128, 128, 128), (128, 256, 256), (256, 256, 256))
    ],
    key=["M", "N", "K"],
    rep=200,
)(whole_matmul_kernel)


def matmul(a, b, c, kernel=matmul_kernel, **constants):
    """`c = a @ b`, for contiguous matrices; `constants` are BLOCK_M and so on, if not tuned."""
    (m, k), n = a.shape, b.shape[1]

    def grid(arguments):
        return (tw.cdiv(m, arguments["BLOCK_M"]) * tw.cdiv(n, arguments["BLOCK_N"]),)

    kernel[grid](a, b, c, m, n, k, k, 1, n, 1, n, 1, **constants)
