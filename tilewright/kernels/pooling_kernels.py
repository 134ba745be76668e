"""The kernels of pooling. A window is what an output sees of the input's planes.

A gradient is gathered: each element of the input asks the windows that have it, so that the order
of its sum is always the same.
"""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.elementwise import is_nan
from tilewright.kernels.rows import accumulator

__all__ = ["image_coordinates", "pool_backward_kernel", "pool_kernel"]


@tw.jit
def image_coordinates(at, channels, height, width, CHANNELS_LAST: tl.constexpr):
    """Return the sample, channel, row and column of elements, by their numbers in memory."""
    if CHANNELS_LAST:
        place = at // channels
        sample, channel = place // (width * height), at % channels
    else:
        place = at
        plane = at // (width * height)
        sample, channel = plane // channels, plane % channels
    row, column = place // width % height, place % width
    return sample, channel.to(tl.int32), row.to(tl.int32), column.to(tl.int32)


@tw.jit
def window(o, size, out_size, extent, stride, padding, ADAPTIVE: tl.constexpr):
    """Return where a window starts and ends, the padding included."""
    if ADAPTIVE:
        return o * size // out_size, ((o + 1) * size + out_size - 1) // out_size
    start = o * stride - padding
    return start, tl.minimum(start + extent, size + padding)


@tw.jit
def members(h_start, h_end, w_start, w_end, height, width, divisor, INCLUDE_PAD: tl.constexpr):
    """Return what the sum of a window is divided by."""
    if divisor != 0:
        return tl.zeros_like(h_start) + divisor
    if INCLUDE_PAD:
        return (h_end - h_start) * (w_end - w_start)
    h_size = tl.minimum(h_end, height) - tl.maximum(h_start, 0)
    return h_size * (tl.minimum(w_end, width) - tl.maximum(w_start, 0))


@tw.jit
def pool_kernel(
    x_ptr,
    y_ptr,
    index_ptr,
    outputs,
    channels,
    height,
    width,
    out_height,
    out_width,
    x_sample_stride,
    x_channel_stride,
    x_row_stride,
    x_stride,
    kernel_h,
    kernel_w,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    divisor,
    CHANNELS_LAST: tl.constexpr,
    INCLUDE_PAD: tl.constexpr,
    ADAPTIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest element of windows, and where it is, if there is `index_ptr`; else their mean."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_output = at < outputs
    sample, channel, row, column = image_coordinates(
        at, channels, out_height, out_width, CHANNELS_LAST
    )
    corner = sample * x_sample_stride + channel.to(tl.int64) * x_channel_stride
    extent_h, extent_w = (kernel_h - 1) * dilation_h + 1, (kernel_w - 1) * dilation_w + 1
    h_start, h_end = window(row, height, out_height, extent_h, stride_h, padding_h, ADAPTIVE)
    w_start, w_end = window(column, width, out_width, extent_w, stride_w, padding_w, ADAPTIVE)
    if index_ptr is not None:
        result = tl.full((BLOCK,), -float("inf"), DTYPE)
        index = tl.maximum(h_start, 0) * width + tl.maximum(w_start, 0)
    else:
        result = tl.zeros((BLOCK,), DTYPE)
    for tap in range(kernel_h * kernel_w):
        h = h_start + tap // kernel_w * dilation_h
        w = w_start + tap % kernel_w * dilation_w
        mask = is_output & (h >= 0) & (h < tl.minimum(h_end, height))
        mask = mask & (w >= 0) & (w < tl.minimum(w_end, width))
        offset = corner + h.to(tl.int64) * x_row_stride + w * x_stride
        if index_ptr is not None:
            x = tl.load(x_ptr + offset, mask, -float("inf")).to(DTYPE)
            is_larger = (x > result) | is_nan(x)
            result = tl.where(is_larger, x, result)
            index = tl.where(is_larger, h * width + w, index)
        else:
            result += tl.load(x_ptr + offset, mask, 0.0).to(DTYPE)
    if index_ptr is not None:
        tl.store(index_ptr + at, index, is_output)
    else:
        count = members(h_start, h_end, w_start, w_end, height, width, divisor, INCLUDE_PAD)
        result = result / count.to(DTYPE)
    tl.store(y_ptr + at, result, is_output)


@tw.jit
def asked_window(place, tap, size, out_size, stride, padding, dilation, ADAPTIVE: tl.constexpr):
    """Return a window that may have an element, and whether it has it as its `tap`th one."""
    if ADAPTIVE:
        o = place * out_size // size + tap
        start, end = window(o, size, out_size, 0, 0, 0, ADAPTIVE)
        return o, (o < out_size) & (start <= place) & (place < end)
    distance = place + padding - tap * dilation
    o = distance // stride
    return o, (distance >= 0) & (distance % stride == 0) & (o < out_size)


@tw.jit
def pool_backward_kernel(
    dy_ptr,
    index_ptr,
    dx_ptr,
    inputs,
    channels,
    height,
    width,
    out_height,
    out_width,
    taps_h,
    taps_w,
    kernel_h,
    kernel_w,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    dilation_h,
    dilation_w,
    divisor,
    CHANNELS_LAST: tl.constexpr,
    INCLUDE_PAD: tl.constexpr,
    ADAPTIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of elements of the input."""
    DTYPE: tl.constexpr = accumulator(dy_ptr.dtype.element_ty)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_input = at < inputs
    sample, channel, h, w = image_coordinates(at, channels, height, width, CHANNELS_LAST)
    if CHANNELS_LAST:
        corner, step = sample * (out_height * out_width * channels) + channel, channels
    else:
        corner, step = (sample * channels + channel) * (out_height * out_width), 1
    dx = tl.zeros((BLOCK,), DTYPE)
    for tap in range(taps_h * taps_w):
        row, is_row = asked_window(
            h, tap // taps_w, height, out_height, stride_h, padding_h, dilation_h, ADAPTIVE
        )
        column, is_column = asked_window(
            w, tap % taps_w, width, out_width, stride_w, padding_w, dilation_w, ADAPTIVE
        )
        mask = is_input & is_row & is_column
        out = corner + (row * out_width + column).to(tl.int64) * step
        dy = tl.load(dy_ptr + out, mask, 0.0).to(DTYPE)
        if index_ptr is not None:
            dx += tl.where(tl.load(index_ptr + out, mask, -1) == h * width + w, dy, 0.0)
        else:
            extent_h, extent_w = (kernel_h - 1) * dilation_h + 1, (kernel_w - 1) * dilation_w + 1
            start, end = window(row, height, out_height, extent_h, stride_h, padding_h, ADAPTIVE)
            left, right = window(column, width, out_width, extent_w, stride_w, padding_w, ADAPTIVE)
            count = members(start, end, left, right, height, width, divisor, INCLUDE_PAD)
            dx += tl.where(mask, dy / count.to(DTYPE), 0.0)
    tl.store(dx_ptr + at, dx, is_input)
