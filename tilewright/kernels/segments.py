"""Sums, means and extremes of segments of rows, forward and backward."""

import math
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty, is_at_hand, is_tensor, strides, torch
from tilewright.kernels.checks import (
    array,
    floating,
    integral,
    one_of,
    ranked,
    rising,
    same_kind,
    within,
)
from tilewright.kernels.elementwise import is_nan
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["segment_reduce"]

_REDUCTIONS = ("sum", "mean", "max", "min")
_ELEMENTS = 2048  # of a tile, which has more where rows are long
_FEWEST_ROWS, _MOST_COLUMNS = 4, 1024


def segment_reduce(data: Any, reduce: str, *, lengths: Any = None, offsets: Any = None) -> Any:
    """Return the sum, mean, or largest or smallest element of each segment; differentiable.

    Args:
        data: Array of shape (rows, ...), of fp16, bf16, fp32 or fp64 and any strides.
        reduce: "sum" and "mean", in fp32 (fp64); "max" and "min", NaN where an element is NaN,
            whose gradient is shared by equal elements.
        lengths: The number of rows of each segment, integers of shape (segments,), which add up to
            all rows; or else
        offsets: where segments start, and the last one ends, integers of shape (segments + 1,),
            which do not fall. Rows before the first and behind the last are in no segment. On a
            GPU, and in compiled functions, neither is checked: what is no row is left out.

    Returns:
        An array of shape (segments, ...) and the dtype of `data`. A segment without rows has the
        sum 0, the mean NaN and an infinite extreme.

    >>> import numpy as np
    >>> segment_reduce(np.array([1.0, 2.0, 4.0]), "sum", lengths=np.array([2, 0, 1]))
    array([3., 0., 4.])
    """
    if (lengths is None) == (offsets is None):
        raise ValueError("one of `lengths` and `offsets` is needed")
    array(data=data)
    if offsets is None:
        integral(lengths=lengths)
        ranked(1, 1, lengths=lengths)
        same_kind(data=data, lengths=lengths)
        ranked(1, None, data=data)
        _require_all_rows(lengths, data.shape[0])
        offsets = _offsets(lengths)
    else:
        integral(offsets=offsets)
        ranked(1, 1, offsets=offsets)
        ranked(1, None, data=data)
        rising(data.shape[0], offsets=offsets)
    return _segment_reduce(data, offsets, reduce)


def _require_all_rows(lengths: Any, rows: int) -> None:
    within(0, rows, lengths=lengths)
    if is_at_hand(lengths) and int(lengths.sum()) != rows:
        raise ValueError(f"`lengths` add up to {int(lengths.sum())}, and `data` has {rows} rows")


def _offsets(lengths: Any) -> Any:
    if is_tensor(lengths):
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


@tw.constexpr_function
def neutral(KIND):
    """Return what changes no result: -inf for the largest, inf for the smallest, else 0."""
    return {"max": -float("inf"), "min": float("inf")}.get(KIND, 0.0)


@tw.constexpr_function
def is_extreme(KIND):
    """Whether a segment's result is one of its elements."""
    return KIND in {"max", "min"}


@tw.jit
def segment_bounds(offsets_ptr, rows):
    """Return the first row of this program's segment and the one behind its last."""
    segment = tl.program_id(0)
    first = tl.maximum(tl.load(offsets_ptr + segment), 0)
    return first, tl.minimum(tl.load(offsets_ptr + segment + 1), rows)


