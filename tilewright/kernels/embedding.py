"""Embedding: rows of a table; its gradient adds up in the same order each time."""

import math
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty, strides, torch
from tilewright.kernels.checks import array, floating, integral, plain, ranked, same_kind
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import (
    accumulator,
    accumulator_name,
    row_blocks,
    row_configs,
    row_warps,
)

__all__ = ["embedding"]


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """Return the rows `weight[input]`; differentiable, and the gradient is the same each time.

    Args:
        input: Numbers of rows, int32 or int64 of any shape and strides. What is no row gives NaN.
        weight: Table of shape (rows, size), of fp16, bf16, fp32 or fp64 and any strides.
        padding_idx: A row that gets no gradient, counted from the end if negative.

    Returns:
        An array of shape (*input.shape, size) and the dtype of `weight`.

    >>> import numpy as np
    >>> embedding(np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    array([[4., 5.],
           [0., 1.]])
    """
    array(input=input, weight=weight)
    ranked(2, 2, weight=weight)
    rows = weight.shape[0]
    if padding_idx is not None:
        plain("an integer", padding_idx=padding_idx)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise IndexError(f"`padding_idx` is {padding_idx}, and the table has {rows} rows")
    return _embedding(input, weight, -1 if padding_idx is None else padding_idx % rows)


