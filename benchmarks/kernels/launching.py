"""Kernels that do nothing on the arguments they get, to measure what a launch costs."""

import triton
import triton.language as tl


@triton.jit
def eight_arguments_kernel(a_ptr, b_ptr, c_ptr, d_ptr, m, n, k, BLOCK: tl.constexpr):
    pass


@triton.jit
def twenty_arguments_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    d_ptr,
    e_ptr,
    f_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pass


@triton.jit
def reading_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    d_ptr,
    e_ptr,
    f_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    if m == 0:  # it never is, but the code reads every argument
        x = tl.load(a_ptr) + tl.load(b_ptr) + tl.load(c_ptr) + tl.load(d_ptr) + tl.load(e_ptr)
        n += k + stride_am + stride_ak + stride_bk + stride_bn + stride_cm + stride_cn
        tl.store(f_ptr, x * scale + n)