@tw.jit
def segment_reduce_kernel(
    x_ptr,
    offsets_ptr,
    out_ptr,
    rows,
    columns,
    x_row_stride,
    x_column_stride,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Combine a block of the columns of a segment."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    OTHER: tl.constexpr = neutral(KIND)
    start, end = segment_bounds(offsets_ptr, rows)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < columns
    total = tl.full((ROWS, BLOCK), OTHER, DTYPE)
    nans = tl.zeros((ROWS, BLOCK), tl.int32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        is_row = row < end
        at = row.to(tl.int64)[:, None] * x_row_stride + column[None, :] * x_column_stride
        x = tl.load(x_ptr + at, is_row[:, None] & is_column[None, :], OTHER).to(DTYPE)
        if KIND == "max":
            total = tl.maximum(total, x)
            nans += is_nan(x).to(tl.int32)
        elif KIND == "min":
            total = tl.minimum(total, x)
            nans += is_nan(x).to(tl.int32)
        else:
            total += x
    if KIND == "max":
        result = tl.where(tl.sum(nans, axis=0) > 0, float("nan"), tl.max(total, axis=0))
    elif KIND == "min":
        result = tl.where(tl.sum(nans, axis=0) > 0, float("nan"), tl.min(total, axis=0))
    else:
        result = tl.sum(total, axis=0)
    if KIND == "mean":
        result = result / (end - start).to(DTYPE)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * columns + column, result, is_column)


@tw.jit
def segment_backward_kernel(
    dy_ptr,
    x_ptr,
    y_ptr,
    offsets_ptr,
    dx_ptr,
    rows,
    columns,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a block of the columns of a segment: it is shared by those that count."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    EXTREME: tl.constexpr = is_extreme(KIND)
    start, end = segment_bounds(offsets_ptr, rows)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < columns
    out = tl.program_id(0).to(tl.int64) * columns + column
    dy = tl.load(dy_ptr + out, is_column, 0.0).to(DTYPE)
    if KIND == "mean":
        dy = dy / (end - start).to(DTYPE)
    if EXTREME:
        y = tl.load(y_ptr + out, is_column, 0.0)
        count = tl.zeros((ROWS, BLOCK), DTYPE)
        for first in range(start, end, ROWS):
            row = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
            mask = (row < end) & is_column[None, :]
            x = tl.load(x_ptr + row * columns + column[None, :], mask, 0.0)
            is_it = (x == y[None, :]) | (is_nan(x) & is_nan(y)[None, :])
            count += tl.where(mask & is_it, 1.0, 0.0)
        dy = dy / tl.sum(count, axis=0)
    for first in range(start, end, ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        mask = (row < end) & is_column[None, :]
        at = row * columns + column[None, :]
        dx = tl.broadcast_to(dy[None, :], (ROWS, BLOCK))
        if EXTREME:
            x = tl.load(x_ptr + at, mask, 0.0)
            is_it = (x == y[None, :]) | (is_nan(x) & is_nan(y)[None, :])
            dx = tl.where(is_it, dx, 0.0)
        tl.store(dx_ptr + at, dx, mask)


def _tiles(segments: int, columns: int) -> tuple[tuple[int, int], dict[str, int]]:
    block = min(tw.next_power_of_2(max(columns, 1)), _MOST_COLUMNS)
    rows = max(_ELEMENTS // block, _FEWEST_ROWS)
    return (segments, tw.cdiv(columns, block)), {"ROWS": rows, "BLOCK": block}


def _allocate(data: Any, offsets: Any, reduce: str) -> Any:
    floating(data=data)
    integral(offsets=offsets)
    one_of(_REDUCTIONS, reduce=reduce)
    same_kind(data=data, offsets=offsets)
    if data.ndim == 0 or offsets.ndim != 1 or offsets.shape[0] == 0:
        raise ValueError("`data` has to be (rows, ...), and `offsets` (segments + 1,)")
    return empty((offsets.shape[0] - 1, *data.shape[1:]), data)


def _matrix(x: Any) -> Any:
    return x.reshape((x.shape[0], math.prod(x.shape[1:])))


@operation("segment_reduce(Tensor data, Tensor offsets, str reduce) -> Tensor", allocate=_allocate)
def _segment_reduce(out: Any, data: Any, offsets: Any, reduce: str) -> None:
    x, out = _matrix(data), _matrix(out)
    segments, columns = out.shape
    grid, tile = _tiles(segments, columns)
    if segments * columns:
        segment_reduce_kernel[grid](
            x, contiguous(offsets), out, x.shape[0], columns, *strides(x), KIND=reduce, **tile
        )


def _allocate_backward(dy: Any, data: Any, y: Any, offsets: Any, reduce: str) -> Any:
    return empty(tuple(data.shape), data)


@operation(
    "segment_reduce_backward(Tensor dy, Tensor data, Tensor y, Tensor offsets, str reduce)"
    " -> Tensor",
    allocate=_allocate_backward,
)
def _segment_reduce_backward(
    dx: Any, dy: Any, data: Any, y: Any, offsets: Any, reduce: str
) -> None:
    dx.zero_()  # segments need not have all rows
    x = _matrix(contiguous(data))
    rows, columns = x.shape
    grid, tile = _tiles(y.shape[0], columns)
    if math.prod(grid) * rows:
        segment_backward_kernel[grid](
            contiguous(dy), x, y, contiguous(offsets), dx, rows, columns, KIND=reduce, **tile
        )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    data, offsets, ctx.reduce = inputs
    ctx.save_for_backward(data, output, offsets)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    return _segment_reduce_backward(dy, *ctx.saved_tensors, ctx.reduce), None, None


_segment_reduce.register_autograd(_backward, setup_context=_setup_context)
