"""The largest or smallest elements along one dimension."""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import converted, empty, folded, strides, torch
from tilewright.kernels.checks import dimension, floating, plain
from tilewright.kernels.elementwise import is_nan
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import row_blocks, row_configs, row_offsets, row_warps

__all__ = ["topk"]

_MOST_COLUMNS = 2048  # that are sorted together


class TopK(NamedTuple):
    """The elements that `topk` chooses, and where they are."""

    values: Any
    indices: Any


def topk(input: Any, k: int, dim: int = -1, largest: bool = True) -> TopK:
    """Return the `k` largest (or smallest) elements along `dim`, in order, and where they are.

    NaN counts as larger than all numbers, and of equal elements the first is taken; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides.
        k: How many, at most the size of that dimension.
        dim: The dimension along which elements are compared.
        largest: Whether the largest are wanted.

    Returns:
        A named tuple of the elements, `values`, and their places as int64, `indices`; `dim` has the
        size `k`.

    >>> import numpy as np
    >>> topk(np.array([3.0, 1.0, 4.0, 1.0, 5.0], np.float32), 2)
    TopK(values=array([5., 4.], dtype=float32), indices=array([4, 2]))
    """
    dim = dimension(input, dim)
    plain("an integer", k=k)
    if not 0 <= k <= input.shape[dim]:
        raise ValueError(f"`k` is {k}, and `input` has {input.shape[dim]} elements along `dim`")
    values, index = _topk(input, k, dim, largest)
    return TopK(values, converted(index, "int64"))


@tw.jit
def ordered_keys(x, column, mask, LARGEST: tl.constexpr):
    """Return integers of 64 bits in the order of elements, and of their places where those tie."""
    # The bits of floats are ordered as their magnitudes are; negative ones are turned around.
    bits = tl.where(is_nan(x), 0x7FFFFFFF, x.to(tl.int32, bitcast=True))
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if not LARGEST:
        key = ~key
    key = (key.to(tl.int64) << 32) + (0x7FFFFFFF - column)
    return tl.where(mask, key, -(1 << 63))


@tw.jit
def best_columns(
    x_row,
    is_row,
    columns,
    column_stride,
    LARGEST: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return where the best `K` elements of rows are: of a block, and of those so far."""
    ROWS: tl.constexpr = x_row.shape[0]
    best = tl.full((ROWS, K), -(1 << 63), tl.int64)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)[None, :]
        mask = is_row & (column < columns)
        x = tl.load(x_row + column * column_stride, mask, 0.0).to(tl.float32)
        own = tl.topk(ordered_keys(x, column, mask, LARGEST), K, dim=1)
        best = tl.topk(tl.cat(best, own, dim=1), K, dim=1)
    return 0x7FFFFFFF - (best & 0x7FFFFFFF)


@tw.jit
def wide_keys(x, mask, LARGEST: tl.constexpr):
    """Return integers of 64 bits in the order of elements of fp64; no element has the least."""
    bits = tl.where(is_nan(x), 0x7FFFFFFFFFFFFFFF, x.to(tl.int64, bitcast=True))
    key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    if not LARGEST:
        key = ~key
    return tl.where(mask, key, -(1 << 63))


@tw.jit
def places_of_largest(key, K: tl.constexpr):
    """Return where in rows the `K` largest keys are; of equal ones the first come first.

    A key and its place are more than 64 bits: the lower halves are sorted first, and keys in that
    order by the upper ones.
    """
    place = 0x7FFFFFFF - tl.arange(0, key.shape[1])[None, :].to(tl.int64)
    lower = ((key & 0xFFFFFFFF) - 0x80000000) << 32
    lower = tl.sort(lower + place, dim=1, descending=True)
    order = (0x7FFFFFFF - (lower & 0x7FFFFFFF)).to(tl.int32)
    upper = tl.gather(key, order, axis=1) >> 32
    best = tl.topk((upper << 32) + place, K, dim=1)
    return tl.gather(order, (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32), axis=1)


@tw.jit
def best_columns_wide(
    x_row,
    is_row,
    columns,
    column_stride,
    LARGEST: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return where the best `K` elements of rows of fp64 are."""
    column = tl.arange(0, BLOCK)[None, :]
    mask = is_row & (column < columns)
    key = wide_keys(tl.load(x_row + column * column_stride, mask, 0.0), mask, LARGEST)
    best = places_of_largest(key, K)
    best_key = tl.gather(key, best, axis=1)
    for first in range(BLOCK, columns, BLOCK):
        mask = is_row & (first + column < columns)
        key = wide_keys(tl.load(x_row + (first + column) * column_stride, mask, 0.0), mask, LARGEST)
        own = places_of_largest(key, K)
        best_key = tl.cat(best_key, tl.gather(key, own, axis=1), dim=1)
        kept = places_of_largest(best_key, K)
        best_key = tl.gather(best_key, kept, axis=1)
        best = tl.gather(tl.cat(best, first + own, dim=1), kept, axis=1)
    return best


@tw.autotune(row_configs, key=["rows", "columns", "after"], default=row_warps)
@tw.jit
def topk_kernel(
    x_ptr,
    values_ptr,
    index_ptr,
    rows,
    columns,
    after,
    k,
    x_before_stride,
    x_column_stride,
    x_after_stride,
    LARGEST: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The best `K` of `ROWS` rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = (row < rows)[:, None]
    x_row = x_ptr + row_offsets(row, after, x_before_stride, x_after_stride)[:, None]
    if x_ptr.dtype.element_ty == tl.float64:
        column = best_columns_wide(x_row, is_row, columns, x_column_stride, LARGEST, K, BLOCK)
    else:
        column = best_columns(x_row, is_row, columns, x_column_stride, LARGEST, K, BLOCK)
    place = tl.arange(0, K)[None, :]
    mask = is_row & (place < k)
    out = row_offsets(row, after, k * after, 1)[:, None] + place * after
    tl.store(index_ptr + out, column.to(tl.int32), mask)
    tl.store(values_ptr + out, tl.load(x_row + column * x_column_stride, mask), mask)


def _allocate(x: Any, k: int, dim: int, largest: bool) -> Any:
    floating(input=x)
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    return empty(shape, x), empty(shape, x, "int32")


@operation(
    "topk(Tensor input, SymInt k, int dim, bool largest) -> (Tensor, Tensor)", allocate=_allocate
)
def _topk(outputs: Any, x: Any, k: int, dim: int, largest: bool) -> None:
    x = folded(x, dim)
    before, columns, after = x.shape
    rows = before * after
    if rows * k == 0:
        return
    size = tw.next_power_of_2(k)
    # A block has at least as many elements as are wanted.
    per_program, block = row_blocks(x, rows, max(columns, size), max(_MOST_COLUMNS, size))
    topk_kernel[(tw.cdiv(rows, per_program),)](
        x,
        *outputs,
        rows,
        columns,
        after,
        k,
        *strides(x),
        LARGEST=largest,
        K=size,
        ROWS=per_program,
        BLOCK=block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, _, ctx.dim, _ = inputs
    ctx.shape = x.shape
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, dy: Any, _: Any) -> tuple[Any, ...]:
    if dy is None:
        return None, None, None, None
    (index,) = ctx.saved_tensors
    dx = torch.zeros(ctx.shape, dtype=dy.dtype, device=dy.device)
    return dx.scatter(ctx.dim, index.to(torch.int64), dy), None, None, None


_topk.register_autograd(_backward, setup_context=_setup_context)
