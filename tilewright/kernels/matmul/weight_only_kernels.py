"""The kernels for weights of four bits."""

import itertools

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator

__all__ = ["NF4", "dequantize_kernel", "quantize_kernel", "weight_only_kernel"]

# Quantiles of the normal distribution between -1 and 1, with 0 among them: Dettmers et al., 2023.
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
BORDERS = tl.constexpr(tuple((a + b) / 2 for a, b in itertools.pairwise(NF4)))


@tw.jit
def quantize_kernel(
    weight_ptr, packed_ptr, scale_ptr, zero_ptr, KIND: tl.constexpr, GROUP: tl.constexpr
):
    """A group of numbers, its scale, and its zero point if there is one."""
    group = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    x = tl.load(weight_ptr + group * GROUP + tl.arange(0, GROUP)).to(tl.float32)
    if zero_ptr is not None:
        lowest = tl.minimum(tl.min(x, axis=0), 0.0)  # so that 0 has a code
        scale = (tl.maximum(tl.max(x, axis=0), 0.0) - lowest) / 15.0
    else:
        highest = tl.max(tl.abs(x), axis=0)
        scale = highest / 7.0 if KIND == "int4" else highest
    scale = scale.to(scale_ptr.dtype.element_ty)
    tl.store(scale_ptr + group, scale)
    scale = scale.to(tl.float32)
    divisor = tl.where(scale == 0.0, 1.0, scale)
    x = x / divisor
    if KIND == "int4":
        zero = 8.0
        if zero_ptr is not None:
            zero = tl.clamp(tl.floor(0.5 - lowest / divisor), 0.0, 15.0)
            tl.store(zero_ptr + group, zero.to(tl.uint8))
        code = tl.clamp(tl.floor(x + 0.5) + zero, 0.0, 15.0).to(tl.int32)
    else:
        code = tl.zeros((GROUP,), tl.int32)
        for number in tl.static_range(15):
            code += (x > BORDERS[number]).to(tl.int32)
    low, high = tl.split(tl.reshape(code, (GROUP // 2, 2)))
    at = group * (GROUP // 2) + tl.arange(0, GROUP // 2)
    tl.store(packed_ptr + at, (low | (high << 4)).to(tl.uint8))


@tw.jit
def numbers_of(packed, codes_ptr, zero, dtype: tl.constexpr):
    """Return the numbers of the bytes along the last axis, without their scales.

    `zero` is what is subtracted from whole numbers: their differences are exact in every dtype.
    """
    low, high = packed & 0xF, packed >> 4
    if codes_ptr is None:
        return tl.interleave(low.to(tl.int8) - zero, high.to(tl.int8) - zero).to(dtype)
    else:  # noqa: RET505 - both are compiled
        low, high = tl.load(codes_ptr + low.to(tl.int32)), tl.load(codes_ptr + high.to(tl.int32))
        return tl.interleave(low.to(dtype), high.to(dtype))


@tw.jit
def dequantize_kernel(
    packed_ptr,
    scale_ptr,
    zero_ptr,
    codes_ptr,
    out_ptr,
    pairs,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The numbers of `BLOCK` bytes."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    pair = first + tl.arange(0, BLOCK)
    packed = tl.load(packed_ptr + pair, mask=pair < pairs, other=0)
    zero = 8
    if zero_ptr is not None:
        zero = tl.load(zero_ptr + 2 * pair // GROUP, mask=pair < pairs, other=0).to(tl.int8)
    at = 2 * first + tl.arange(0, 2 * BLOCK)
    mask = at < 2 * pairs
    scale = tl.load(scale_ptr + at // GROUP, mask=mask, other=0.0).to(tl.float32)
    x = numbers_of(packed, codes_ptr, zero, tl.float32) * scale
    tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty), mask=mask)


@tw.jit
def weight_only_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    zero_ptr,
    codes_ptr,
    sums_ptr,
    sizes,
    chunk,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Sums of a part of the inner axis; `sums` is (parts, rows, columns).

    The weights are the left operand, so that few rows of x are few columns there. Their scales are
    applied to sums of a group, which takes fewer products than to the weights.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    rows, columns, inner = sizes
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.arange(0, BLOCK_M)
    # Those that there are not read others: only the store needs a mask for them.
    near_column = tl.minimum(column, columns - 1).to(tl.int64)
    near_row = tl.minimum(row, rows - 1)
    x_ptrs = x_ptr + near_row[None, :] * inner + tl.arange(0, BLOCK_K)[:, None]
    pairs = tl.arange(0, BLOCK_K // 2)
    packed_ptrs = packed_ptr + near_column[:, None] * (inner // 2) + pairs[None, :]
    groups = near_column * (inner // GROUP)
    acc = tl.zeros((BLOCK_N, BLOCK_M), DTYPE)
    start = tl.program_id(1) * chunk
    for first in range(start, tl.minimum(start + chunk, inner), BLOCK_K):
        packed = tl.load(packed_ptrs + first // 2)
        x = tl.load(x_ptrs + first)
        scale = tl.load(scale_ptr + groups + first // GROUP).to(DTYPE)
        zero = 8
        if zero_ptr is not None:
            zero = tl.load(zero_ptr + groups + first // GROUP).to(tl.int8)[:, None]
        weight = numbers_of(packed, codes_ptr, zero, x.dtype)
        acc += tl.dot(weight, x, input_precision="ieee", out_dtype=DTYPE) * scale[:, None]
    at = (tl.program_id(1) * rows + row[None, :]) * columns + column[:, None]
    mask = (row < rows)[None, :] & (column < columns)[:, None]
    tl.store(sums_ptr + at, acc, mask=mask)
