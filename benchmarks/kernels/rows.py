"""Kernels that work on one row of a matrix at a time."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(out_ptr + row + column, y.to(out_ptr.dtype.element_ty), mask=inside)
