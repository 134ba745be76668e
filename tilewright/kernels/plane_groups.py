"""Kernels of groups of planes that one program has each.

A group that is one tile is read once, and held in the registers of a GPU. One that is several
tiles is read twice, and is in a cache the second time. `apart` says how far apart samples, and
channels, are among weights and biases, and among sums over places.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.planes import (
    channel_parameter,
    input_gradient,
    kept_sums,
    loaded,
    normalized,
    store_tile,
    tile_mask,
)
from tilewright.kernels.rows import accumulator, accumulator_bytes, row_configs, row_warps

__all__ = [
    "group_gradient_kernel",
    "group_norm_kernel",
    "whole_group_gradient_kernel",
    "whole_group_norm_kernel",
]

_key = ["inside", "in_group", "ROWS", "BLOCK"]
_whole_configs = [tw.Config({}, num_warps=warps, num_stages=1) for warps in (4, 8, 16)]


def _whole_default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 256 bytes for each thread, 128 up to 4 warps."""
    size = arguments["ROWS"] * arguments["BLOCK"] * accumulator_bytes(arguments["x_ptr"])
    warps = min(max(size // 4096, 1), max(size // 8192, 4))
    return tw.Config({}, num_warps=warps, num_stages=1)


@tw.jit
def own_group(in_group, groups):
    """Return the sample of a program's group, the first of its channels, and where they end."""
    sample, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    return sample, group * in_group, (group + 1) * in_group


@tw.jit
def own_parameter(pointer, sample, channel, end_channel, apart, other, DTYPE: tl.constexpr):
    """Return the weights or biases of a group's channels."""
    place = sample * apart[0] + channel * apart[1]
    return channel_parameter(pointer, place, channel < end_channel, other, DTYPE)


@tw.jit
def store_sums(sums_ptr, products_ptr, sums, products, sample, channel, end_channel, apart):
    """Store sums over the places of channels, which are joined to gradients of parameters."""
    at = sample.to(tl.int64) * apart[0] + channel * apart[1]
    tl.store(sums_ptr + at, sums, channel < end_channel)
    tl.store(products_ptr + at, products, channel < end_channel)


@tw.autotune(_whole_configs, key=_key, default=_whole_default)
@tw.jit
def whole_group_norm_kernel(
    x_ptr,
    y_ptr,
    strides,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    bias_ptr,
    inside,
    in_group,
    groups,
    apart,
    EPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The norm of a group that is one tile."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, first_channel, end_channel = own_group(in_group, groups)
    channel = first_channel + tl.arange(0, ROWS)
    mask = tile_mask(channel, end_channel, 0, inside, BLOCK)
    x = loaded(x_ptr, strides[0], sample, channel, 0, mask, DTYPE)
    weight = own_parameter(weight_ptr, sample, channel, end_channel, apart, 1.0, DTYPE)
    bias = own_parameter(bias_ptr, sample, channel, end_channel, apart, 0.0, DTYPE)
    mean = tl.sum(x) / (inside * in_group)
    distance = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(distance * distance) / (inside * in_group) + EPS)
    y = normalized(x, mean, rstd, weight[:, None], bias[:, None])
    store_tile(y_ptr, strides[1], sample, channel, 0, y, mask)
    tl.store(mean_ptr + tl.program_id(0), mean)
    tl.store(rstd_ptr + tl.program_id(0), rstd)


@tw.autotune(row_configs, key=_key, default=row_warps)
@tw.jit
def group_norm_kernel(
    x_ptr,
    y_ptr,
    strides,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    bias_ptr,
    inside,
    in_group,
    groups,
    apart,
    EPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """The norm of a group that is several tiles."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, first_channel, end_channel = own_group(in_group, groups)
    mask = tile_mask(first_channel + tl.arange(0, ROWS), end_channel, 0, inside, BLOCK)
    x = loaded(x_ptr, strides[0], sample, first_channel + tl.arange(0, ROWS), 0, mask, DTYPE)
    origin = tl.sum(tl.sum(x, axis=1), axis=0)
    origin /= tl.minimum(inside, BLOCK) * tl.minimum(in_group, ROWS)
    distance = tl.where(mask, x - origin, 0.0)
    sums, squares = kept_sums(distance, LANES), kept_sums(distance * distance, LANES)
    blocks = tl.cdiv(inside, BLOCK)
    steps = tl.cdiv(in_group, ROWS) * blocks
    for step in range(1, steps):
        channel = first_channel + step // blocks * ROWS + tl.arange(0, ROWS)
        first = step % blocks * BLOCK
        mask = tile_mask(channel, end_channel, first, inside, BLOCK)
        x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
        distance = tl.where(mask, x - origin, 0.0)
        sums += kept_sums(distance, LANES)
        squares += kept_sums(distance * distance, LANES)
    moved = tl.sum(tl.sum(sums, axis=1), axis=0) / (inside * in_group)
    mean = origin + moved
    variance = tl.sum(tl.sum(squares, axis=1), axis=0) / (inside * in_group) - moved * moved
    rstd = 1 / tl.sqrt(variance + EPS)
    for step in range(steps):
        channel = first_channel + step // blocks * ROWS + tl.arange(0, ROWS)
        first = step % blocks * BLOCK
        mask = tile_mask(channel, end_channel, first, inside, BLOCK)
        x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
        weight = own_parameter(weight_ptr, sample, channel, end_channel, apart, 1.0, DTYPE)
        bias = own_parameter(bias_ptr, sample, channel, end_channel, apart, 0.0, DTYPE)
        y = normalized(x, mean, rstd, weight[:, None], bias[:, None])
        store_tile(y_ptr, strides[1], sample, channel, first, y, mask)
    tl.store(mean_ptr + tl.program_id(0), mean)
    tl.store(rstd_ptr + tl.program_id(0), rstd)


@tw.autotune(_whole_configs, key=_key, default=_whole_default)
@tw.jit
def whole_group_gradient_kernel(
    x_ptr,
    dy_ptr,
    dx_ptr,
    strides,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    sums_ptr,
    products_ptr,
    inside,
    in_group,
    groups,
    apart,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a group that is one tile, and the sums that `plane_products_kernel` makes."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, first_channel, end_channel = own_group(in_group, groups)
    channel = first_channel + tl.arange(0, ROWS)
    mask = tile_mask(channel, end_channel, 0, inside, BLOCK)
    mean = tl.load(mean_ptr + tl.program_id(0)).to(DTYPE)
    rstd = tl.load(rstd_ptr + tl.program_id(0)).to(DTYPE)
    x = loaded(x_ptr, strides[0], sample, channel, 0, mask, DTYPE)
    dy = loaded(dy_ptr, strides[1], sample, channel, 0, mask, DTYPE)
    weight = own_parameter(weight_ptr, sample, channel, end_channel, apart[0], 1.0, DTYPE)
    sums, products = tl.sum(dy, axis=1), tl.sum(dy * (x - mean), axis=1) * rstd
    level = tl.sum(sums * weight, axis=0) / (inside * in_group)
    along = tl.sum(products * weight, axis=0) / (inside * in_group)
    dx = input_gradient(x, dy, mean, rstd, weight[:, None], level, along)
    store_tile(dx_ptr, strides[2], sample, channel, 0, dx, mask)
    store_sums(sums_ptr, products_ptr, sums, products, sample, channel, end_channel, apart[1])


@tw.autotune(row_configs, key=_key, default=row_warps)
@tw.jit
def group_gradient_kernel(
    x_ptr,
    dy_ptr,
    dx_ptr,
    strides,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    sums_ptr,
    products_ptr,
    inside,
    in_group,
    groups,
    apart,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """The gradient of a group that is several tiles, and the sums as in that of one tile."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, first_channel, end_channel = own_group(in_group, groups)
    mean = tl.load(mean_ptr + tl.program_id(0)).to(DTYPE)
    rstd = tl.load(rstd_ptr + tl.program_id(0)).to(DTYPE)
    level = tl.full((), 0.0, DTYPE)
    along = tl.full((), 0.0, DTYPE)
    for row in range(first_channel, end_channel, ROWS):
        channel = row + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, LANES), DTYPE)
        products = tl.zeros((ROWS, LANES), DTYPE)
        for first in range(0, inside, BLOCK):
            mask = tile_mask(channel, end_channel, first, inside, BLOCK)
            x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
            dy = loaded(dy_ptr, strides[1], sample, channel, first, mask, DTYPE)
            sums += kept_sums(dy, LANES)
            products += kept_sums(dy * (x - mean), LANES)
        sums, products = tl.sum(sums, axis=1), tl.sum(products, axis=1) * rstd
        weight = own_parameter(weight_ptr, sample, channel, end_channel, apart[0], 1.0, DTYPE)
        level += tl.sum(sums * weight, axis=0)
        along += tl.sum(products * weight, axis=0)
        store_sums(sums_ptr, products_ptr, sums, products, sample, channel, end_channel, apart[1])
    level /= inside * in_group
    along /= inside * in_group
    blocks = tl.cdiv(inside, BLOCK)
    for step in range(tl.cdiv(in_group, ROWS) * blocks):
        channel = first_channel + step // blocks * ROWS + tl.arange(0, ROWS)
        first = step % blocks * BLOCK
        mask = tile_mask(channel, end_channel, first, inside, BLOCK)
        x = loaded(x_ptr, strides[0], sample, channel, first, mask, DTYPE)
        dy = loaded(dy_ptr, strides[1], sample, channel, first, mask, DTYPE)
        weight = own_parameter(weight_ptr, sample, channel, end_channel, apart[0], 1.0, DTYPE)
        dx = input_gradient(x, dy, mean, rstd, weight[:, None], level, along)
        store_tile(dx_ptr, strides[2], sample, channel, first, dx, mask)
