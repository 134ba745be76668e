"""Layer norm, forward and backward: Ba et al., "Layer Normalization", 2016."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr
):
    """A row a program; the mean and 1 / standard deviation are kept for the backward pass."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = row.to(tl.int64) * columns + column
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centered * centered, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside).to(tl.float32)
    y = centered * rstd * weight + bias
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def layer_norm_backward_kernel(
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    grad_ptr,
    x_grad_ptr,
    weight_sums_ptr,
    bias_sums_ptr,
    rows,
    columns,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Every `PROGRAMS`th row; the gradients of weight and bias are summed over these rows."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    weight_sum = tl.zeros((BLOCK,), tl.float32)
    bias_sum = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), rows, PROGRAMS, num_stages=STAGES):
        at = row * columns + column
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        weighted = grad * weight
        along = tl.sum(weighted * normal, axis=0) / columns
        level = tl.sum(weighted, axis=0) / columns
        x_grad = (weighted - normal * along - level) * rstd
        tl.store(x_grad_ptr + at, x_grad.to(x_grad_ptr.dtype.element_ty), mask=inside)
        weight_sum += grad * normal
        bias_sum += grad
    at = tl.program_id(0) * columns + column
    tl.store(weight_sums_ptr + at, weight_sum, mask=inside)
    tl.store(bias_sums_ptr + at, bias_sum, mask=inside)


@triton.jit
def sum_partial_kernel(
    weight_sums_ptr,
    bias_sums_ptr,
    weight_grad_ptr,
    bias_grad_ptr,
    rows,
    columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add up what the programs of the backward pass have summed, `BLOCK_N` columns a program."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_sum = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    bias_sum = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, rows, BLOCK_M):
        row = first + tl.arange(0, BLOCK_M)
        at = row[:, None] * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        weight_sum += tl.load(weight_sums_ptr + at, mask=inside, other=0.0)
        bias_sum += tl.load(bias_sums_ptr + at, mask=inside, other=0.0)
    weight_grad = tl.sum(weight_sum, axis=0).to(weight_grad_ptr.dtype.element_ty)
    bias_grad = tl.sum(bias_sum, axis=0).to(bias_grad_ptr.dtype.element_ty)
    tl.store(weight_grad_ptr + column, weight_grad, mask=column < columns)
    tl.store(bias_grad_ptr + column, bias_grad, mask=column < columns)
