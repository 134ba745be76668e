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
    y = tl.fdiv(e, tl.sum(e, axis=0))
    tl.store(out_ptr + row + column, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    at = row.to(tl.int64) * columns + column
    x = tl.load(x_ptr + at, mask=column < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * columns + column
    inside = column < columns
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.cumsum(x, axis=0), mask=inside)


@triton.jit
def apply_both(first_factor, first_term, second_factor, second_term):
    """`x * first_factor + first_term`, and then that of the second, as one such step."""
    return first_factor * second_factor, first_term * second_factor + second_term


@triton.jit
def recurrence_kernel(factor_ptr, term_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """`out[t] = factor[t] * out[t - 1] + term[t]` along each row."""
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * columns + column
    inside = column < columns
    factor = tl.load(factor_ptr + at, mask=inside, other=1.0)
    term = tl.load(term_ptr + at, mask=inside, other=0.0)
    factor, term = tl.associative_scan((factor, term), 0, apply_both)
    tl.store(out_ptr + at, term, mask=inside)
