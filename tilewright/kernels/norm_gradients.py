"""The backward pass of layer norm and RMS norm."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty, empty_like, itemsize, on_cpu, strides
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import (
    MULTIPROCESSORS,
    accumulator,
    accumulator_name,
    column_numbers,
    column_sums,
    distance_gradient,
    down,
    over_rows,
    row_blocks,
    row_sums,
    rows_and_columns,
    rows_from,
    tile_shape,
)

__all__ = ["norm_backward"]

_SHORT_ROWS = 8192  # bytes


def norm_backward(
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    dy: Any,
    dsum: Any,
    dims: int,
    rms: bool,
    wanted: tuple[bool, ...],
) -> tuple[Any, ...]:
    """Return the gradients of a norm's input, weight and bias.

    `dsum` is the gradient of the input from elsewhere, or None; `wanted` says whether weight and
    bias need one.
    """
    if dy is None:
        return None, None, None
    dx, *parameters = _normalize_backward(x, weight, mean, rstd, dy, dsum, dims, rms, *wanted)
    return dx, *(d if needed else None for d, needed in zip(parameters, wanted, strict=True))


@tw.jit
def weighted_gradient(dy_ptrs, weight_ptr, column, mask, DTYPE: tl.constexpr):
    """Return the gradients of the results, and of the rows before the weight."""
    dy = tl.load(dy_ptrs, mask, 0.0).to(DTYPE)
    if weight_ptr is None:
        return dy, dy
    return dy, dy * tl.load(weight_ptr + column, mask, 0.0).to(DTYPE)


@tw.jit
def row_statistics(mean_ptr, rstd_ptr, row, is_row, RMS: tl.constexpr):
    """Return the mean of rows, 0 for RMS norm, and their 1 / deviation."""
    rstd = tl.load(rstd_ptr + row, is_row, 0.0)
    if RMS:
        return tl.zeros_like(rstd), rstd
    return tl.load(mean_ptr + row, is_row, 0.0), rstd


def _backward_default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: rows are loaded ahead of the ones worked on.

    More of them where they are short, so that as many bytes are on their way.
    """
    elements = arguments["ROWS"] * arguments["BLOCK"]
    is_short = elements * itemsize(arguments["x_ptr"]) <= _SHORT_ROWS
    return tw.Config({"STAGES": 4 if is_short else 3}, num_warps=min(max(elements // 512, 1), 16))


@tw.autotune(
    [tw.Config({"STAGES": s}, num_warps=w) for s in (1, 3, 4) for w in (4, 8, 16)],
    key=["rows", "columns"],
    default=_backward_default,
)
@tw.jit
def normalize_backward_kernel(
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dy_ptr,
    dsum_ptr,
    dx_ptr,
    dweight_ptr,
    dbias_ptr,
    rows,
    columns,
    programs,
    x_row_stride,
    x_column_stride,
    dy_row_stride,
    dy_column_stride,
    RMS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Every `programs`th group of rows; the gradients of weight and bias are added up over them."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    column = column_numbers(ROWS, BLOCK)
    dweight = tl.zeros(tile_shape(ROWS, BLOCK), DTYPE)
    dbias = tl.zeros(tile_shape(ROWS, BLOCK), DTYPE)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + column, column < columns, 0.0).to(DTYPE)
    for first in tl.range(tl.program_id(0) * ROWS, rows, programs * ROWS, num_stages=STAGES):
        row = rows_from(first, ROWS).to(tl.int64)
        is_row = row < rows
        mask = down(is_row, ROWS) & (column < columns)
        x_ptrs = x_ptr + down(row, ROWS) * x_row_stride + column * x_column_stride
        dy_ptrs = dy_ptr + down(row, ROWS) * dy_row_stride + column * dy_column_stride
        out = down(row, ROWS) * columns + column
        mean, rstd = row_statistics(mean_ptr, rstd_ptr, row, is_row, RMS)
        x = tl.load(x_ptrs, mask, 0.0).to(DTYPE)
        normal = tl.where(mask, (x - down(mean, ROWS)) * down(rstd, ROWS), 0.0)
        dy = tl.load(dy_ptrs, mask, 0.0).to(DTYPE)
        weighted = dy if weight_ptr is None else dy * weight
        along = row_sums(weighted * normal, ROWS) / columns
        level = 0 * along if RMS else row_sums(weighted, ROWS) / columns
        dx = distance_gradient(
            weighted, normal, down(along, ROWS), down(level, ROWS), down(rstd, ROWS)
        )
        if dsum_ptr is not None:
            dx += tl.load(dsum_ptr + out, mask, 0.0).to(DTYPE)
        if dweight_ptr is not None:
            dweight += dy * normal
        if dbias_ptr is not None:
            dbias += dy
        tl.store(dx_ptr + out, dx, mask, cache_modifier=".cs")
    tl.extra.cuda.gdc_launch_dependents()
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, BLOCK)
    is_column = tl.arange(0, BLOCK) < columns
    if dweight_ptr is not None:
        tl.store(dweight_ptr + at, over_rows(dweight, ROWS), is_column)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + at, over_rows(dbias, ROWS), is_column)


@tw.jit
def long_rows_backward_kernel(
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dy_ptr,
    dsum_ptr,
    dx_ptr,
    columns,
    x_row_stride,
    x_column_stride,
    dy_row_stride,
    dy_column_stride,
    RMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a row that is read in blocks, twice."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = (tl.program_id(0) + tl.arange(0, 1)).to(tl.int64)
    mean, rstd = row_statistics(mean_ptr, rstd_ptr, row, row >= 0, RMS)
    x_ptrs = x_ptr + row[:, None] * x_row_stride
    dy_ptrs = dy_ptr + row[:, None] * dy_row_stride
    along = tl.zeros((1,), DTYPE)
    level = tl.zeros((1,), DTYPE)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)[None, :]
        mask = column < columns
        x = tl.load(x_ptrs + column * x_column_stride, mask, 0.0).to(DTYPE)
        dy_at = dy_ptrs + column * dy_column_stride
        _, weighted = weighted_gradient(dy_at, weight_ptr, column, mask, DTYPE)
        along += tl.sum(weighted * (x - mean[:, None]) * rstd[:, None], axis=1) / columns
        if not RMS:
            level += tl.sum(weighted, axis=1) / columns
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)[None, :]
        mask = column < columns
        out = row[:, None] * columns + column
        x = tl.load(x_ptrs + column * x_column_stride, mask, 0.0).to(DTYPE)
        dy_at = dy_ptrs + column * dy_column_stride
        _, weighted = weighted_gradient(dy_at, weight_ptr, column, mask, DTYPE)
        normal = (x - mean[:, None]) * rstd[:, None]
        dx = distance_gradient(weighted, normal, along[:, None], level[:, None], rstd[:, None])
        if dsum_ptr is not None:
            dx += tl.load(dsum_ptr + out, mask, 0.0).to(DTYPE)
        tl.store(dx_ptr + out, dx, mask)


