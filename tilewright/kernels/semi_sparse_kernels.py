"""The kernels of products with weights of which two of each four neighbours are there (2:4)."""

# The constants of kernels are plain values.
# mypy: disable-error-code="arg-type"

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator

__all__ = [
    "semi_sparse_cpu_kernel",
    "semi_sparse_few_rows_kernel",
    "semi_sparse_linear_kernel",
]


@tw.jit
def expanded(values, places, COLUMNS: tl.constexpr):
    """Return the matrix that pairs of values, and two places for each pair, stand for."""
    rows: tl.constexpr = values.shape[0]
    first, second = tl.split(tl.reshape(values, (rows, COLUMNS // 4, 2)))
    one, two = places & 3, (places >> 2) & 3
    zero = tl.zeros_like(first)
    x0 = tl.where(one == 0, first, zero)
    x1 = tl.where(one == 1, first, tl.where(two == 1, second, zero))
    x2 = tl.where(one == 2, first, tl.where(two == 2, second, zero))
    x3 = tl.where(two == 3, second, zero)
    return tl.reshape(tl.join(tl.join(x0, x2), tl.join(x1, x3)), (rows, COLUMNS))


@tw.jit
def semi_sparse_linear_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
    out_ptr,
    M,
    N,
    K,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A tile of x weight^T."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)[None, :]
    half = tl.arange(0, DEPTH // 2)[None, :]
    group = tl.arange(0, DEPTH // 4)[None, :]
    line = column[:, None].to(tl.int64)
    acc = tl.zeros((ROWS, COLUMNS), DTYPE)
    for first in range(0, K, DEPTH):
        x_ptrs = x_ptr + row.to(tl.int64) * K + first + k
        x = tl.load(x_ptrs, (row < M) & (first + k < K), 0.0)
        mask = (line < N) & (first // 2 + half < K // 2)
        values = tl.load(values_ptr + line * (K // 2) + first // 2 + half, mask, 0.0)
        mask = (line < N) & (first // 4 + group < K // 4)
        places = tl.load(places_ptr + line * (K // 8) + (first // 8 + group // 2), mask, 0)
        w = expanded(values, places.to(tl.int32) >> (group % 2 * 4), DEPTH)
        acc = tl.dot(x, tl.trans(w), acc, input_precision=PRECISION, out_dtype=DTYPE)
    mask = (row < M) & (column < N)[None, :]
    tl.store(out_ptr + row.to(tl.int64) * N + column[None, :], acc, mask)


@tw.jit
def expanded_pairs(values, places, DTYPE: tl.constexpr):
    """Return what pairs of 16-bit values, in words, and their places, in words, stand for.

    A pair becomes four numbers, by shifts of 64 bits. Of each 16 numbers in a row, group t and its
    pair s of numbers change places, as the threads of a tensor core hold them.
    """
    rows: tl.constexpr = values.shape[0]
    count: tl.constexpr = values.shape[1]
    pairs = tl.reshape(values, (rows, count // 8, 2, 4))
    group = tl.arange(0, 4).to(tl.uint32)[None, None, None, :]
    half = tl.arange(0, 2).to(tl.uint32)[None, None, :, None]
    place = tl.reshape(places, (rows, count // 8, 1, 1)) >> (4 * group)
    place = place >> (16 * half)
    first = (pairs & 0xFFFF).to(tl.uint64) << ((place << 4) & 0x30).to(tl.uint64)
    second = (pairs >> 16).to(tl.uint64) << ((place << 2) & 0x30).to(tl.uint64)
    four = first | second
    x = tl.join(four.to(tl.uint32), (four >> 32).to(tl.uint32))
    x = tl.join(x & 0xFFFF, x >> 16).to(tl.uint16).to(DTYPE, bitcast=True)
    return tl.reshape(tl.permute(x, (0, 1, 2, 4, 3, 5)), (rows, 4 * count))


@tw.jit
def semi_sparse_few_rows_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
    sums_ptr,
    strides,
    sizes,
    chunk,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Sums of `chunk` steps along the inner axis; `sums` is (parts, rows, columns).

    The weights are the left operand, so that few rows of x are few columns there.
    """
    rows, columns, inner = sizes
    x = tl.make_tensor_descriptor(x_ptr, [rows, inner], [strides[0], 1], [BLOCK_M, BLOCK_K])
    values = tl.make_tensor_descriptor(
        values_ptr, [columns, inner // 4], [strides[1], 1], [BLOCK_N, BLOCK_K // 4]
    )
    places = tl.make_tensor_descriptor(
        places_ptr, [columns, inner // 32], [strides[2], 1], [BLOCK_N, BLOCK_K // 32]
    )
    first_column = tl.program_id(0) * BLOCK_N
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    start = tl.program_id(1) * chunk
    for step in range(start, tl.minimum(start + chunk, tl.cdiv(inner, BLOCK_K))):
        pairs = values.load([first_column, step * (BLOCK_K // 4)]).to(tl.uint32, bitcast=True)
        place = places.load([first_column, step * (BLOCK_K // 32)]).to(tl.uint32, bitcast=True)
        left = x.load([0, step * BLOCK_K])
        weight = expanded_pairs(pairs, place, left.dtype)
        left = tl.reshape(left, (BLOCK_M, BLOCK_K // 16, 4, 2, 2))
        left = tl.reshape(tl.permute(left, (0, 1, 3, 2, 4)), (BLOCK_M, BLOCK_K))
        acc = tl.dot(weight, tl.trans(left), acc)
    row, column = tl.arange(0, BLOCK_M), first_column + tl.arange(0, BLOCK_N)
    at = (tl.program_id(1) * rows + row[None, :]) * columns + column[:, None]
    tl.store(sums_ptr + at, acc, mask=(row < rows)[None, :] & (column < columns)[:, None])


@tw.jit
def semi_sparse_cpu_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
    out_ptr,
    M,
    N,
    K,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BYTES: tl.constexpr,
):
    """A tile of x weight^T, by the values that there are; `x` is (blocks, steps, 8 BYTES, ROWS).

    A place says which numbers of x a value is multiplied with: those of all rows are neighbours in
    memory, so that they are one vector or a few.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.arange(0, ROWS)
    x_ptrs = x_ptr + row[None, None, :]
    x_ptrs += tl.program_id(1).to(tl.int64) * tl.cdiv(K // 8, BYTES) * (8 * BYTES * ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    line = column.to(tl.int64)[:, None, None]
    acc = tl.zeros((COLUMNS, ROWS), DTYPE)
    for first in range(0, K // 8, BYTES):
        byte = first + tl.arange(0, BYTES)[None, :, None]
        mask = (line < N) & (byte < K // 8)
        places = tl.load(places_ptr + line * (K // 8) + byte, mask, 0).to(tl.int32)
        sums = tl.zeros((COLUMNS, BYTES, ROWS), DTYPE)
        for n in tl.static_range(4):
            value = tl.load(values_ptr + line * (K // 2) + byte * 4 + n, mask, 0.0).to(DTYPE)
            k = byte * 8 + n // 2 * 4 + ((places >> 2 * n) & 3)
            sums += value * tl.load(x_ptrs + k * ROWS)
        acc += tl.sum(sums, axis=1)
    m = tl.program_id(1) * ROWS + row[:, None]
    out_ptrs = out_ptr + m.to(tl.int64) * N + column[None, :]
    tl.store(out_ptrs, tl.trans(acc), (m < M) & (column < N)[None, :])
