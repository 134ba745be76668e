"""Running sums along one dimension, forward and backward."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import empty_like, folded, strides
from tilewright.kernels.checks import dimension, floating
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator, row_blocks, row_configs, row_offsets, row_warps

__all__ = ["cumsum"]

_MOST_COLUMNS = 4096  # of a row that are summed up at a time


def cumsum(input: Any, dim: int) -> Any:
    """Return the sums of all elements up to each one along `dim`; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides. Sums are in fp32 (fp64).
        dim: The dimension along which they run.

    Returns:
        An array of the shape and dtype of `input`.

    >>> import numpy as np
    >>> cumsum(np.array([1.0, 2.0, 4.0]), 0)
    array([1., 3., 7.])
    """
    return _cumsum(input, dimension(input, dim), False)


@tw.jit
def running_sum(x, REVERSE):
    """Return the running sums of rows."""
    return tl.cumsum(x, axis=1, reverse=REVERSE)


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=row_warps)
@tw.jit
def cumsum_kernel(
    x_ptr,
    out_ptr,
    rows,
    columns,
    after,
    x_before_stride,
    x_column_stride,
    x_after_stride,
    REVERSE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The running sums of `ROWS` rows, a block after the other, from the end if `REVERSE`."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = (row < rows)[:, None]
    x_row = x_ptr + row_offsets(row, after, x_before_stride, x_after_stride)[:, None]
    out_row = out_ptr + row_offsets(row, after, columns * after, 1)[:, None]
    carry = tl.zeros((ROWS, 1), DTYPE)
    blocks = tl.cdiv(columns, BLOCK)
    for block in range(blocks):
        first = (blocks - 1 - block if REVERSE else block) * BLOCK
        at = first + tl.arange(0, BLOCK)[None, :]
        mask = is_row & (at < columns)
        x = tl.load(x_row + at * x_column_stride, mask, 0.0).to(DTYPE)
        tl.store(out_row + at * after, carry + running_sum(x, REVERSE), mask)
        carry += tl.sum(x, axis=1, keep_dims=True)


def _allocate(x: Any, dim: int, reverse: bool) -> Any:
    floating(input=x)
    return empty_like(x)


@operation(
    "cumsum(Tensor input, int dim, bool reverse) -> Tensor", allocate=_allocate, autocast="float32"
)
def _cumsum(out: Any, x: Any, dim: int, reverse: bool) -> None:
    x = folded(x, dim)
    before, columns, after = x.shape
    rows = before * after
    if rows * columns == 0:
        return
    per_program, block = row_blocks(x, rows, columns, _MOST_COLUMNS)
    cumsum_kernel[(tw.cdiv(rows, per_program),)](
        x,
        out,
        rows,
        columns,
        after,
        *strides(x),
        REVERSE=reverse,
        ROWS=per_program,
        BLOCK=block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.dim, ctx.reverse = inputs


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    return _cumsum(dy, ctx.dim, not ctx.reverse), None, None


_cumsum.register_autograd(_backward, setup_context=_setup_context)