@tw.jit
def long_rows_parameters_kernel(
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dy_ptr,
    dweight_ptr,
    dbias_ptr,
    rows,
    columns,
    x_row_stride,
    x_column_stride,
    dy_row_stride,
    dy_column_stride,
    RMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of weight and bias over every so many rows, for a block of the columns."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    dweight = tl.zeros((BLOCK,), DTYPE)
    dbias = tl.zeros((BLOCK,), DTYPE)
    for first in range(tl.program_id(1), rows, tl.num_programs(1)):
        row = tl.cast(first, tl.int64)
        mean, rstd = row_statistics(mean_ptr, rstd_ptr, row, row >= 0, RMS)
        dy_at = dy_ptr + row * dy_row_stride + column * dy_column_stride
        dy = tl.load(dy_at, mask, 0.0).to(DTYPE)
        x = tl.load(x_ptr + row * x_row_stride + column * x_column_stride, mask, 0.0).to(DTYPE)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    at = tl.program_id(1).to(tl.int64) * columns + column
    if dweight_ptr is not None:
        tl.store(dweight_ptr + at, dweight, mask)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + at, dbias, mask)


def _allocate(
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    dy: Any,
    dsum: Any,
    dims: int,
    rms: bool,
    has_weight: bool,
    has_bias: bool,
) -> Any:
    shape = tuple(x.shape)[x.ndim - dims :]
    parameter = x if weight is None else weight
    return (
        empty_like(x),
        empty(shape if has_weight else (0,), parameter),
        empty(shape if has_bias else (0,), parameter),
    )


@operation(
    "normalize_backward(Tensor x, Tensor? weight, Tensor mean, Tensor rstd, Tensor dy,"
    " Tensor? dsum, int dims, bool rms, bool has_weight, bool has_bias)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate,
)
def _normalize_backward(
    outputs: Any,
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    dy: Any,
    dsum: Any,
    dims: int,
    rms: bool,
    has_weight: bool,
    has_bias: bool,
) -> None:
    dx, dweight, dbias = outputs
    rows, columns = rows_and_columns(x, dims)
    if rows * columns == 0:
        dweight.fill_(0)
        dbias.fill_(0)
        return
    x, dy = x.reshape((rows, columns)), dy.reshape((rows, columns))
    weight = None if weight is None else contiguous(weight)
    dsum = None if dsum is None else contiguous(dsum)
    arguments = (x, weight, mean, rstd, dy, dsum, dx)
    per_program, block = row_blocks(x, rows, columns)
    programs = min(tw.cdiv(rows, per_program), _most_programs(x, block))
    sums = [
        empty((programs, columns), x, accumulator_name(x)) if wanted else None
        for wanted in (has_weight, has_bias)
    ]
    if columns <= block:
        normalize_backward_kernel[(programs,)](
            *arguments,
            *sums,
            rows,
            columns,
            programs,
            *strides(x),
            *strides(dy),
            RMS=rms,
            ROWS=per_program,
            BLOCK=block,
        )
    else:
        _long_rows(arguments, sums, rms, block)
    pairs = zip(sums, (dweight, dbias), strict=True)
    if wanted := [(total, out) for total, out in pairs if total is not None]:
        column_sums(wanted)


def _most_programs(x: Any, block: int) -> int:
    """Return how many programs share out the rows: those that run at once."""
    if on_cpu(x):
        return 16
    return MULTIPROCESSORS * (2 if block * itemsize(x) < _SHORT_ROWS else 1)


def _long_rows(arguments: tuple[Any, ...], sums: list[Any], rms: bool, block: int) -> None:
    x, _, mean, rstd, dy, _, _ = arguments
    rows, columns = x.shape
    long_rows_backward_kernel[(rows,)](
        *arguments, columns, *strides(x), *strides(dy), RMS=rms, BLOCK=block, num_warps=16
    )
    programs = next((len(total) for total in sums if total is not None), 0)
    if programs == 0:
        return
    long_rows_parameters_kernel[(tw.cdiv(columns, 2048), programs)](
        x,
        mean,
        rstd,
        dy,
        *sums,
        rows,
        columns,
        *strides(x),
        *strides(dy),
        RMS=rms,
        BLOCK=2048,
    )
