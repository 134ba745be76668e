"""The kernels of products of rows with the matrices of their groups."""

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.matmul.product import loaded_tile, matrix_of
from tilewright.kernels.rows import accumulator

__all__ = ["group_gradients_kernel", "grouped_kernel"]


@tw.jit
def end_of(ends_ptr, group, rows, mask=True):
    """Return the row where groups end, which is no row outside of the array."""
    end = tl.load(ends_ptr + group, mask=mask, other=0)
    return tl.minimum(tl.maximum(end, 0), rows).to(tl.int32)


@tw.jit
def tile_of_group(ends_ptr, tile, sizes, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return group, first row and end of a tile; rows after all groups are one more group."""
    group = tl.arange(0, GROUPS)
    is_group = group < sizes[3]
    last = end_of(ends_ptr, sizes[3] - 1, sizes[0])
    end = end_of(ends_ptr, group, sizes[0], is_group)
    start = end_of(ends_ptr, group - 1, sizes[0], is_group & (group > 0))
    tiles = tl.where(is_group, tl.cdiv(tl.maximum(end - start, 0), BLOCK_M), 0)
    # The groups whose tiles all come before this one; how many they are is the group's number.
    is_before = is_group & (tl.cumsum(tiles, axis=0) <= tile)
    chosen = tl.sum(is_before.to(tl.int32), axis=0)
    first = tile - tl.sum(tl.where(is_before, tiles, 0), axis=0)
    chosen_end = sizes[0]
    chosen_start = last
    if chosen < sizes[3]:
        chosen_end = end_of(ends_ptr, chosen, sizes[0])
        chosen_start = end_of(ends_ptr, chosen - 1, sizes[0], chosen > 0)
    return chosen, chosen_start + first * BLOCK_M, chosen_end


@tw.jit
def grouped_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    ends_ptr,
    strides,
    sizes,
    GROUPS: tl.constexpr,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A tile of rows of one group; `sizes` are rows, columns, inner size and groups.

    The grid has programs for all tiles however ragged the groups are: the last find no row.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    rows, columns, inner, groups = sizes
    group, first, end = tile_of_group(ends_ptr, tl.program_id(1), sizes, GROUPS, BLOCK_M)
    if first >= end:
        return
    x = matrix_of(x_ptr, 1, rows, inner, strides[0], BLOCK_M, BLOCK_K, A_TRANSPOSED)
    weight = matrix_of(
        weight_ptr, groups, inner, columns, strides[1], BLOCK_K, BLOCK_N, B_TRANSPOSED
    )
    column = tl.program_id(0) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    steps = tl.where(group < groups, inner, 0)
    for k in range(0, steps, BLOCK_K):
        left = loaded_tile(x, 0, first, k, A_TRANSPOSED)
        right = loaded_tile(weight, group, k, column, B_TRANSPOSED)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=DTYPE)
    row = first + tl.arange(0, BLOCK_M)
    place = column + tl.arange(0, BLOCK_N)
    at = row.to(tl.int64)[:, None] * columns + place[None, :]
    mask = (row < end)[:, None] & (place < columns)[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)


@tw.jit
def group_gradients_kernel(
    x_ptr,
    gradient_ptr,
    out_ptr,
    ends_ptr,
    strides,
    sizes,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A tile of the gradient of a group's matrix: rows transposed, times gradients of results."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    rows, columns, inner, _ = sizes
    group = tl.program_id(1)
    tiles = tl.cdiv(columns, BLOCK_N)
    first = tl.program_id(0) // tiles * BLOCK_M
    column = tl.program_id(0) % tiles * BLOCK_N
    start = end_of(ends_ptr, group - 1, rows, group > 0)
    end = end_of(ends_ptr, group, rows)
    x = matrix_of(x_ptr, 1, rows, inner, strides[0], BLOCK_K, BLOCK_M, A_TRANSPOSED)
    gradients = matrix_of(
        gradient_ptr, 1, rows, columns, strides[1], BLOCK_K, BLOCK_N, B_TRANSPOSED
    )
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    whole_end = start + (end - start) // BLOCK_K * BLOCK_K
    for row in range(start, whole_end, BLOCK_K):
        left = tl.trans(loaded_tile(x, 0, row, first, A_TRANSPOSED))
        right = loaded_tile(gradients, 0, row, column, B_TRANSPOSED)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=DTYPE)
    if whole_end < end:  # rows of the next group are in the last block
        is_own = (whole_end + tl.arange(0, BLOCK_K) < end)[:, None]
        left = tl.where(is_own, loaded_tile(x, 0, whole_end, first, A_TRANSPOSED), 0.0)
        right = tl.where(is_own, loaded_tile(gradients, 0, whole_end, column, B_TRANSPOSED), 0.0)
        left = tl.trans(left.to(x_ptr.dtype.element_ty))
        right = right.to(x_ptr.dtype.element_ty)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=DTYPE)
    row = first + tl.arange(0, BLOCK_M)
    place = column + tl.arange(0, BLOCK_N)
    at = (group.to(tl.int64) * inner + row[:, None]) * columns + place[None, :]
    mask = (row < inner)[:, None] & (place < columns)[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)
