"""The kernels of convolutions: products of matrices that are never written down.

A row of the left matrix is a place of the output, a column a *tap*, that is a place of the filter,
and a channel of the input. The gradient of the input is such a product, too: `INVERSE` asks for
the places of the output that have seen a place of the input.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import on_cpu
from tilewright.kernels.rows import accumulator

__all__ = [
    "convolution_kernel",
    "convolution_weight_kernel",
    "depthwise_kernel",
    "depthwise_weight_kernel",
]


@tw.jit
def seen(place, tap, size, stride, padding, dilation, INVERSE: tl.constexpr):
    """Return the place along a dimension that a place sees through a tap, and if there is one."""
    if INVERSE:
        distance = place + padding - tap * dilation
        at = distance // stride
        return at, (distance >= 0) & (distance % stride == 0) & (at < size)
    at = place * stride - padding + tap * dilation
    return at, (at >= 0) & (at < size)


@tw.jit
def coordinates(at, height, width):
    """Return the sample, row and column of places that are counted through all samples."""
    return (at // (height * width)).to(tl.int64), at // width % height, at % width


@tw.jit
def taps_and_channels(first, channels, WHOLE_TAPS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return tap and channel of a block of columns; `WHOLE_TAPS`: there is one tap."""
    k = tl.arange(0, BLOCK_K)
    if WHOLE_TAPS:
        return first // channels, (first % channels + k)[None, :]
    return ((first + k) // channels)[None, :], ((first + k) % channels)[None, :]


@tw.jit
def product(x, y, acc, PRECISION):
    """Return `x @ y + acc`."""
    return tl.dot(x, y, acc, input_precision=PRECISION)


def _block_config(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning."""
    width = min(max(tw.next_power_of_2(arguments["out_channels"]), 16), 128)
    if on_cpu(arguments["x_ptr"]):
        return tw.Config({"BLOCK_M": 64, "BLOCK_N": width})
    return tw.Config({"BLOCK_M": 128, "BLOCK_N": width}, num_warps=8 if width > 64 else 4)


@tw.autotune(
    [
        tw.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)
        for m, n, warps in ((64, 64, 4), (128, 32, 4), (128, 64, 4), (128, 128, 8), (256, 64, 8))
        for stages in (2, 3, 4)
    ],
    key=["rows", "channels", "out_channels", "taps"],
    default=_block_config,
)
@tw.jit
def convolution_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    rows,
    channels,
    out_channels,
    taps,
    taps_w,
    height,
    width,
    out_height,
    out_width,
    x_sample_stride,
    x_channel_stride,
    x_row_stride,
    x_stride,
    y_sample_stride,
    y_channel_stride,
    y_row_stride,
    y_stride,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    INVERSE: tl.constexpr,
    WHOLE_TAPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute a block of the places and channels of the output, of one group."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    group = tl.program_id(1)
    blocks = tl.cdiv(out_channels, BLOCK_N)
    m = tl.program_id(0) // blocks * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    sample, row, column = coordinates(m, out_height, out_width)
    x_ptr += tl.cast(group, tl.int64) * channels * x_channel_stride
    w_ptr += tl.cast(group, tl.int64) * taps * channels * out_channels
    is_m, is_n = (m < rows)[:, None], (n < out_channels)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    for first in range(0, taps * channels, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        tap, channel = taps_and_channels(first, channels, WHOLE_TAPS, BLOCK_K)
        h, is_h = seen(
            row[:, None], tap // taps_w, height, stride_h, padding_h, dilation_h, INVERSE
        )
        w, is_w = seen(
            column[:, None], tap % taps_w, width, stride_w, padding_w, dilation_w, INVERSE
        )
        place = sample[:, None] * x_sample_stride + h * x_row_stride + w * x_stride
        mask = is_m & is_h & is_w & (k < taps * channels)[None, :]
        x = tl.load(x_ptr + place + channel * x_channel_stride, mask, 0.0)
        w_mask = (k < taps * channels)[:, None] & is_n
        weight = tl.load(w_ptr + k[:, None] * out_channels + n[None, :], w_mask, 0.0)
        acc = product(x, weight, acc, PRECISION)
    out = group * out_channels + n
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + out, n < out_channels, 0.0).to(DTYPE)[None, :]
    place = sample * y_sample_stride + row * y_row_stride + column * y_stride
    at = place[:, None] + out.to(tl.int64)[None, :] * y_channel_stride
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), is_m & is_n)


@tw.jit
def convolution_weight_kernel(
    x_ptr,
    dy_ptr,
    sums_ptr,
    rows,
    rows_of_split,
    channels,
    out_channels,
    taps,
    taps_w,
    height,
    width,
    out_height,
    out_width,
    x_sample_stride,
    x_channel_stride,
    x_row_stride,
    x_stride,
    dy_sample_stride,
    dy_channel_stride,
    dy_row_stride,
    dy_stride,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of a block of a group's filters, summed over a part of the places."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    group, split = tl.program_id(1), tl.program_id(2)
    columns = taps * channels
    blocks = tl.cdiv(columns, BLOCK_N)
    m = tl.program_id(0) // blocks * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    out = (group * out_channels + m).to(tl.int64)[:, None]
    channel = (group * channels + n % channels).to(tl.int64)[None, :]
    tap = (n // channels)[None, :]
    is_m, is_n = (m < out_channels)[:, None], (n < columns)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    end = tl.minimum((split + 1) * rows_of_split, rows)
    for first in range(split * rows_of_split, end, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        sample, row, column = coordinates(k, out_height, out_width)
        h, is_h = seen(row[:, None], tap // taps_w, height, stride_h, padding_h, dilation_h, False)
        w, is_w = seen(column[:, None], tap % taps_w, width, stride_w, padding_w, dilation_w, False)
        is_k = k < end
        at = sample[:, None] * x_sample_stride + h * x_row_stride + w * x_stride
        x_mask = is_k[:, None] & is_n & is_h & is_w
        x = tl.load(x_ptr + at + channel * x_channel_stride, x_mask, 0.0)
        at = sample * dy_sample_stride + row * dy_row_stride + column * dy_stride
        dy_ptrs = dy_ptr + out * dy_channel_stride + at[None, :]
        dy = tl.load(dy_ptrs, is_m & is_k[None, :], 0.0)
        acc = product(dy, x, acc, PRECISION)
    filters = tl.num_programs(1) * out_channels
    at = (split.to(tl.int64) * filters + out) * columns + n[None, :]
    tl.store(sums_ptr + at, acc, is_m & is_n)


@tw.jit
def depthwise_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    outputs,
    channels,
    multiple,
    taps,
    taps_w,
    height,
    width,
    out_height,
    out_width,
    x_sample_stride,
    x_channel_stride,
    x_row_stride,
    x_stride,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    INVERSE: tl.constexpr,
    SILU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Places of an output whose channels see one each; `INVERSE`: are seen by `multiple`."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_output = at < outputs
    column = (at % out_width).to(tl.int32)
    row = (at // out_width % out_height).to(tl.int32)
    plane = at // (out_width * out_height)
    channel = (plane % channels).to(tl.int32)
    sample = plane // channels
    acc = tl.zeros((BLOCK,), DTYPE)
    for step in range((multiple if INVERSE else 1) * taps):
        tap = step % taps
        if INVERSE:
            other = channel * multiple + step // taps
            weight_at = other * taps + tap
        else:
            other = channel // multiple
            weight_at = channel * taps + tap
        h, is_h = seen(row, tap // taps_w, height, stride_h, padding_h, dilation_h, INVERSE)
        w, is_w = seen(column, tap % taps_w, width, stride_w, padding_w, dilation_w, INVERSE)
        place = sample * x_sample_stride + h * x_row_stride + w * x_stride
        place += other.to(tl.int64) * x_channel_stride
        x = tl.load(x_ptr + place, is_output & is_h & is_w, 0.0).to(DTYPE)
        acc += x * tl.load(w_ptr + weight_at, is_output, 0.0).to(DTYPE)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + channel, is_output, 0.0).to(DTYPE)
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(y_ptr + at, acc, is_output)


@tw.jit
def depthwise_weight_kernel(
    x_ptr,
    dy_ptr,
    dw_ptr,
    rows,
    multiple,
    taps,
    taps_w,
    height,
    width,
    out_height,
    out_width,
    x_sample_stride,
    x_channel_stride,
    x_row_stride,
    x_stride,
    dy_sample_stride,
    dy_channel_stride,
    dy_row_stride,
    dy_stride,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    BLOCK: tl.constexpr,
):
    """The gradient of one tap of a channel's filter."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    channel, tap = tl.program_id(0) // taps, tl.program_id(0) % taps
    x_ptr += (channel // multiple).to(tl.int64) * x_channel_stride
    dy_ptr += channel.to(tl.int64) * dy_channel_stride
    acc = tl.zeros((BLOCK,), DTYPE)
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        sample, row, column = coordinates(place, out_height, out_width)
        h, is_h = seen(row, tap // taps_w, height, stride_h, padding_h, dilation_h, False)
        w, is_w = seen(column, tap % taps_w, width, stride_w, padding_w, dilation_w, False)
        at = sample * x_sample_stride + h * x_row_stride + w * x_stride
        x = tl.load(x_ptr + at, (place < rows) & is_h & is_w, 0.0).to(DTYPE)
        at = sample * dy_sample_stride + row * dy_row_stride + column * dy_stride
        acc += x * tl.load(dy_ptr + at, place < rows, 0.0).to(DTYPE)
    tl.store(dw_ptr + tl.program_id(0), tl.sum(acc))
