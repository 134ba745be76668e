"""The kernels for weights of four bits."""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.matmul.four_bits import (
    BORDERS,
    numbers_of_words,
    packed_codes,
    whole_number,
)
from tilewright.kernels.rows import accumulator

__all__ = ["dequantize_kernel", "quantize_kernel", "weight_only_kernel", "weight_only_row_kernel"]


@tw.jit
def quantize_kernel(
    weight_ptr, packed_ptr, scale_ptr, zero_ptr, KIND: tl.constexpr, GROUP: tl.constexpr
):
    """A group of numbers, its scale, and its zero point if there is one; these (groups, rows)."""
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    group = row * tl.num_programs(1) + number
    at_scale = number * tl.num_programs(0) + row
    x = tl.load(weight_ptr + group * GROUP + tl.arange(0, GROUP)).to(tl.float32)
    if zero_ptr is not None:
        lowest = tl.minimum(tl.min(x, axis=0), 0.0)  # so that 0 has a code
        scale = (tl.maximum(tl.max(x, axis=0), 0.0) - lowest) / 15.0
    else:
        highest = tl.max(tl.abs(x), axis=0)
        scale = highest / 7.0 if KIND == "int4" else highest
    scale = scale.to(scale_ptr.dtype.element_ty)
    tl.store(scale_ptr + at_scale, scale)
    scale = scale.to(tl.float32)
    divisor = tl.where(scale == 0.0, 1.0, scale)
    x = x / divisor
    if KIND == "int4":
        zero = 8.0
        if zero_ptr is not None:
            zero = tl.clamp(tl.floor(0.5 - lowest / divisor), 0.0, 15.0)
            tl.store(zero_ptr + at_scale, zero.to(tl.uint8))
        code = tl.clamp(tl.floor(x + 0.5) + zero, 0.0, 15.0).to(tl.int32)
    else:
        code = tl.zeros((GROUP,), tl.int32)
        for number in tl.static_range(15):
            code += (x > BORDERS[number]).to(tl.int32)
    at = group * (GROUP // 2) + tl.arange(0, GROUP // 2)
    tl.store(packed_ptr + at, packed_codes(code))


@tw.jit
def dequantize_kernel(
    words_ptr,
    scale_ptr,
    zero_ptr,
    codes_ptr,
    out_ptr,
    strides,
    units,
    inner,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    UNITS: tl.constexpr,
):
    """The numbers of so many units of four words; `strides` of scales, then of zero points."""
    unit = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    is_unit = unit < units
    at = unit[:, None] * 4 + tl.arange(0, 4)[None, :]
    words = tl.load(words_ptr + at, mask=is_unit[:, None], other=0)
    row, group = unit * 32 // inner, unit * 32 % inner // GROUP
    at_scale = row * strides[0][0] + group * strides[0][1]
    scale = tl.load(scale_ptr + at_scale, mask=is_unit, other=0.0).to(tl.float32)
    zero = None
    if zero_ptr is not None:
        at_zero = row * strides[1][0] + group * strides[1][1]
        zero = tl.load(zero_ptr + at_zero, mask=is_unit, other=0)
    x = numbers_of_words(words, codes_ptr, zero, KIND, tl.float32)
    x = (x * scale[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + unit[:, None] * 32 + tl.arange(0, 32)[None, :], x, mask=is_unit[:, None])


@tw.jit
def loaded_ahead(of_groups, step, column, STEPS: tl.constexpr, COUNT: tl.constexpr):
    """Return what columns have for the groups of a few steps, of which a group has `STEPS`."""
    loaded = ()
    for number in tl.static_range(COUNT):
        tile = of_groups.load([(step + number) // STEPS, column])
        loaded = (*loaded, tl.reshape(tile, (tile.shape[1],)))
    return loaded


@tw.jit
def weight_only_kernel(
    x_ptr,
    words_ptr,
    scale_ptr,
    zero_ptr,
    codes_ptr,
    sums_ptr,
    strides,
    sizes,
    chunk,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Sums of `chunk` steps along the inner axis; `sums` is (parts, rows, columns).

    The weights are the left operand, so that few rows of x are few columns there. Their scales are
    applied to sums of a group, which takes fewer products than to the weights. Scales and zero
    points are (groups, columns).
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    rows, columns, inner = sizes
    groups = inner // GROUP
    x = tl.make_tensor_descriptor(x_ptr, [rows, inner], [strides[0], 1], [BLOCK_M, BLOCK_K])
    words = tl.make_tensor_descriptor(
        words_ptr, [columns, inner // 8], [strides[1], 1], [BLOCK_N, BLOCK_K // 8]
    )
    scales = tl.make_tensor_descriptor(scale_ptr, [groups, columns], [strides[2], 1], [1, BLOCK_N])
    if zero_ptr is not None:
        zeros = tl.make_tensor_descriptor(
            zero_ptr, [groups, columns], [strides[3], 1], [1, BLOCK_N]
        )
    first_column = tl.program_id(0) * BLOCK_N
    acc = tl.zeros((BLOCK_N, BLOCK_M), DTYPE)
    start = tl.program_id(1) * chunk
    # Loads of a few bytes wait for memory as long as others, so they are a step ahead.
    scale_ahead = loaded_ahead(scales, start, first_column, GROUP // BLOCK_K, TOGETHER)
    if zero_ptr is not None:
        zero_ahead = loaded_ahead(zeros, start, first_column, GROUP // BLOCK_K, TOGETHER)
    for step in range(start, tl.minimum(start + chunk, tl.cdiv(inner, BLOCK_K)), TOGETHER):
        scale = scale_ahead
        scale_ahead = loaded_ahead(
            scales, step + TOGETHER, first_column, GROUP // BLOCK_K, TOGETHER
        )
        if zero_ptr is not None:
            zero = zero_ahead
            zero_ahead = loaded_ahead(
                zeros, step + TOGETHER, first_column, GROUP // BLOCK_K, TOGETHER
            )
        products = ()
        for number in tl.static_range(TOGETHER):
            packed = words.load([first_column, (step + number) * (BLOCK_K // 8)])
            left = x.load([0, (step + number) * BLOCK_K])
            weight = numbers_of_words(
                packed,
                codes_ptr,
                zero[number] if zero_ptr is not None else None,
                KIND,
                left.dtype,
            )
            product = tl.dot(weight, tl.trans(left), input_precision="ieee", out_dtype=DTYPE)
            products = (*products, product)
        for number in tl.static_range(TOGETHER):
            acc += products[number] * scale[number].to(DTYPE)[:, None]
    row, column = tl.arange(0, BLOCK_M), first_column + tl.arange(0, BLOCK_N)
    at = (tl.program_id(1) * rows + row[None, :]) * columns + column[:, None]
    tl.store(sums_ptr + at, acc, mask=(row < rows)[None, :] & (column < columns)[:, None])


@tw.jit
def joined(tiles):
    """Return vectors as the columns of a matrix; their number is a power of two."""
    if len(tiles) == 1:
        return tl.reshape(tiles[0], (tiles[0].shape[0], tiles[0].numel // tiles[0].shape[0]))
    half: tl.constexpr = len(tiles) // 2
    pairs = ()
    for number in tl.static_range(half):
        pairs = (*pairs, tl.join(tiles[number], tiles[number + half]))
    return joined(pairs)


@tw.jit
def products_of_row(words, x_ptr, at_word, is_word, DTYPE: tl.constexpr):
    """Return sums of numbers of x times the codes - 8 in words of columns, and of x alone.

    `words`: a vector for each column, of what is at `at_word` in it; four bytes of x are a pair.
    """
    total = tl.zeros((at_word.shape[0],), tl.float32)
    products = ()
    for _ in tl.static_range(len(words)):
        products = (*products, total)
    for place in tl.static_range(4):
        at = at_word // 4 * 16 + place * 4 + at_word % 4
        pair = tl.load(x_ptr + at, mask=is_word, other=0).to(tl.uint32, bitcast=True)
        for half in tl.static_range(2):
            x = ((pair >> (16 * half)) & 0xFFFF).to(tl.uint16).to(DTYPE, bitcast=True)
            x = x.to(tl.float32)
            total += x
            sums = ()
            for number in tl.static_range(len(words)):
                whole = whole_number(words[number], 4 * place + 16 * half)
                sums = (*sums, products[number] + whole * x)
            products = sums
    return products, total


@tw.jit
def weight_only_row_kernel(
    x_ptr,
    words_ptr,
    scale_ptr,
    zero_ptr,
    bias_ptr,
    out_ptr,
    strides,
    sizes,
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    UNITS: tl.constexpr,
):
    """One row of x, whose pairs of numbers are words, times whole numbers of four bits.

    Each weight is used once, so multiply-adds take it as it is made: no sums of parts, and few
    instructions. A thread has units of 32 neighbours, the same ones in each of `BLOCK_N` columns,
    whose scales, and zero points, are one tile: neighbours in memory come by one load.
    """
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    columns, inner = sizes
    units = inner // 32
    first_column = tl.program_id(0) * BLOCK_N
    column = first_column + tl.arange(0, BLOCK_N)
    is_column = column < columns
    far_column = column.to(tl.int64)[None, :]
    acc = tl.zeros((UNITS, BLOCK_N), tl.float32)
    for start in range(0, units, UNITS):
        unit = start + tl.arange(0, UNITS)
        group = (unit // (GROUP // 32)).to(tl.int64)[:, None]
        word = start * 4 + tl.arange(0, UNITS * 4)
        is_word = word < units * 4
        words = ()
        for number in tl.static_range(BLOCK_N):
            at = tl.minimum(first_column + number, columns - 1).to(tl.int64) * (units * 4) + word
            loaded = tl.load(words_ptr + at, mask=is_word, other=0)
            words = (*words, loaded.to(tl.uint32, bitcast=True))
        mask = (unit < units)[:, None] & is_column[None, :]
        at = group * strides[0][1] + far_column * strides[0][0]
        scale = tl.load(scale_ptr + at, mask=mask, other=0.0).to(tl.float32)
        if zero_ptr is not None:
            at = group * strides[1][1] + far_column * strides[1][0]
            zero = tl.load(zero_ptr + at, mask=mask, other=0).to(tl.float32)
        products, total = products_of_row(words, x_ptr, word, is_word, dtype)
        sums = ()
        for number in tl.static_range(BLOCK_N):
            sums = (*sums, tl.sum(tl.reshape(products[number], (UNITS, 4)), axis=1))
        product = joined(sums)
        if zero_ptr is not None:
            total = tl.sum(tl.reshape(total, (UNITS, 4)), axis=1)
            product -= (zero - 8.0) * total[:, None]
        acc += product * scale
    out = tl.sum(acc, axis=0)
    if bias_ptr is not None:
        out += tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    tl.store(out_ptr + column, out.to(out_ptr.dtype.element_ty), mask=is_column)
