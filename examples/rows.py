"""Kernels that reduce along rows: softmax and layer norm, one row for each program."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * x_row_stride + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator * (1 / tl.sum(numerator, axis=0))
    tl.store(out_ptr + row * out_row_stride + offsets, out, mask=mask, cache_modifier=".cs")


@tw.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    mean_ptr,
    rstd_ptr,
    row_stride,
    columns,
    epsilon,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * row_stride + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / columns
    rstd = 1 / tl.sqrt(variance + epsilon)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    out = centered * rstd * weight + bias
    tl.store(out_ptr + row * row_stride + offsets, out, mask=mask, cache_modifier=".cs")
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


def softmax(x, out):
    """Softmax of each row of a matrix; rows are contiguous."""
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, columns, columns, columns, BLOCK=tw.next_power_of_2(columns))


def layer_norm(x, weight, bias, out, mean, rstd, epsilon=1e-5):
    """Layer norm of each row of a matrix, and the mean and 1/σ of each row for a backward pass."""
    rows, columns = x.shape
    layer_norm_kernel[(rows,)](
        x,
        weight,
        bias,
        out,
        mean,
        rstd,
        columns,
        columns,
        epsilon,
        BLOCK=tw.next_power_of_2(columns),
    )
