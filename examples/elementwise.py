"""Kernels that treat every element by itself: a sum, and the end of a linear layer in one pass."""

import math

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask, cache_modifier=".cs")


@tw.jit
def gelu(x):
    """The form of GELU with tanh: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + tl.math.tanh(inner))


@tw.jit
def bias_gelu_scale_residual_kernel(
    x_ptr, bias_ptr, residual_ptr, out_ptr, scale, columns, BLOCK: tl.constexpr
):
    """One row of `gelu(x + bias) * scale + residual`."""
    row = tl.program_id(0).to(tl.int64) * columns
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row + column, mask=mask)
        bias = tl.load(bias_ptr + column, mask=mask)
        residual = tl.load(residual_ptr + row + column, mask=mask)
        out = gelu(x + bias) * scale + residual
        tl.store(out_ptr + row + column, out, mask=mask, cache_modifier=".cs")


def add(x, y, out, block=16384):
    """`out = x + y`, for arrays of one shape."""
    n = math.prod(x.shape)
    add_kernel[(tw.cdiv(n, block),)](x, y, out, n, BLOCK=block)


def bias_gelu_scale_residual(x, bias, residual, out, scale, block=1024):
    """`out = gelu(x + bias) * scale + residual`; `bias` has an element for each column."""
    rows, columns = x.shape
    bias_gelu_scale_residual_kernel[(rows,)](
        x, bias, residual, out, scale, columns, BLOCK=min(block, tw.next_power_of_2(columns))
    )
