"""The kernels of convolutions: products of matrices that are never written down.

A row of the left matrix is a place of the output, a column a *tap*, that is a place of the filter,
and a channel of the input. The gradient of the input is such a product, too: `INVERSE` asks for
the places of the output that have seen a place of the input.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import on_cpu
from tilewright.kernels.pooling_kernels import image_coordinates
from tilewright.kernels.rows import MULTIPROCESSORS, accumulator

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


@tw.jit
def seen_at_tap(corner, h0, w0, first, channels, at_tap, strides, geometry, BLOCK_K: tl.constexpr):
    """Return where places see the channels from column `first` on, of one tap, and whether."""
    taps_w, height, width = at_tap
    tap = first // channels
    h_distance, w_distance = tap // taps_w * geometry[4], tap % taps_w * geometry[5]
    h, w = h0 + h_distance, w0 + w_distance
    mask = (h >= 0) & (h < height) & (w >= 0) & (w < width)
    distance = h_distance * strides[2] + w_distance * strides[3]
    channel = first - tap * channels + tl.arange(0, BLOCK_K)
    return (corner + distance)[:, None] + (channel * strides[1])[None, :], mask[:, None]


@tw.jit
def seen_at_taps(
    sample, row, column, first, channels, at_tap, strides, geometry,
    INVERSE: tl.constexpr, WHOLE_TAPS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return where places see the columns from `first` on, of any taps, and whether."""
    taps_w, height, width = at_tap
    stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w = geometry
    tap, channel = taps_and_channels(first, channels, WHOLE_TAPS, BLOCK_K)
    h, is_h = seen(row[:, None], tap // taps_w, height, stride_h, padding_h, dilation_h, INVERSE)
    w, is_w = seen(column[:, None], tap % taps_w, width, stride_w, padding_w, dilation_w, INVERSE)
    at = sample[:, None] * strides[0] + h * strides[2] + w * strides[3]
    return at + channel * strides[1], is_h & is_w


def _block_config(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning."""
    x, channels = arguments["x_ptr"], arguments["out_channels"]
    width = max(tw.next_power_of_2(channels), 16)
    if on_cpu(x):
        return tw.Config({"BLOCK_M": 64, "BLOCK_N": min(width, 128)})
    tiles = tw.cdiv(arguments["rows"], 128) * tw.cdiv(channels, 256)
    width = min(width, 256 if x.dtype.itemsize == 2 and tiles >= MULTIPROCESSORS else 128)
    return tw.Config({"BLOCK_M": 128, "BLOCK_N": width}, num_warps=8 if width > 64 else 4)


@tw.autotune(
    [
        tw.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)
        for m, n, warps in ((64, 64, 4), (128, 32, 4), (128, 64, 4), (128, 128, 8), (128, 256, 8))
        for stages in (2, 3)
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
    x_strides,
    y_strides,
    geometry,
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
    x_ptr += tl.cast(group, tl.int64) * channels * x_strides[1]
    w_ptr += tl.cast(group, tl.int64) * taps * channels * out_channels
    is_m, is_n = (m < rows)[:, None], (n < out_channels)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    at_tap = taps_w, height, width
    corner, h0, w0 = 0, row, column
    if WHOLE_TAPS and not INVERSE:  # where the first tap is; the others are at the same distances
        h0, w0 = row * geometry[0] - geometry[2], column * geometry[1] - geometry[3]
        corner = sample * x_strides[0] + h0 * x_strides[2] + w0 * x_strides[3]
    for first in range(0, taps * channels, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        if WHOLE_TAPS and not INVERSE:
            at, mask = seen_at_tap(
                corner, h0, w0, first, channels, at_tap, x_strides, geometry, BLOCK_K
            )
            w_mask = is_n
        else:
            at, mask = seen_at_taps(
                *(sample, row, column, first, channels, at_tap, x_strides, geometry),
                *(INVERSE, WHOLE_TAPS, BLOCK_K),
            )
            mask = mask & (k < taps * channels)[None, :]
            w_mask = (k < taps * channels)[:, None] & is_n
        x = tl.load(x_ptr + at, mask & is_m, 0.0)
        weight = tl.load(w_ptr + k[:, None] * out_channels + n[None, :], w_mask, 0.0)
        acc = product(x, weight, acc, PRECISION)
    out = group * out_channels + n
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + out, n < out_channels, 0.0).to(DTYPE)[None, :]
    place = sample * y_strides[0] + row * y_strides[2] + column * y_strides[3]
    at = place[:, None] + out.to(tl.int64)[None, :] * y_strides[1]
    tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), is_m & is_n)


@tw.jit
def convolution_weight_kernel(
    x_ptr,
    dy_ptr,
    sums_ptr,
    lines,
    turns,
    steps_of_split,
    channels,
    out_channels,
    taps,
    taps_w,
    height,
    width,
    out_height,
    out_width,
    x_strides,
    dy_strides,
    geometry,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of a block of a tap of a group's filters, summed over a part of the places.

    A step takes `WIDTH` places of each of some lines of the output, so that nothing is divided by
    its width; a line takes so many turns.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    group, split = tl.program_id(1), tl.program_id(2)
    blocks = tl.cdiv(channels, BLOCK_N)
    tap = tl.program_id(0) // blocks % taps
    m = tl.program_id(0) // (blocks * taps) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    out = (group * out_channels + m).to(tl.int64)[None, :]
    channel = (group * channels + n).to(tl.int64)[None, :]
    is_m, is_n = (m < out_channels)[None, :], (n < channels)[None, :]
    h_distance = tap // taps_w * geometry[4] - geometry[2]
    w_distance = tap % taps_w * geometry[5] - geometry[3]
    LINES: tl.constexpr = BLOCK_K // WIDTH
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    end = tl.minimum((split + 1) * steps_of_split, tl.cdiv(lines, LINES) * turns)
    for step in range(split * steps_of_split, end):
        line = step // turns * LINES
        if LINES > 1:
            line = line + k // WIDTH
        sample, row = (line // out_height).to(tl.int64), line % out_height
        column = step % turns * WIDTH + k % WIDTH
        h, w = row * geometry[0] + h_distance, column * geometry[1] + w_distance
        is_k = (column < out_width) & (line < lines)
        is_seen = is_k & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        at = sample * x_strides[0] + h * x_strides[2] + w * x_strides[3]
        x_ptrs = x_ptr + at[:, None] + channel * x_strides[1]
        x = tl.load(x_ptrs, is_seen[:, None] & is_n, 0.0)
        at = sample * dy_strides[0] + row * dy_strides[2] + column * dy_strides[3]
        dy_ptrs = dy_ptr + at[:, None] + out * dy_strides[1]
        dy = tl.load(dy_ptrs, is_k[:, None] & is_m, 0.0)
        acc = product(tl.trans(dy), x, acc, PRECISION)
    columns = taps * channels
    filters = tl.num_programs(1) * out_channels
    line = (split.to(tl.int64) * filters + tl.trans(out)) * columns
    tl.store(sums_ptr + line + tap * channels + n[None, :], acc, tl.trans(is_m) & is_n)


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
    x_strides,
    geometry,
    CHANNELS_LAST: tl.constexpr,
    INVERSE: tl.constexpr,
    SILU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Places of an output whose channels see one each; `INVERSE`: are seen by `multiple`."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_output = at < outputs
    sample, channel, row, column = image_coordinates(
        at, channels, out_height, out_width, CHANNELS_LAST
    )
    acc = tl.zeros((BLOCK,), DTYPE)
    for step in range((multiple if INVERSE else 1) * taps):
        tap = step % taps
        if INVERSE:
            other = channel * multiple + step // taps
            weight_at = other * taps + tap
        else:
            other = channel // multiple
            weight_at = channel * taps + tap
        h, is_h = seen(row, tap // taps_w, height, geometry[0], geometry[2], geometry[4], INVERSE)
        w, is_w = seen(column, tap % taps_w, width, geometry[1], geometry[3], geometry[5], INVERSE)
        place = sample * x_strides[0] + h * x_strides[2] + w * x_strides[3]
        place += other.to(tl.int64) * x_strides[1]
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
    x_strides,
    dy_strides,
    geometry,
    BLOCK: tl.constexpr,
):
    """The gradient of one tap of a channel's filter."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    channel, tap = tl.program_id(0) // taps, tl.program_id(0) % taps
    x_ptr += (channel // multiple).to(tl.int64) * x_strides[1]
    dy_ptr += channel.to(tl.int64) * dy_strides[1]
    acc = tl.zeros((BLOCK,), DTYPE)
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        sample, row, column = coordinates(place, out_height, out_width)
        h, is_h = seen(row, tap // taps_w, height, geometry[0], geometry[2], geometry[4], False)
        w, is_w = seen(column, tap % taps_w, width, geometry[1], geometry[3], geometry[5], False)
        at = sample * x_strides[0] + h * x_strides[2] + w * x_strides[3]
        x = tl.load(x_ptr + at, (place < rows) & is_h & is_w, 0.0).to(DTYPE)
        at = sample * dy_strides[0] + row * dy_strides[2] + column * dy_strides[3]
        acc += x * tl.load(dy_ptr + at, place < rows, 0.0).to(DTYPE)
    tl.store(dw_ptr + tl.program_id(0), tl.sum(acc))
