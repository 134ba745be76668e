"""A product with weights of four bits, two in a byte, and a scale for each group along k."""

import triton
import triton.language as tl


@triton.jit
def int4_matmul_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """`out = x @ weight.T`, for blocks that divide the sizes; one group of k a step.

    `packed` is (N, K / 2), the even k in the low half of a byte; `scale` is (N, K / GROUP), and a
    weight is (half byte - 8) * scale. The weights are the left operand of the product, so that few
    rows of x are few columns there.
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, GROUP)
    x_ptrs = x_ptr + row[None, :] * K + k[:, None]
    packed_ptrs = packed_ptr + column[:, None] * (K // 2) + tl.arange(0, GROUP // 2)[None, :]
    scale_ptrs = scale_ptr + column * (K // GROUP)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for _ in range(0, K, GROUP):
        packed = tl.load(packed_ptrs)
        low = (packed & 0xF).to(tl.int8) - 8
        high = (packed >> 4).to(tl.int8) - 8
        x = tl.load(x_ptrs)
        scale = tl.load(scale_ptrs)
        weight = tl.interleave(low, high).to(x.dtype) * scale[:, None]
        acc = tl.dot(weight, x, acc)
        x_ptrs += GROUP
        packed_ptrs += GROUP // 2
        scale_ptrs += 1
    out_ptrs = out_ptr + row[None, :] * N + column[:, None]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty))