@tw.autotune(row_configs, key=["rows", "columns"], default=row_warps)
@tw.jit
def embedding_kernel(
    index_ptr,
    weight_ptr,
    out_ptr,
    rows,
    columns,
    table_rows,
    weight_row_stride,
    weight_column_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy a block of `ROWS` rows of the table."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_row = row < rows
    index = tl.load(index_ptr + row, is_row, 0).to(tl.int64)
    is_known = is_row & (index >= 0) & (index < table_rows)
    at = index[:, None] * weight_row_stride + column * weight_column_stride
    mask = column < columns
    x = tl.load(weight_ptr + at, is_known[:, None] & mask, float("nan"))
    tl.store(out_ptr + row.to(tl.int64)[:, None] * columns + column, x, is_row[:, None] & mask)


def _allocate(index: Any, weight: Any, padding_idx: int) -> Any:
    integral(input=index)
    floating(weight=weight)
    same_kind(input=index, weight=weight)
    return empty((*index.shape, weight.shape[1]), weight)


@operation("embedding(Tensor index, Tensor weight, int padding_idx) -> Tensor", allocate=_allocate)
def _embedding(out: Any, index: Any, weight: Any, padding_idx: int) -> None:
    rows, (table_rows, columns) = math.prod(index.shape), weight.shape
    if rows * columns == 0:
        return
    per_program, block = row_blocks(weight, rows, columns)
    embedding_kernel[(tw.cdiv(rows, per_program), tw.cdiv(columns, block))](
        contiguous(index),
        weight,
        out,
        rows,
        columns,
        table_rows,
        *strides(weight),
        ROWS=per_program,
        BLOCK=block,
    )


_CHUNK = 64  # places that a program adds up

_gradient_configs = [
    tw.Config({"AHEAD": ahead, "BLOCK": block}, num_warps=warps)
    for ahead, block, warps in [
        (2, 4096, 8),
        (2, 2048, 4),
        (4, 2048, 8),
        (4, 2048, 4),
        (8, 1024, 4),
        (4, 1024, 4),
    ]
]


def _gradient_default(arguments: dict[str, Any]) -> tw.Config:
    block = min(tw.next_power_of_2(max(arguments["columns"], 1)), 2048)
    return tw.Config({"AHEAD": 2, "BLOCK": block}, num_warps=max(block // 512, 1))


@tw.jit
def is_run_of_row(number, table_rows, padding_row):
    """Whether places of a number are of a row that has a gradient."""
    return (number >= 0) & (number < table_rows) & (number != padding_row)


@tw.jit
def part_row(place, begin, CHUNK: tl.constexpr):
    """Return where the sum of a chunk from `place` on is kept, of a run of more than one.

    The last chunk of a run and the first one of the next may begin in the same `CHUNK` places.
    """
    return (place // CHUNK * 2 + (place == begin)).to(tl.int64)


@tw.autotune(_gradient_configs, key=["places", "columns"], default=_gradient_default)
@tw.jit
def embedding_gradient_kernel(
    dy_ptr,
    number_ptr,
    order_ptr,
    begin_ptr,
    end_ptr,
    dweight_ptr,
    parts_ptr,
    places,
    columns,
    table_rows,
    padding_row,
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the gradients of a chunk of a run of sorted places, if one begins here.

    They are the gradient of a row of the table, or a part of it where there are more chunks.
    """
    DTYPE: tl.constexpr = accumulator(dy_ptr.dtype.element_ty)
    place = tl.program_id(0)
    number = tl.load(number_ptr + place)
    begin = tl.load(begin_ptr + place)
    if (not is_run_of_row(number, table_rows, padding_row)) | ((place - begin) % CHUNK != 0):
        return
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < columns
    total = tl.zeros((BLOCK,), DTYPE)
    run_end = tl.load(end_ptr + place)
    end = tl.minimum(place + CHUNK, run_end)
    for first in range(place, end, AHEAD):
        for step in tl.static_range(AHEAD):
            is_place = first + step < end
            row = tl.load(order_ptr + first + step, is_place, 0).to(tl.int64)
            dy = tl.load(dy_ptr + row * columns + column, is_column & is_place, 0.0)
            total += dy.to(DTYPE)
    if run_end - begin <= CHUNK:
        tl.store(dweight_ptr + number.to(tl.int64) * columns + column, total, is_column)
    else:
        at = part_row(place, begin, CHUNK) * columns + column
        tl.store(parts_ptr + at, total, is_column)


@tw.jit
def join_gradients_kernel(
    number_ptr,
    begin_ptr,
    end_ptr,
    parts_ptr,
    dweight_ptr,
    places,
    columns,
    table_rows,
    padding_row,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the parts of the run of more than a chunk that begins in these places, if one does."""
    window = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    begins = tl.load(begin_ptr + window, window < places, -1)
    ends = tl.load(end_ptr + window, window < places, 0)
    begin = tl.max(tl.where((begins == window) & (ends - begins > CHUNK), window, -1), axis=0)
    if begin < 0:
        return
    number = tl.load(number_ptr + begin)
    if not is_run_of_row(number, table_rows, padding_row):
        return
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), parts_ptr.dtype.element_ty)
    for place in range(begin, tl.load(end_ptr + begin), CHUNK):
        at = part_row(place, begin, CHUNK) * columns + column
        total += tl.load(parts_ptr + at, column < columns, 0.0)
    tl.store(dweight_ptr + number.to(tl.int64) * columns + column, total, column < columns)


def _allocate_backward(dy: Any, index: Any, table_rows: int, padding_idx: int) -> Any:
    return empty((table_rows, dy.shape[-1]), dy)


@operation(
    "embedding_backward(Tensor dy, Tensor index, SymInt table_rows, int padding_idx) -> Tensor",
    allocate=_allocate_backward,
)
def _embedding_backward(
    dweight: Any, dy: Any, index: Any, table_rows: int, padding_idx: int
) -> None:
    dweight.zero_()
    places, columns = math.prod(index.shape), dy.shape[-1]
    if places * columns == 0:
        return
    # The places of each row of the table stand together once they are sorted, in their order.
    # What is no row stays none in 32 bits, which are sorted in half of the time.
    numbers = index.reshape(-1).clamp(-1, table_rows).to(torch.int32)
    numbers, order = torch.sort(numbers, stable=True)
    begins, ends = (
        torch.searchsorted(numbers, numbers, right=right, out_int32=True) for right in (False, True)
    )
    parts = empty((2 * tw.cdiv(places, _CHUNK), columns), dy, accumulator_name(dy))
    sizes = (places, columns, table_rows, padding_idx)
    embedding_gradient_kernel[lambda meta: (places, tw.cdiv(columns, meta["BLOCK"]))](
        contiguous(dy), numbers, order, begins, ends, dweight, parts, *sizes, CHUNK=_CHUNK
    )
    join_gradients_kernel[(tw.cdiv(places, _CHUNK), tw.cdiv(columns, 1024))](
        numbers, begins, ends, parts, dweight, *sizes, CHUNK=_CHUNK, BLOCK=1024
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    index, weight, ctx.padding_idx = inputs
    ctx.table_rows = weight.shape[0]
    ctx.save_for_backward(index)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    return None, _embedding_backward(dy, *ctx.saved_tensors, ctx.table_rows, ctx.padding_idx), None


_embedding.register_autograd(_backward, setup_context=_setup_context)
