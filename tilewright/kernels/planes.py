"""Kernels of planes: all elements of a channel of a sample, which are often far apart in memory.

An array (samples, channels, ...) is folded to (samples, channels, inside), of any strides; a plane
is what a pair of the first two names. Planes belong together in groups: channels of a sample, or
for a batch norm the planes of a channel. A tile is `ROWS` channels by `BLOCK` places inside.

Where one program reads a group, it is one launch (`plane_groups.py`). Else numbers of `parts` of
each plane are made, in a matrix (samples * parts, channels); then those of groups; and then all
elements are read again, in the other order, from what is in a cache still.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator, distance_gradient, row_configs, row_warps

__all__ = [
    "channel_parameter",
    "input_gradient",
    "join_products_kernel",
    "join_statistics_kernel",
    "kept_sums",
    "loaded",
    "normalized",
    "plane_gradient_kernel",
    "plane_norm_kernel",
    "plane_products_kernel",
    "plane_statistics_kernel",
    "store_tile",
    "tile_mask",
]

# Which tiles there are depends on the strides, too.
_key = ["channels", "inside", "ROWS", "BLOCK"]


def _default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 32 elements for each thread."""
    elements = arguments["ROWS"] * arguments["BLOCK"]
    return tw.Config({}, num_warps=min(max(elements // 1024, 1), 16), num_stages=1)


def _gradient_default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: half as many elements where places are neighbours."""
    _, across, along = arguments["strides"][0]
    return row_warps(arguments) if along < across else _default(arguments)


@tw.jit
def tile_offsets(strides, sample, channel, first, BLOCK: tl.constexpr):
    """Return where a tile's elements are: channels by places from `first` on."""
    corner = sample.to(tl.int64) * strides[0] + tl.cast(first, tl.int64) * strides[2]
    rows = channel.to(tl.int64)[:, None] * strides[1]
    return corner + rows + tl.arange(0, BLOCK)[None, :] * strides[2]


@tw.jit
def tile_mask(channel, end_channel, first, end, BLOCK: tl.constexpr):
    """Return which elements of a tile there are."""
    return (channel < end_channel)[:, None] & (first + tl.arange(0, BLOCK) < end)[None, :]


@tw.jit
def loaded(x_ptr, strides, sample, channel, first, mask, DTYPE: tl.constexpr):
    """Return the elements of a tile."""
    places = tile_offsets(strides, sample, channel, first, mask.shape[1])
    return tl.load(x_ptr + places, mask, 0.0).to(DTYPE)


@tw.jit
def store_tile(pointer, strides, sample, channel, first, values, mask):
    """Store the elements of a tile, which are not to fill caches."""
    places = tile_offsets(strides, sample, channel, first, mask.shape[1])
    tl.store(pointer + places, values, mask, cache_modifier=".cs")


@tw.jit
def channel_parameter(pointer, channel, is_channel, other, DTYPE: tl.constexpr):
    """Return the weights or biases of channels, or what stands for those that are not there."""
    if pointer is None:
        return tl.full(channel.shape, other, DTYPE)
    return tl.load(pointer + channel, is_channel, 0.0).to(DTYPE)


@tw.jit
def kept_sums(x, LANES: tl.constexpr):
    """Return the sums of rows that are added up over the tiles: `LANES` of each row, one or all.

    One is best where registers hold the sums of a row in the making, and a tile lives in memory.
    """
    if x.shape[1] == LANES:
        return x
    return tl.sum(x, axis=1)[:, None]


@tw.jit
def group_of(sample, channel, grouping):
    """Return the numbers of channels' groups.

    `grouping`: how many channels have one, and how many a sample has, 0 where all have the same.
    """
    return sample * grouping[1] + channel // grouping[0]


@tw.autotune(row_configs, key=_key, default=_default)
@tw.jit
def plane_statistics_kernel(
    x_ptr,
    x_strides,
    mean_ptr,
    squares_ptr,
    channels,
    inside,
    parts,
    span,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """The mean of parts of planes, and the sum of squares of the distances from it."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    channel = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    start = part * span
    end = tl.minimum(start + span, inside)
    mask = tile_mask(channel, channels, start, end, BLOCK)
    x = loaded(x_ptr, x_strides, sample, channel, start, mask, DTYPE)
    # The mean of the first elements is near enough to that of all for distances from it.
    origin = tl.sum(x, axis=1) / tl.minimum(end - start, BLOCK)
    distance = tl.where(mask, x - origin[:, None], 0.0)
    sums, squares = kept_sums(distance, LANES), kept_sums(distance * distance, LANES)
    for first in range(start + BLOCK, end, BLOCK):
        mask = tile_mask(channel, channels, first, end, BLOCK)
        x = loaded(x_ptr, x_strides, sample, channel, first, mask, DTYPE)
        distance = tl.where(mask, x - origin[:, None], 0.0)
        sums += kept_sums(distance, LANES)
        squares += kept_sums(distance * distance, LANES)
    step = tl.sum(sums, axis=1) / (end - start)
    mean = origin + step
    squares = tl.sum(squares, axis=1) - step * step * (end - start)
    at = tl.program_id(0).to(tl.int64) * channels + channel
    tl.store(mean_ptr + at, mean, channel < channels)
    tl.store(squares_ptr + at, squares, channel < channels)


@tw.jit
def join_statistics_kernel(
    mean_ptr,
    squares_ptr,
    group_mean_ptr,
    group_rstd_ptr,
    channels,
    inside,
    parts,
    span,
    rows,
    in_group,
    EPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The mean and 1 / deviation of a group, `rows` rows by `in_group` channels of parts."""
    DTYPE: tl.constexpr = mean_ptr.dtype.element_ty
    channel = tl.program_id(1) * in_group + tl.arange(0, BLOCK)
    mean = tl.zeros((ROWS, BLOCK), DTYPE)
    squares = tl.zeros((ROWS, BLOCK), DTYPE)
    count = tl.zeros((ROWS, BLOCK), DTYPE)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & (tl.arange(0, BLOCK) < in_group)[None, :]
        size = tl.minimum(inside - row % parts * span, span)[:, None].to(DTYPE)
        at = (tl.program_id(0) * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
        step = tl.where(mask, tl.load(mean_ptr + at, mask, 0.0) - mean, 0.0)
        more = tl.where(mask, size, 0.0)
        before = count
        count += more
        part = more / tl.maximum(count, 1.0)
        mean += step * part
        squares += tl.load(squares_ptr + at, mask, 0.0) + step * step * (before * part)
    # Chan et al., "Updating formulae and a pairwise algorithm", 1979, here and above.
    number = tl.sum(tl.sum(count, axis=1), axis=0)
    total = tl.sum(tl.sum(mean * count, axis=1), axis=0) / number
    squares += count * (mean - total) * (mean - total)
    variance = tl.sum(tl.sum(squares, axis=1), axis=0) / number
    group = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(group_mean_ptr + group, total)
    tl.store(group_rstd_ptr + group, 1 / tl.sqrt(variance + EPS))


@tw.jit
def normalized(x, mean, rstd, weight, bias):
    """Return the norm of a tile, from numbers of its channels or its group."""
    return (x - mean) * (rstd * weight) + bias


@tw.autotune(row_configs, key=_key, default=_default)
@tw.jit
def plane_norm_kernel(
    x_ptr,
    y_ptr,
    strides,
    grouping,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    bias_ptr,
    channels,
    inside,
    parts,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute (x - mean) * rstd * weight + bias, the first tiles last."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    number = tl.num_programs(0) - 1 - tl.program_id(0)
    sample, first = number // parts, number % parts * BLOCK
    channel = (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS + tl.arange(0, ROWS)
    is_channel = channel < channels
    mask = tile_mask(channel, channels, first, inside, BLOCK)
    x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
    group = group_of(sample, channel, grouping)
    mean = tl.load(mean_ptr + group, is_channel, 0.0).to(DTYPE)
    rstd = tl.load(rstd_ptr + group, is_channel, 0.0).to(DTYPE)
    weight = channel_parameter(weight_ptr, channel, is_channel, 1.0, DTYPE)
    bias = channel_parameter(bias_ptr, channel, is_channel, 0.0, DTYPE)
    y = normalized(x, mean[:, None], rstd[:, None], weight[:, None], bias[:, None])
    store_tile(y_ptr, strides[1], sample, channel, first, y, mask)


@tw.autotune(row_configs, key=_key, default=_gradient_default)
@tw.jit
def plane_products_kernel(
    x_ptr,
    dy_ptr,
    strides,
    grouping,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    products_ptr,
    channels,
    inside,
    parts,
    span,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """The sums of dy and of dy * (x - mean) * rstd of parts of planes."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    channel = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    is_channel = channel < channels
    group = group_of(sample, channel, grouping)
    mean = tl.load(mean_ptr + group, is_channel, 0.0).to(DTYPE)[:, None]
    rstd = tl.load(rstd_ptr + group, is_channel, 0.0).to(DTYPE)
    sums = tl.zeros((ROWS, LANES), DTYPE)
    products = tl.zeros((ROWS, LANES), DTYPE)
    start = part * span
    end = tl.minimum(start + span, inside)
    for first in range(start, end, BLOCK):
        mask = tile_mask(channel, channels, first, end, BLOCK)
        x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
        dy = loaded(dy_ptr, strides[1], sample, channel, first, mask, DTYPE)
        sums += kept_sums(dy, LANES)
        products += kept_sums(dy * (x - mean), LANES)
    at = tl.program_id(0).to(tl.int64) * channels + channel
    tl.store(sums_ptr + at, tl.sum(sums, axis=1), is_channel)
    tl.store(products_ptr + at, tl.sum(products, axis=1) * rstd, is_channel)


@tw.jit
def join_products_kernel(
    sums_ptr,
    products_ptr,
    weight_ptr,
    level_ptr,
    along_ptr,
    channels,
    inside,
    parts,
    rows,
    in_group,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The means of weighted sums and products over a group: `rows` rows by `in_group` channels."""
    DTYPE: tl.constexpr = sums_ptr.dtype.element_ty
    is_own = tl.arange(0, BLOCK) < in_group
    channel = tl.program_id(1) * in_group + tl.arange(0, BLOCK)
    weight = channel_parameter(weight_ptr, channel, is_own, 1.0, DTYPE)
    level = tl.zeros((ROWS, BLOCK), DTYPE)
    along = tl.zeros((ROWS, BLOCK), DTYPE)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & is_own[None, :]
        at = (tl.program_id(0) * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
        level += tl.load(sums_ptr + at, mask, 0.0) * weight[None, :]
        along += tl.load(products_ptr + at, mask, 0.0) * weight[None, :]
    count = tl.cast(rows // parts, DTYPE) * inside * in_group
    group = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(level_ptr + group, tl.sum(tl.sum(level, axis=1), axis=0) / count)
    tl.store(along_ptr + group, tl.sum(tl.sum(along, axis=1), axis=0) / count)


@tw.jit
def input_gradient(x, dy, mean, rstd, weight, level, along):
    """Return the gradient of a tile, from numbers of its channels or its group."""
    return distance_gradient(dy * weight, (x - mean) * rstd, along, level, rstd)


@tw.autotune(row_configs, key=_key, default=_gradient_default)
@tw.jit
def plane_gradient_kernel(
    x_ptr,
    dy_ptr,
    dx_ptr,
    strides,
    grouping,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    level_ptr,
    along_ptr,
    channels,
    inside,
    parts,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of tiles, the first ones last; `level_ptr` None: of given statistics."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    number = tl.num_programs(0) - 1 - tl.program_id(0)
    sample, first = number // parts, number % parts * BLOCK
    channel = (tl.num_programs(1) - 1 - tl.program_id(1)) * ROWS + tl.arange(0, ROWS)
    is_channel = channel < channels
    mask = tile_mask(channel, channels, first, inside, BLOCK)
    x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
    dy = loaded(dy_ptr, strides[1], sample, channel, first, mask, DTYPE)
    group = group_of(sample, channel, grouping)
    mean = tl.load(mean_ptr + group, is_channel, 0.0).to(DTYPE)
    rstd = tl.load(rstd_ptr + group, is_channel, 0.0).to(DTYPE)
    weight = channel_parameter(weight_ptr, channel, is_channel, 1.0, DTYPE)
    level = channel_parameter(level_ptr, group, is_channel, 0.0, DTYPE)
    along = channel_parameter(along_ptr, group, is_channel, 0.0, DTYPE)
    dx = input_gradient(
        x, dy, mean[:, None], rstd[:, None], weight[:, None], level[:, None], along[:, None]
    )
    store_tile(dx_ptr, strides[2], sample, channel, first, dx, mask)
