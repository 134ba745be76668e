"""The kernel of matrix products: programs that take tile after tile, and what sums up parts."""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.matmul.blocks import tuned
from tilewright.kernels.matmul.epilogue import finished

__all__ = ["Sizes", "matmul_kernel", "sum_parts_kernel"]


class Sizes(NamedTuple):
    """The sizes of (batch, rows, inner) times (batch, inner, columns).

    `parts` programs share a tile, each with `chunk` of the inner axis, as batches of their own.
    """

    batch: Any
    rows: Any
    columns: Any
    inner: Any
    parts: Any
    chunk: Any
    results: Any  # batches of the result, parts included


@tw.jit
def place_of_tile(tile, sizes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return batch, row and column of a tile: down 16 tiles, then one to the right.

    Neighbours share what they read, which stays in the cache.
    """
    tiles_m = tl.cdiv(sizes.rows, BLOCK_M)
    tiles_n = tl.cdiv(sizes.columns, BLOCK_N)
    batch = tile * 0
    if sizes.results != 1:
        batch = tile // (tiles_m * tiles_n)
        tile = tile % (tiles_m * tiles_n)
    first_m = tile // (16 * tiles_n) * 16
    height = tl.minimum(tiles_m - first_m, 16)
    in_group = tile % (16 * tiles_n)
    row = first_m + in_group % height
    return batch, row * BLOCK_M, in_group // height * BLOCK_N


@tw.jit
def matrix_of(
    ptr, batch, rows, columns, strides, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Return a descriptor of (batch, rows, columns), or of its transpose if that is in memory."""
    steps = [strides[0], strides[1], 1]
    if IS_TRANSPOSED:
        return tl.make_tensor_descriptor(ptr, [batch, columns, rows], steps, [1, COLUMNS, ROWS])
    else:  # noqa: RET505 - both are compiled
        return tl.make_tensor_descriptor(ptr, [batch, rows, columns], steps, [1, ROWS, COLUMNS])


@tw.jit
def loaded_tile(matrix, batch, row, column, IS_TRANSPOSED: tl.constexpr):
    """Return a tile of a matrix."""
    if IS_TRANSPOSED:
        tile = matrix.load([batch, column, row])
        return tl.trans(tl.reshape(tile, (tile.shape[1], tile.shape[2])))
    else:  # noqa: RET505 - as above
        tile = matrix.load([batch, row, column])
        return tl.reshape(tile, (tile.shape[1], tile.shape[2]))


@tw.jit
def store_tile(out, x, batch, row, column, sizes, BY_DESCRIPTOR: tl.constexpr):
    """Store a tile of the result, by its descriptor or by pointers."""
    if BY_DESCRIPTOR:
        out.store([batch, row, column], x.to(out.dtype)[None, :, :])
    else:
        rows = row + tl.arange(0, x.shape[0])
        columns = column + tl.arange(0, x.shape[1])
        corner = (batch.to(tl.int64) * sizes.rows + rows[:, None]) * sizes.columns
        mask = (rows < sizes.rows)[:, None] & (columns < sizes.columns)[None, :]
        tl.store(out + corner + columns[None, :], x.to(out.dtype.element_ty), mask=mask)


@tw.jit
def store_finished(
    acc, out, epilogue, scale, batch, row, column, sizes, ACTIVATION: tl.constexpr,
    BY_DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """Finish a tile of products, and store it."""
    rows = row + tl.arange(0, acc.shape[0])
    columns = column + tl.arange(0, acc.shape[1])
    x = finished(acc, epilogue, scale, batch, rows, columns, sizes, ACTIVATION)
    store_tile(out, x, batch, row, column, sizes, BY_DESCRIPTOR)


@tuned
@tw.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    strides,
    sizes,
    epilogue,
    scale: tl.float64,
    ACTIVATION: tl.constexpr,
    SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HALVES: tl.constexpr,
):
    """Tiles of products until none is left; with `HALVES` each is stored in two parts.

    That takes half the shared memory. `BY_DESCRIPTOR`: the rows of the result are aligned.
    """
    DTYPE: tl.constexpr = sum_type(a_ptr.dtype.element_ty)
    WIDTH: tl.constexpr = BLOCK_N // 2 if HALVES else BLOCK_N
    a = matrix_of(
        a_ptr, sizes.batch, sizes.rows, sizes.inner, strides[0], BLOCK_M, BLOCK_K, A_TRANSPOSED
    )
    b = matrix_of(
        b_ptr, sizes.batch, sizes.inner, sizes.columns, strides[1], BLOCK_K, BLOCK_N, B_TRANSPOSED
    )
    out = out_ptr
    if BY_DESCRIPTOR:
        shape = [sizes.results, sizes.rows, sizes.columns]
        out = tl.make_tensor_descriptor(out_ptr, shape, strides[2], [1, BLOCK_M, WIDTH])
    factor = scale if SCALED else None
    programs = tl.num_programs(0)
    in_batch = tl.cdiv(sizes.rows, BLOCK_M) * tl.cdiv(sizes.columns, BLOCK_N)
    tiles = in_batch * sizes.results
    steps = tl.cdiv(sizes.chunk, BLOCK_K)
    # Counted apart from the loop's own number, so that the store of a tile does not keep what
    # the loads of the next tile need.
    stored = tl.program_id(0) - programs
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        part, row, column = place_of_tile(tile, sizes, BLOCK_M, BLOCK_N)
        batch = part // sizes.parts
        start = part % sizes.parts * sizes.chunk
        acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
        for step in range(steps):
            inner = start + step * BLOCK_K
            left = loaded_tile(a, batch, row, inner, A_TRANSPOSED)
            right = loaded_tile(b, batch, inner, column, B_TRANSPOSED)
            acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=DTYPE)
        stored += programs
        part, row, column = place_of_tile(stored, sizes, BLOCK_M, BLOCK_N)
        if HALVES:
            parts = tl.permute(tl.reshape(acc, (BLOCK_M, 2, WIDTH)), (0, 2, 1))
            first, second = tl.split(parts)
            store_finished(
                first, out, epilogue, factor, part, row, column, sizes, ACTIVATION, BY_DESCRIPTOR
            )
            column += WIDTH
            acc = second
        store_finished(
            acc, out, epilogue, factor, part, row, column, sizes, ACTIVATION, BY_DESCRIPTOR
        )


