"""Kernels of groups of planes that are one tile each: a GPU's registers hold a group, read once."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.planes import (
    channel_parameter,
    input_gradient,
    loaded,
    tile_mask,
    tile_offsets,
)
from tilewright.kernels.rows import accumulator, row_configs

__all__ = ["whole_group_gradient_kernel", "whole_group_norm_kernel"]


def _default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 32 elements for each thread, 64 of large groups."""
    elements = arguments["ROWS"] * arguments["BLOCK"]
    return tw.Config({}, num_warps=min(max(elements // 1024, 1), 16), num_stages=1)


_key = ["inside", "in_group", "ROWS", "BLOCK"]


@tw.autotune(row_configs, key=_key, default=_default)
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
    """The norm of a group; `apart`: how far apart samples, and channels, are among weights."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    end_channel = (group + 1) * in_group
    channel = group * in_group + tl.arange(0, ROWS)
    mask = tile_mask(channel, end_channel, 0, inside, BLOCK)
    x = loaded(x_ptr, strides[0], sample, channel, 0, mask, DTYPE)
    own = sample * apart[0] + channel * apart[1]
    weight = channel_parameter(weight_ptr, own, channel < end_channel, 1.0, DTYPE)
    bias = channel_parameter(bias_ptr, own, channel < end_channel, 0.0, DTYPE)
    mean = tl.sum(x) / (inside * in_group)
    distance = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(distance * distance) / (inside * in_group) + EPS)
    y = distance * (rstd * weight)[:, None] + bias[:, None]
    y_ptrs = y_ptr + tile_offsets(strides[1], sample, channel, 0, BLOCK)
    tl.store(y_ptrs, y, mask, cache_modifier=".cs")
    tl.store(mean_ptr + tl.program_id(0), mean)
    tl.store(rstd_ptr + tl.program_id(0), rstd)


@tw.autotune(row_configs, key=_key, default=_default)
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
    """The gradient of a group, and the sums over places that are joined to those of parameters.

    `apart`: how far apart samples, and channels, are among weights, and among those sums.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    sample, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    end_channel = (group + 1) * in_group
    channel = group * in_group + tl.arange(0, ROWS)
    is_channel = channel < end_channel
    mask = tile_mask(channel, end_channel, 0, inside, BLOCK)
    mean = tl.load(mean_ptr + tl.program_id(0)).to(DTYPE)
    rstd = tl.load(rstd_ptr + tl.program_id(0)).to(DTYPE)
    x = loaded(x_ptr, strides[0], sample, channel, 0, mask, DTYPE)
    dy = loaded(dy_ptr, strides[1], sample, channel, 0, mask, DTYPE)
    own = sample * apart[0][0] + channel * apart[0][1]
    weight = channel_parameter(weight_ptr, own, is_channel, 1.0, DTYPE)
    sums, products = tl.sum(dy, axis=1), tl.sum(dy * (x - mean), axis=1) * rstd
    level = tl.sum(sums * weight, axis=0) / (inside * in_group)
    along = tl.sum(products * weight, axis=0) / (inside * in_group)
    dx = input_gradient(x, dy, mean, rstd, weight[:, None], level, along)
    dx_ptrs = dx_ptr + tile_offsets(strides[2], sample, channel, 0, BLOCK)
    tl.store(dx_ptrs, dx, mask, cache_modifier=".cs")
    at = sample.to(tl.int64) * apart[1][0] + channel * apart[1][1]
    tl.store(sums_ptr + at, sums, is_channel)
    tl.store(products_ptr + at, products, is_channel)
