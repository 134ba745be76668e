"""Softmax of block-sparse matrices."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty_like
from tilewright.kernels.block_sparse import (
    BlockSparsity,
    parts_of,
    require_sparsity,
    shape_of,
)
from tilewright.kernels.checks import ranked, shaped
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator
from tilewright.kernels.softmax import finite, with_more

__all__ = ["block_sparse_softmax"]


def block_sparse_softmax(
    values: Any, sparsity: BlockSparsity, scale: float = 1.0, is_causal: bool = False
) -> Any:
    """Return softmax(scale * x) along the rows of a sparse matrix; differentiable.

    Args:
        values: Its blocks (batch, blocks, size, size) of fp16, bf16, fp32 or fp64; what is not
            there counts as -inf.
        sparsity: Which blocks there are.
        scale: What elements are multiplied by first.
        is_causal: Whether elements right of the diagonal count as -inf, too.

    Returns:
        The blocks of the result; NaN in rows of nothing but -inf.

    >>> import numpy as np
    >>> sparsity = BlockSparsity(np.eye(2, dtype=bool), 16)
    >>> block_sparse_softmax(np.zeros((1, 2, 16, 16), np.float32), sparsity).max()
    np.float32(0.0625)
    """
    require_sparsity(sparsity, values=values)
    ranked(4, 4, values=values)
    shaped((values.shape[0], sparsity.blocks, sparsity.size, sparsity.size), values=values)
    return _softmax(values, sparsity.table, shape_of(sparsity), scale, is_causal)


@tw.jit
def block_sparse_softmax_kernel(
    x_ptr,
    y_ptr,
    starts_ptr,
    column_ptr,
    blocks,
    rows,
    scale,
    CAUSAL: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Softmax of `ROWS` rows of a block row."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    line = tl.program_id(1)
    first, end = tl.load(starts_ptr + line), tl.load(starts_ptr + line + 1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, SIZE)
    batch = tl.program_id(2).to(tl.int64) * blocks
    within = row[:, None] * SIZE + column[None, :]
    place = (line % rows * SIZE + row)[:, None]
    highest = tl.full((ROWS,), -float("inf"), DTYPE)
    total = tl.zeros((ROWS,), DTYPE)
    for block in range(first, end):
        x = tl.load(x_ptr + (batch + block) * SIZE * SIZE + within).to(DTYPE) * scale
        if CAUSAL:
            at = (tl.load(column_ptr + block) * SIZE + column)[None, :]
            x = tl.where(at <= place, x, -float("inf"))
        highest, total = with_more(x, highest, total, ROWS)
    highest = finite(highest)
    for block in range(first, end):
        start = (batch + block) * SIZE * SIZE
        x = tl.load(x_ptr + start + within).to(DTYPE) * scale
        if CAUSAL:
            at = (tl.load(column_ptr + block) * SIZE + column)[None, :]
            x = tl.where(at <= place, x, -float("inf"))
        tl.store(y_ptr + start + within, tl.fdiv(tl.exp(x - highest[:, None]), total[:, None]))


@tw.jit
def block_sparse_softmax_backward_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    starts_ptr,
    blocks,
    scale,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute scale * y * (dy - sum(y * dy))."""
    DTYPE: tl.constexpr = accumulator(y_ptr.dtype.element_ty)
    line = tl.program_id(1)
    first, end = tl.load(starts_ptr + line), tl.load(starts_ptr + line + 1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    within = row[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    batch = tl.program_id(2).to(tl.int64) * blocks
    total = tl.zeros((ROWS,), DTYPE)
    for block in range(first, end):
        start = (batch + block) * SIZE * SIZE
        y = tl.load(y_ptr + start + within).to(DTYPE)
        total += tl.sum(y * tl.load(dy_ptr + start + within).to(DTYPE), axis=1)
    for block in range(first, end):
        start = (batch + block) * SIZE * SIZE
        y = tl.load(y_ptr + start + within).to(DTYPE)
        dy = tl.load(dy_ptr + start + within).to(DTYPE)
        tl.store(dx_ptr + start + within, scale * y * (dy - total[:, None]))


def _grid(values: Any, shape: list[int]) -> tuple[tuple[int, int, int], dict[str, int]]:
    heads, rows, _, _, size = shape
    most = min(size, max(2048 // size, 2))  # a single row would be no tile
    return (size // most, heads * rows, values.shape[0]), {"SIZE": size, "ROWS": most}


def _allocate(values: Any, table: Any, shape: list[int], scale: float, causal: bool) -> Any:
    return empty_like(values)


@operation(
    "block_sparse_softmax(Tensor values, Tensor table, int[] shape, float scale, bool causal)"
    " -> Tensor",
    allocate=_allocate,
    autocast="float32",
)
def _softmax(
    out: Any, values: Any, table: Any, shape: list[int], scale: float, causal: bool
) -> None:
    if 0 in out.shape:
        return
    parts, (grid, constants) = parts_of(table, shape), _grid(values, shape)
    block_sparse_softmax_kernel[grid](
        contiguous(values),
        out,
        parts["row_starts"],
        parts["column"],
        shape[3],
        shape[1],
        scale,
        CAUSAL=causal,
        **constants,
    )


def _allocate_backward(y: Any, dy: Any, table: Any, shape: list[int], scale: float) -> Any:
    return empty_like(y)


@operation(
    "block_sparse_softmax_backward(Tensor y, Tensor dy, Tensor table, int[] shape, float scale)"
    " -> Tensor",
    allocate=_allocate_backward,
)
def _softmax_backward(dx: Any, y: Any, dy: Any, table: Any, shape: list[int], scale: float) -> None:
    if 0 in dx.shape:
        return
    parts, (grid, constants) = parts_of(table, shape), _grid(y, shape)
    block_sparse_softmax_backward_kernel[grid](
        y, contiguous(dy), dx, parts["row_starts"], shape[3], scale, **constants
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, table, ctx.shape, ctx.scale, _ = inputs
    ctx.save_for_backward(output, table)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    y, table = ctx.saved_tensors
    return _softmax_backward(y, dy, table, ctx.shape, ctx.scale), None, None, None, None


_softmax.register_autograd(_backward, setup_context=_setup_context)
