"""Kernels that compute each element on its own."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


@triton.jit
def bias_gelu_residual_kernel(x_ptr, bias_ptr, residual_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """`gelu(x + bias) + residual`, with the tanh form of gelu; a part of one row a program."""
    row = tl.program_id(0).to(tl.int64) * columns
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row + column, mask=inside).to(tl.float32)
    y = x + tl.load(bias_ptr + column, mask=inside).to(tl.float32)
    # (1 + tanh(z)) / 2 is sigmoid(2 z), here with z = sqrt(2 / pi) (y + 0.044715 y^3)
    gelu = y * tl.sigmoid(1.5957691216057308 * y * (1.0 + 0.044715 * y * y))
    residual = tl.load(residual_ptr + row + column, mask=inside).to(tl.float32)
    out = (gelu + residual).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row + column, out, mask=inside)


@triton.jit
def dropout_kernel(x_ptr, out_ptr, size, rate, seed, BLOCK: tl.constexpr):
    """Zero elements at `rate`, and scale the others so that the mean stays."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside)
    is_kept = tl.rand(seed, offsets) > rate
    tl.store(out_ptr + offsets, tl.where(is_kept, x / (1 - rate), 0.0), mask=inside)