@tw.constexpr_function
def sum_type(dtype):
    """Return the type in which products of elements are summed up."""
    if dtype == tl.int8:
        return tl.int32
    return tl.float64 if dtype == tl.float64 else tl.float32


@tw.jit
def sum_parts_kernel(
    parts_ptr,
    out_ptr,
    sizes,
    epilogue,
    scale: tl.float64,
    ACTIVATION: tl.constexpr,
    SCALED: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Add up the parts of a row, always in the same order, and finish the result.

    `OVERLAPS`: programs may begin before the launch that writes the parts has ended.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    row, column, batch = tl.program_id(0), tl.program_id(1) * BLOCK, tl.program_id(2)
    columns = column + tl.arange(0, BLOCK)
    part = tl.arange(0, PARTS)
    at_row = (batch * sizes.parts + part).to(tl.int64) * sizes.rows + row
    mask = (part < sizes.parts)[:, None] & (columns < sizes.columns)[None, :]
    parts = tl.load(parts_ptr + at_row[:, None] * sizes.columns + columns[None, :], mask, 0)
    acc = tl.sum(parts, axis=0, keep_dims=True)
    factor = scale if SCALED else None
    rows = row + tl.arange(0, 1)
    x = finished(acc, epilogue, factor, batch, rows, columns, sizes, ACTIVATION)
    store_tile(out_ptr, x, batch, row, column, sizes, False)
