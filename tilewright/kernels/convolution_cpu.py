"""Convolutions on the CPU: products whose right matrix is read from padded planes.

Each channel of the input is copied to a plane with its padding, so that a tap sees all places of
the output at one distance: a row of the right matrix is one run of memory, without masks. The run
goes on from line to line; what is between the lines of the output is computed, and left out. With
a stride there are as many planes for a channel, each with those lines and columns of which the
numbers have the same remainder.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty, permuted, strides
from tilewright.kernels.rows import accumulator, accumulator_name, column_sums

__all__ = ["product_on_cpu", "weight_gradient_on_cpu"]


@tw.jit
def row_of(x_ptr, offsets_ptr, k, depth, m, mask):
    """Load what the taps and channels `k` see, from places `m` on."""
    offset = tl.load(offsets_ptr + k, k < depth, 0)
    return tl.load(x_ptr + offset[:, None] + m[None, :], (k < depth)[:, None] & mask, 0.0)


@tw.jit
def convolution_cpu_kernel(
    x_ptr,
    offsets_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    depth,
    out_channels,
    places,
    pitch,
    out_width,
    x_strides,
    y_strides,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute a block of the channels and places of the output of a sample, of one group."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    blocks, sample = tl.cdiv(out_channels, BLOCK_N), tl.program_id(2).to(tl.int64)
    group = tl.program_id(1) // blocks
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    out = (group * out_channels + n).to(tl.int64)
    is_n = n < out_channels
    x_ptr += sample * x_strides[0] + group * x_strides[1]
    acc = tl.zeros((BLOCK_N, BLOCK_M), DTYPE)
    for first in range(0, depth, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x = row_of(x_ptr, offsets_ptr, k, depth, m, True)
        w_ptrs = w_ptr + out[:, None] * depth + k[None, :]
        w = tl.load(w_ptrs, is_n[:, None] & (k < depth)[None, :], 0.0)
        acc = tl.dot(w, x, acc)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + out, is_n, 0.0).to(DTYPE)[:, None]
    row, column = m // pitch, m % pitch
    y_ptrs = y_ptr + sample * y_strides[0] + out[:, None] * y_strides[1]
    y_ptrs += (row * y_strides[2] + column * y_strides[3])[None, :]
    mask = ((m < places) & (column < out_width))[None, :] & is_n[:, None]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask)


@tw.jit
def convolution_weight_cpu_kernel(
    x_ptr,
    offsets_ptr,
    dy_ptr,
    sums_ptr,
    samples,
    samples_of_split,
    depth,
    out_channels,
    places,
    pitch,
    out_width,
    x_strides,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The gradient of a block of filters, summed over some samples.

    `dy` is (samples, places, groups, channels), `sums` (splits, groups, depth, channels).
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    blocks, split = tl.cdiv(out_channels, BLOCK_N), tl.program_id(2)
    groups = tl.num_programs(1) // blocks
    group = tl.program_id(1) // blocks
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    n = tl.program_id(1) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    is_n = (n < out_channels)[None, :]
    out = (group * out_channels + n)[None, :]
    steps = tl.cdiv(places, BLOCK_M)
    acc = tl.zeros((BLOCK_K, BLOCK_N), DTYPE)
    first = split * samples_of_split
    end = tl.minimum(first + samples_of_split, samples)
    for step in range(first * steps, end * steps):
        sample = (step // steps).to(tl.int64)
        m = step % steps * BLOCK_M + tl.arange(0, BLOCK_M)
        is_m = (m < places) & (m % pitch < out_width)
        x_ptrs = x_ptr + sample * x_strides[0] + group * x_strides[1]
        x = row_of(x_ptrs, offsets_ptr, k, depth, m, is_m[None, :])
        at = (sample * places + m)[:, None] * (groups * out_channels) + out
        dy = tl.load(dy_ptr + at, (m < places)[:, None] & is_n, 0.0)
        acc = tl.dot(x, dy, acc)
    row = (split * groups + group).to(tl.int64) * depth + k
    sums_ptrs = sums_ptr + row[:, None] * out_channels + n[None, :]
    tl.store(sums_ptrs, acc, (k < depth)[:, None] & is_n)


@dataclass(frozen=True)
class Planes:
    """The input with its padding, and where taps and channels are in it."""

    elements: Any
    offsets: Any
    strides: tuple[int, int]  # from sample to sample, from group to group
    pitch: int  # from line to line


def _planes(
    x: Any,
    channels: int,
    filter_size: tuple[int, ...],
    out_size: tuple[int, ...],
    geometry: tuple[int, ...],
) -> Planes:
    """Copy the input to planes; reading on behind the last line is allowed."""
    stride, padding, dilation = geometry[:2], geometry[2:4], geometry[4:]
    size = [
        tw.cdiv((out - 1) * step + (taps - 1) * apart + 1, step)
        for out, step, taps, apart in zip(out_size, stride, filter_size, dilation, strict=True)
    ]
    samples, all_channels = x.shape[:2]
    lines, pitch = size
    planes, plane = math.prod(stride), lines * pitch
    count = samples * all_channels * planes * plane
    room = empty((count + 2 * pitch + _MOST_PLACES,), x)
    room[...] = 0
    shape = (samples, all_channels, lines * stride[0], pitch * stride[1])
    padded = room[:count].reshape(shape)
    if planes > 1:
        padded = empty(shape, x)
        padded[...] = 0
    to, source = zip(
        *(
            _overlap(before, here, there)
            for before, here, there in zip(padding, x.shape[2:], shape[2:], strict=True)
        ),
        strict=True,
    )
    padded[(..., *to)] = x[(..., *source)]
    if planes > 1:
        parts = padded.reshape((samples, all_channels, lines, stride[0], pitch, stride[1]))
        room[:count] = permuted(parts, (0, 1, 3, 5, 2, 4)).reshape(count)
    h, w = (np.arange(taps) * apart for taps, apart in zip(filter_size, dilation, strict=True))
    at_h = h % stride[0] * (stride[1] * plane) + h // stride[0] * pitch
    at_w = w % stride[1] * plane + w // stride[1]
    channel = np.arange(channels) * (planes * plane)
    offsets = channel[:, None, None] + at_h[:, None] + at_w
    steps = all_channels * planes * plane, channels * planes * plane
    return Planes(room, offsets.reshape(-1), steps, pitch)


def _overlap(before: int, size: int, room: int) -> tuple[slice, slice]:
    """Return where an input of `size` is in `room`, behind some zeros, and what of it is there."""
    start = max(before, 0)
    length = max(min(size + before, room) - start, 0)
    return slice(start, start + length), slice(start - before, start - before + length)


_MOST_PLACES = 128


def _blocks(depth: int, out_channels: int, places: int) -> dict[str, int]:
    return {
        "BLOCK_M": _MOST_PLACES if places > 4 * _MOST_PLACES else 64,
        "BLOCK_N": min(max(tw.next_power_of_2(out_channels), 16), 64),
        "BLOCK_K": 64 if depth % 64 == 0 else min(max(tw.next_power_of_2(depth), 16), 32),
    }


def product_on_cpu(
    y: Any, x: Any, weight: Any, bias: Any, geometry: tuple[int, ...], groups: int
) -> None:
    """Convolve `x`: `weight` is (out channels, channels / groups, height, width)."""
    filters, channels, *filter_size = weight.shape
    out_channels, depth = filters // groups, channels * math.prod(filter_size)
    planes = _planes(x, channels, filter_size, y.shape[2:], geometry)
    places = y.shape[2] * planes.pitch
    blocks = _blocks(depth, out_channels, places)
    across = tw.cdiv(out_channels, blocks["BLOCK_N"]) * groups
    convolution_cpu_kernel[(tw.cdiv(places, blocks["BLOCK_M"]), across, x.shape[0])](
        planes.elements,
        planes.offsets,
        contiguous(weight),
        bias,
        y,
        depth,
        out_channels,
        places,
        planes.pitch,
        y.shape[3],
        planes.strides,
        strides(y),
        **blocks,
    )


def weight_gradient_on_cpu(
    dweight: Any, x: Any, dy: Any, geometry: tuple[int, ...], groups: int
) -> None:
    """Compute the gradient of filters."""
    filters, channels, *filter_size = dweight.shape
    out_channels, depth = filters // groups, channels * math.prod(filter_size)
    samples, _, height, width = dy.shape
    planes = _planes(x, channels, filter_size, (height, width), geometry)
    places = height * planes.pitch
    near = empty((samples, height, planes.pitch, filters), dy)
    near[:, :, :width], near[:, :, width:] = dy.permute(0, 2, 3, 1), 0
    blocks = _blocks(depth, out_channels, places)
    grid = tw.cdiv(depth, blocks["BLOCK_K"]), tw.cdiv(out_channels, blocks["BLOCK_N"]) * groups
    each = tw.cdiv(samples, max(1, 4 // math.prod(grid)))
    splits = tw.cdiv(samples, each)
    sums = empty((splits, filters * depth), x, accumulator_name(x))
    convolution_weight_cpu_kernel[(*grid, splits)](
        planes.elements,
        planes.offsets,
        near,
        sums,
        samples,
        each,
        depth,
        out_channels,
        places,
        planes.pitch,
        width,
        planes.strides,
        **blocks,
    )
    total = empty((filters * depth,), sums)
    column_sums([(sums, total)])
    total = total.reshape((groups, depth, out_channels)).mT
    dweight.copy_(total.reshape(dweight.shape))
