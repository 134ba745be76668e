"""Kernels of planes: all elements of a channel of a sample, which are often far apart in memory.

An array (samples, channels, ...) is folded to (samples, channels, inside); a plane is the row that
a pair of the first two names. Statistics of groups of planes are made of those of each.
"""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator, row_configs, row_offsets, row_warps

__all__ = [
    "plane_gradient_kernel",
    "plane_norm_kernel",
    "plane_products_kernel",
    "plane_statistics_kernel",
]


@tw.autotune(row_configs, key=["rows", "columns"], default=row_warps)
@tw.jit
def plane_statistics_kernel(
    x_ptr,
    mean_ptr,
    squares_ptr,
    rows,
    columns,
    channels,
    x_sample_stride,
    x_channel_stride,
    x_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The mean of planes, and the sum of squares of the distances from it."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    x_row = x_ptr + row_offsets(row, channels, x_sample_stride, x_channel_stride)[:, None]
    mean = tl.zeros((ROWS,), DTYPE)
    squares = tl.zeros((ROWS,), DTYPE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)[None, :]
        mask = is_row[:, None] & (at < columns)
        x = tl.load(x_row + at * x_stride, mask, 0.0).to(DTYPE)
        # Chan et al., "Updating formulae and a pairwise algorithm", 1979.
        size = tl.minimum(columns - first, BLOCK)
        step = tl.sum(x, axis=1) / size - mean
        centered = tl.where(mask, x - (mean + step)[:, None], 0.0)
        squares += tl.sum(centered * centered, axis=1)
        part = tl.cast(first, DTYPE) / (first + size)
        squares += step * step * (part * size)
        mean += step * (1 - part)
    tl.store(mean_ptr + row, mean, is_row)
    tl.store(squares_ptr + row, squares, is_row)


@tw.autotune(row_configs, key=["rows", "columns"], default=row_warps)
@tw.jit
def plane_norm_kernel(
    x_ptr,
    mean_ptr,
    factor_ptr,
    term_ptr,
    y_ptr,
    rows,
    columns,
    channels,
    x_sample_stride,
    x_channel_stride,
    x_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute (x - mean) * factor + term, with a number of each for a plane."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_row = row < rows
    mask = is_row[:, None] & (at < columns)
    x_row = x_ptr + row_offsets(row, channels, x_sample_stride, x_channel_stride)[:, None]
    mean = tl.load(mean_ptr + row, is_row, 0.0)[:, None]
    factor = tl.load(factor_ptr + row, is_row, 0.0)[:, None]
    term = tl.load(term_ptr + row, is_row, 0.0)[:, None]
    y = (tl.load(x_row + at * x_stride, mask, 0.0).to(DTYPE) - mean) * factor + term
    y_row = y_ptr + row.to(tl.int64)[:, None] * columns
    tl.store(y_row + at, y, mask, cache_modifier=".cs")


@tw.autotune(row_configs, key=["rows", "columns"], default=row_warps)
@tw.jit
def plane_products_kernel(
    x_ptr,
    dy_ptr,
    mean_ptr,
    sums_ptr,
    products_ptr,
    rows,
    columns,
    channels,
    x_sample_stride,
    x_channel_stride,
    x_stride,
    dy_sample_stride,
    dy_channel_stride,
    dy_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sums of dy and of dy * (x - mean) of planes."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    x_row = x_ptr + row_offsets(row, channels, x_sample_stride, x_channel_stride)[:, None]
    dy_row = dy_ptr + row_offsets(row, channels, dy_sample_stride, dy_channel_stride)[:, None]
    mean = tl.load(mean_ptr + row, is_row, 0.0)[:, None]
    sums = tl.zeros((ROWS,), DTYPE)
    products = tl.zeros((ROWS,), DTYPE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)[None, :]
        mask = is_row[:, None] & (at < columns)
        x = tl.load(x_row + at * x_stride, mask, 0.0).to(DTYPE)
        dy = tl.load(dy_row + at * dy_stride, mask, 0.0).to(DTYPE)
        sums += tl.sum(dy, axis=1)
        products += tl.sum(dy * (x - mean), axis=1)
    tl.store(sums_ptr + row, sums, is_row)
    tl.store(products_ptr + row, products, is_row)


@tw.autotune(row_configs, key=["rows", "columns"], default=row_warps)
@tw.jit
def plane_gradient_kernel(
    x_ptr,
    dy_ptr,
    mean_ptr,
    dy_factor_ptr,
    x_factor_ptr,
    term_ptr,
    dx_ptr,
    rows,
    columns,
    channels,
    x_sample_stride,
    x_channel_stride,
    x_stride,
    dy_sample_stride,
    dy_channel_stride,
    dy_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute dy * factor + (x - mean) * factor + term, with a number of each for a plane."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_row = row < rows
    mask = is_row[:, None] & (at < columns)
    x_row = x_ptr + row_offsets(row, channels, x_sample_stride, x_channel_stride)[:, None]
    dy_row = dy_ptr + row_offsets(row, channels, dy_sample_stride, dy_channel_stride)[:, None]
    mean = tl.load(mean_ptr + row, is_row, 0.0)[:, None]
    dy_factor = tl.load(dy_factor_ptr + row, is_row, 0.0)[:, None]
    x_factor = tl.load(x_factor_ptr + row, is_row, 0.0)[:, None]
    term = tl.load(term_ptr + row, is_row, 0.0)[:, None]
    x = tl.load(x_row + at * x_stride, mask, 0.0).to(DTYPE)
    dy = tl.load(dy_row + at * dy_stride, mask, 0.0).to(DTYPE)
    dx = dy * dy_factor + (x - mean) * x_factor + term
    dx_row = dx_ptr + row.to(tl.int64)[:, None] * columns
    tl.store(dx_row + at, dx, mask, cache_modifier=".cs")
