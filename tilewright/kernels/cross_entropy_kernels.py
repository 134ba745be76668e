"""The kernels of cross-entropy. A row is a place; logits of some of its classes come at a time.

What is kept of each row, four numbers `rows` apart: while logits are read the logarithm of the sum
of exponentials, the target's logit, and for smoothing the weighted sum of logits and the sum of
weights; then that logarithm, the factor of the probabilities in the gradient, the weight of the
target, and the sum of weights.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator, row_configs, row_offsets, row_warps

__all__ = [
    "cross_entropy_backward_kernel",
    "cross_entropy_kernel",
    "reduce_losses_kernel",
]


@tw.jit
def class_weights(weight_ptr, at, mask, DTYPE: tl.constexpr):
    """Return the weights of classes, 1 where there are none, and 0 outside of the mask."""
    if weight_ptr is None:
        return tl.where(mask, 1.0, 0.0).to(DTYPE)
    return tl.load(weight_ptr + at, mask, 0.0).to(DTYPE)


@tw.jit
def block_columns(BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Return the numbers of columns of a block, `WIDTH` neighbours along the last axis."""
    groups = tl.arange(0, BLOCK // WIDTH) * WIDTH
    return groups[None, :, None] + tl.arange(0, WIDTH)[None, None, :]


@tw.jit
def longer_sums(x, highest, totals):
    """Add the exponentials of more elements, along the last axis, to sums relative to the highest.

    Where that axis lies within threads, no thread waits for another before the last element.
    """
    before, highest = highest, tl.maximum(highest, tl.max(x, axis=2))
    # Before the first finite element all are exp(-inf - 0).
    origin = tl.where(highest == -float("inf"), 0.0, highest)
    own = tl.sum(tl.exp(x - origin[:, :, None]), axis=2)
    return highest, totals * tl.exp(before - origin) + own


@tw.jit
def log_of_sums(highest, totals):
    """Return the logarithms of sums along the last axis, from parts relative to the highest."""
    most = tl.max(highest, axis=1)
    origin = tl.where(most == -float("inf"), 0.0, most)
    return most + tl.log(tl.sum(totals * tl.exp(highest - origin[:, None]), axis=1))


@tw.jit
def log_of_sum(x, y):
    """Return log(exp(x) + exp(y))."""
    most = tl.maximum(x, y)
    total = tl.exp(x - most) + tl.exp(y - most)
    return tl.where(most == -float("inf"), most, most + tl.log(total))


@tw.jit
def sums_of_rows(
    x_row,
    is_row,
    column_stride,
    weight_ptr,
    first_class,
    columns,
    SMOOTHING: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Return the logarithms of the sums of exponentials of rows, and what smoothing needs.

    That is the weighted sum of the logits, and the sum of the weights.
    """
    DTYPE: tl.constexpr = accumulator(x_row.dtype.element_ty)
    ROWS: tl.constexpr = x_row.shape[0]
    highest = tl.full((ROWS, BLOCK // WIDTH), -float("inf"), DTYPE)
    totals = tl.zeros((ROWS, BLOCK // WIDTH), DTYPE)
    smooth = tl.zeros((ROWS, BLOCK // WIDTH), DTYPE)
    weights = tl.zeros((1, BLOCK // WIDTH), DTYPE)
    x_ptrs = x_row[:, None, None] + block_columns(BLOCK, WIDTH) * column_stride
    for first in range(0, columns, BLOCK):
        column = first + block_columns(BLOCK, WIDTH)
        is_column = column < columns
        mask = is_row[:, None, None] & is_column
        at = tl.cast(first, tl.int64) * column_stride
        x = tl.load(x_ptrs + at, mask, -float("inf")).to(DTYPE)
        highest, totals = longer_sums(x, highest, totals)
        if SMOOTHING > 0:
            weight = class_weights(weight_ptr, first_class + column, is_column, DTYPE)
            smooth += tl.sum(tl.where(mask, x * weight, 0.0), axis=2)
            weights += tl.sum(weight, axis=2)
    weights = tl.broadcast_to(tl.sum(weights, axis=1), (ROWS,))
    return log_of_sums(highest, totals), tl.sum(smooth, axis=1), weights


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=row_warps)
@tw.jit
def cross_entropy_kernel(
    x_ptr,
    target_ptr,
    weight_ptr,
    state_ptr,
    losses_ptr,
    rows,
    columns,
    after,
    first_class,
    classes,
    ignore_index,
    x_before_stride,
    x_column_stride,
    x_after_stride,
    SMOOTHING: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Read `columns` logits of `ROWS` rows; the last of them make the losses.

    `WIDTH` neighbours are summed first: on a GPU what a thread loads at once.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    x_row = x_ptr + row_offsets(row, after, x_before_stride, x_after_stride)
    target = tl.load(target_ptr + row, is_row, 0).to(tl.int64)
    place = target - first_class
    is_here = is_row & (target != ignore_index) & (place >= 0) & (place < columns)
    picked = tl.load(x_row + place * x_column_stride, is_here, 0.0).to(DTYPE)
    lse, smooth, weights = sums_of_rows(
        x_row, is_row, x_column_stride, weight_ptr, first_class, columns, SMOOTHING, BLOCK, WIDTH
    )
    state_row = state_ptr + row
    if not FIRST:
        lse = log_of_sum(tl.load(state_row, is_row, 0.0), lse)
        picked += tl.load(state_row + rows, is_row, 0.0)
        smooth += tl.load(state_row + 2 * rows, is_row, 0.0)
        weights += tl.load(state_row + 3 * rows, is_row, 0.0)
    tl.store(state_row, lse, is_row)
    tl.store(state_row + 3 * rows, weights, is_row)
    if not LAST:
        tl.store(state_row + rows, picked, is_row)
        tl.store(state_row + 2 * rows, smooth, is_row)
        return
    is_used = is_row & (target != ignore_index)
    is_class = (target >= 0) & (target < classes)
    own = class_weights(weight_ptr, target, is_used & is_class, DTYPE)
    scale = own * (1 - SMOOTHING)
    loss = scale * (lse - picked)
    if SMOOTHING > 0:
        loss += SMOOTHING / tl.cast(classes, DTYPE) * (lse * weights - smooth)
        scale += SMOOTHING / tl.cast(classes, DTYPE) * weights
    loss = tl.where(is_class, loss, float("nan"))
    tl.store(losses_ptr + row, tl.where(is_used, loss, 0.0), is_row)
    tl.store(state_row + rows, tl.where(is_class, scale, float("nan")), is_row)
    tl.store(state_row + 2 * rows, own, is_row)


@tw.jit
def reduce_losses_kernel(
    losses_ptr, state_ptr, loss_ptr, total_ptr, rows, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up losses, and for their mean the weights; one program, so always in the same order."""
    loss = tl.zeros((BLOCK,), losses_ptr.dtype.element_ty)
    weight = tl.zeros((BLOCK,), losses_ptr.dtype.element_ty)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        loss += tl.load(losses_ptr + row, row < rows, 0.0)
        if MEAN:
            weight += tl.load(state_ptr + 2 * rows + row, row < rows, 0.0)
    total = tl.sum(weight) if MEAN else 1.0
    tl.store(loss_ptr, tl.sum(loss) / total)
    tl.store(total_ptr, total)


def _backward_default(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 32 elements for each thread."""
    elements = arguments["ROWS"] * arguments["BLOCK"]
    return tw.Config({}, num_warps=min(max(elements // 1024, 1), 16))


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=_backward_default)
@tw.jit
def cross_entropy_backward_kernel(
    dx_ptr,
    x_ptr,
    dloss_ptr,
    target_ptr,
    weight_ptr,
    state_ptr,
    total_ptr,
    rows,
    columns,
    after,
    first_class,
    classes,
    ignore_index,
    dx_before_stride,
    dx_column_stride,
    dx_after_stride,
    x_before_stride,
    x_column_stride,
    x_after_stride,
    SCALAR: tl.constexpr,
    SMOOTHING: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a block of logits, `dloss / total` times that of each row's loss."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_row = row < rows
    mask = is_row[:, None] & (column < columns)[None, :]
    target = tl.load(target_ptr + row, is_row, 0).to(tl.int64)
    is_used = is_row & (target != ignore_index)
    dloss = tl.load(dloss_ptr) if SCALAR else tl.load(dloss_ptr + row, is_row, 0.0)
    factor = tl.where(is_used, dloss.to(DTYPE) / tl.load(total_ptr), 0.0)
    lse = tl.load(state_ptr + row, is_row, 0.0)
    scale = tl.load(state_ptr + rows + row, is_row, 0.0)
    own = tl.load(state_ptr + 2 * rows + row, is_row, 0.0) * (1 - SMOOTHING)
    x_row = x_ptr + row_offsets(row, after, x_before_stride, x_after_stride)
    x = tl.load(x_row[:, None] + column[None, :] * x_column_stride, mask, 0.0).to(DTYPE)
    dx = tl.exp(x - lse[:, None]) * scale[:, None]
    if SMOOTHING > 0:
        weight = class_weights(weight_ptr, first_class + column, column < columns, DTYPE)
        dx -= SMOOTHING / tl.cast(classes, DTYPE) * weight[None, :]
    is_target = (first_class + column)[None, :] == target[:, None]
    dx = factor[:, None] * tl.where(is_target, dx - own[:, None], dx)
    dx = tl.where(is_used[:, None], dx, 0.0)
    dx_row = dx_ptr + row_offsets(row, after, dx_before_stride, dx_after_stride)
    tl.store(dx_row[:, None] + column[None, :] * dx_column_stride, dx, mask, cache_modifier=".cs")
