"""Softmax and its logarithm along one dimension, forward and backward."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty_like, folded, strides
from tilewright.kernels.checks import dimension, floating
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import (
    accumulator,
    column_numbers,
    down,
    own_rows,
    row_blocks,
    row_configs,
    row_maxima,
    row_numbers,
    row_offsets,
    row_sums,
    row_warps,
)

__all__ = ["log_softmax", "softmax"]


def softmax(input: Any, dim: int = -1) -> Any:
    """Return exp(input) / sum(exp(input)), the sum along `dim`; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides. Sums are in fp32 (fp64).
        dim: The dimension along which the results sum to 1.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.

    >>> import numpy as np
    >>> softmax(np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    return _softmax(input, dimension(input, dim), False)


def log_softmax(input: Any, dim: int = -1) -> Any:
    """Return the logarithm of `softmax(input, dim)`, finite where that rounds to 0; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides. Sums are in fp32 (fp64).
        dim: The dimension along which the exponentials of the results sum to 1.

    Returns:
        An array of the shape and dtype of `input`.

    >>> import numpy as np
    >>> log_softmax(np.zeros((1, 4), np.float32)).round(3)
    array([[-1.386, -1.386, -1.386, -1.386]], dtype=float32)
    """
    return _softmax(input, dimension(input, dim), True)


@tw.jit
def normalized(x, highest, total, LOG: tl.constexpr, ROWS: tl.constexpr):
    """Return the results of the elements `x` of rows, given their highest one and their total."""
    if LOG:
        return x - down(highest, ROWS) - down(tl.log(total), ROWS)
    return tl.exp(x - down(highest, ROWS)) * down(1 / total, ROWS)


@tw.jit
def finite(highest):
    """Return highest elements, or 0 where all are -inf, and all exponentials so 0."""
    return tl.where(highest == -float("inf"), 0.0, highest)


@tw.jit
def with_more(x, highest, total, ROWS: tl.constexpr):
    """Return highest elements of rows, and the totals relative to them, with more elements."""
    before, highest = highest, tl.maximum(highest, row_maxima(x, ROWS))
    origin = finite(highest)
    total = total * tl.exp(before - origin) + row_sums(tl.exp(x - down(origin, ROWS)), ROWS)
    return highest, total


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=row_warps)
@tw.jit
def softmax_kernel(
    x_ptr,
    out_ptr,
    rows,
    columns,
    after,
    x_before_stride,
    x_column_stride,
    x_after_stride,
    LOG: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """Softmax of `ROWS` rows; `ONE_BLOCK`: they fit into a block, and are read once."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = own_rows(ROWS)
    column = column_numbers(ROWS, BLOCK)
    x_ptrs = x_ptr + down(row_offsets(row, after, x_before_stride, x_after_stride), ROWS)
    out_ptrs = out_ptr + down(row_offsets(row, after, columns * after, 1), ROWS)
    is_row = down(row < rows, ROWS)
    if ONE_BLOCK:
        mask = is_row & (column < columns)
        x = tl.load(x_ptrs + column * x_column_stride, mask, -float("inf")).to(DTYPE)
        highest = finite(row_maxima(x, ROWS))
        total = row_sums(tl.exp(x - down(highest, ROWS)), ROWS)
        y = normalized(x, highest, total, LOG, ROWS)
        tl.store(out_ptrs + column * after, y, mask, cache_modifier=".cs")
        return
    highest = row_numbers(-float("inf"), ROWS, DTYPE)
    total = row_numbers(0.0, ROWS, DTYPE)
    for first in range(0, columns, BLOCK):
        mask = is_row & (first + column < columns)
        x = tl.load(x_ptrs + (first + column) * x_column_stride, mask, -float("inf")).to(DTYPE)
        highest, total = with_more(x, highest, total, ROWS)
    highest = finite(highest)
    for first in range(0, columns, BLOCK):
        mask = is_row & (first + column < columns)
        x = tl.load(x_ptrs + (first + column) * x_column_stride, mask, -float("inf")).to(DTYPE)
        y = normalized(x, highest, total, LOG, ROWS)
        tl.store(out_ptrs + (first + column) * after, y, mask)


def _allocate(x: Any, dim: int, log: bool) -> Any:
    floating(input=x)
    return empty_like(x)


@operation(
    "softmax(Tensor input, int dim, bool log) -> Tensor", allocate=_allocate, autocast="float32"
)
def _softmax(out: Any, x: Any, dim: int, log: bool) -> None:
    x = folded(x, dim)
    before, columns, after = x.shape
    rows = before * after
    if rows * columns == 0:
        return
    per_program, block = row_blocks(x, rows, columns)
    softmax_kernel[(tw.cdiv(rows, per_program),)](
        x,
        out,
        rows,
        columns,
        after,
        *strides(x),
        LOG=log,
        ROWS=per_program,
        BLOCK=block,
        ONE_BLOCK=columns <= block,
    )


@tw.jit
def softmax_gradient(y, dy, total, LOG: tl.constexpr):
    """Return the gradient of elements of rows, given the total of each."""
    if LOG:
        return dy - tl.exp(y) * total
    return y * (dy - total)


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=row_warps)
@tw.jit
def softmax_backward_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    rows,
    columns,
    after,
    dy_before_stride,
    dy_column_stride,
    dy_after_stride,
    LOG: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """Compute y * (dy - sum(y * dy)), or dy - exp(y) * sum(dy) for the logarithm."""
    DTYPE: tl.constexpr = accumulator(y_ptr.dtype.element_ty)
    row = own_rows(ROWS)
    column = column_numbers(ROWS, BLOCK)
    is_row = down(row < rows, ROWS)
    start = down(row_offsets(row, after, columns * after, 1), ROWS)
    y_ptrs, dx_ptrs = y_ptr + start, dx_ptr + start
    dy_ptrs = dy_ptr + down(row_offsets(row, after, dy_before_stride, dy_after_stride), ROWS)
    total = row_numbers(0.0, ROWS, DTYPE)
    for first in range(0, columns, BLOCK):
        at = first + column
        mask = is_row & (at < columns)
        y = tl.load(y_ptrs + at * after, mask, 0.0).to(DTYPE)
        dy = tl.load(dy_ptrs + at * dy_column_stride, mask, 0.0).to(DTYPE)
        total += row_sums(dy if LOG else y * dy, ROWS)
        if ONE_BLOCK:
            dx = softmax_gradient(y, dy, down(total, ROWS), LOG)
            tl.store(dx_ptrs + at * after, dx, mask, cache_modifier=".cs")
    if not ONE_BLOCK:
        for first in range(0, columns, BLOCK):
            at = first + column
            mask = is_row & (at < columns)
            y = tl.load(y_ptrs + at * after, mask, 0.0).to(DTYPE)
            dy = tl.load(dy_ptrs + at * dy_column_stride, mask, 0.0).to(DTYPE)
            dx = softmax_gradient(y, dy, down(total, ROWS), LOG)
            tl.store(dx_ptrs + at * after, dx, mask)


def _allocate_backward(y: Any, dy: Any, dim: int, log: bool) -> Any:
    return empty_like(y)


@operation(
    "softmax_backward(Tensor y, Tensor dy, int dim, bool log) -> Tensor",
    allocate=_allocate_backward,
)
def _softmax_backward(dx: Any, y: Any, dy: Any, dim: int, log: bool) -> None:
    y, dy = folded(contiguous(y), dim), folded(dy, dim)
    before, columns, after = y.shape
    rows = before * after
    if rows * columns == 0:
        return
    per_program, block = row_blocks(y, rows, columns)
    softmax_backward_kernel[(tw.cdiv(rows, per_program),)](
        y,
        dy,
        dx,
        rows,
        columns,
        after,
        *strides(dy),
        LOG=log,
        ROWS=per_program,
        BLOCK=block,
        ONE_BLOCK=columns <= block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.dim, ctx.log = inputs
    ctx.save_for_backward(output)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    (y,) = ctx.saved_tensors
    return _softmax_backward(y, dy, ctx.dim, ctx.log), None, None


_softmax.register_autograd(_backward, setup_context=_setup_context)
