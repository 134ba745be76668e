"""Products of matrices of which only some blocks are there: sparse, dense or both.

A `BlockSparsity` says which blocks there are; their values are an array (batch, blocks, size,
size). Every product here is one of two: blocks of a product of dense matrices (SDD), and a product
of a sparse matrix, or its transpose, and a dense one (DSD). DDS is the transpose of the latter.
"""

# The constants of kernels are plain values.
# mypy: disable-error-code="arg-type"

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    contiguous,
    dtype_name,
    empty,
    is_tensor,
    product_precision,
    strides,
    torch,
)
from tilewright.kernels.checks import (
    array,
    floating,
    integral,
    plain,
    same_dtype,
    same_kind,
    shaped,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = [
    "BlockSparsity",
    "dds_matmul",
    "dsd_matmul",
    "parts_of",
    "require_sparsity",
    "sdd_matmul",
    "shape_of",
    "swapped",
]


class BlockSparsity:
    """Which blocks of a matrix are there, for each head.

    Args:
        layout: Boolean array (heads, block rows, block columns), or without heads: a tensor where
            the matrices are tensors, on their device.
        size: Rows and columns of a block, a power of two, at least 16.

    Blocks are in the order of `layout.nonzero()`: `blocks` is how many there are.

    >>> import numpy as np
    >>> BlockSparsity(np.eye(3, dtype=bool), 16).blocks
    3
    """

    def __init__(self, layout: Any, size: int) -> None:
        plain("an integer", size=size)
        if size < 16 or size & (size - 1):
            raise ValueError(f"`size` is {size}; a power of two, at least 16, is needed")
        array(layout=layout)
        if dtype_name(layout) != "bool":
            integral(layout=layout)
        host = layout.cpu().numpy() if is_tensor(layout) else np.asarray(layout)
        host = host[None] if host.ndim == 2 else host
        if host.ndim != 3:
            raise ValueError(f"`layout` has {host.ndim} dimensions; 2 or 3 are needed")
        self.size = size
        self.heads, self.rows, self.columns = host.shape
        head, row, column = np.nonzero(host)
        self.blocks = len(head)
        by_column = np.lexsort((row, column, head))
        tables = {
            "head": head,
            "row": row,
            "column": column,
            "row_starts": np.searchsorted(
                head * self.rows + row, np.arange(self.heads * self.rows + 1)
            ),
            "by_column": by_column,
            "row_by_column": row[by_column],
            "column_starts": np.searchsorted(
                (head * self.columns + column)[by_column],
                np.arange(self.heads * self.columns + 1),
            ),
        }
        # One array, so that it is one argument of operators: see `parts_of`.
        flat = np.concatenate(
            [np.pad(table.astype(np.int32), (0, -len(table) % 4)) for table in tables.values()]
        )
        self.table: Any = torch.from_numpy(flat).to(layout.device) if is_tensor(layout) else flat

    def __repr__(self) -> str:
        shape = (self.heads, self.rows, self.columns)
        return f"BlockSparsity({self.blocks} blocks of {self.size}, of {shape})"


def parts_of(table: Any, shape: list[int]) -> dict[str, Any]:
    """Return the tables of a sparsity of `shape`: (heads, rows, columns, blocks, size)."""
    heads, rows, columns, blocks, _ = shape
    sizes = {
        **dict.fromkeys(("head", "row", "column"), blocks),
        "row_starts": heads * rows + 1,
        **dict.fromkeys(("by_column", "row_by_column"), blocks),
        "column_starts": heads * columns + 1,
    }
    parts, start = {}, 0
    for name, size in sizes.items():
        parts[name] = table[start : start + size]
        start += size + -size % 4  # so that 16 bytes divide all addresses
    return parts


def shape_of(sparsity: BlockSparsity) -> list[int]:
    """Return the numbers of a sparsity, as operators take them."""
    return [sparsity.heads, sparsity.rows, sparsity.columns, sparsity.blocks, sparsity.size]


def sdd_matmul(a: Any, b: Any, sparsity: BlockSparsity) -> Any:
    """Return the blocks of a @ b that are there; differentiable.

    Args:
        a: Array (batch, heads, M, K) of fp16, bf16, fp32 or fp64, of any strides.
        b: Array (batch, heads, K, N) of that dtype.
        sparsity: Of (M, N).

    Returns:
        Their values (batch, blocks, size, size).

    >>> import numpy as np
    >>> a = np.ones((1, 1, 32, 8), np.float32)
    >>> sdd_matmul(a, a.swapaxes(2, 3), BlockSparsity(np.eye(2, dtype=bool), 16)).shape
    (1, 2, 16, 16)
    """
    _require_dense(sparsity, a=a, b=b)
    same_dtype(a=a, b=b)
    shaped((*a.shape[:2], sparsity.rows * sparsity.size, a.shape[3]), a=a)
    shaped((*a.shape[:2], a.shape[3], sparsity.columns * sparsity.size), b=b)
    return _sdd(a, b, sparsity.table, shape_of(sparsity))


def dsd_matmul(values: Any, b: Any, sparsity: BlockSparsity) -> Any:
    """Return the product of a sparse matrix and a dense one; differentiable.

    Args:
        values: The blocks of the sparse matrix (M, N): (batch, blocks, size, size).
        b: Array (batch, heads, N, K) of fp16, bf16, fp32 or fp64, of any strides.
        sparsity: Of (M, N).

    Returns:
        Array (batch, heads, M, K).

    >>> import numpy as np
    >>> sparsity = BlockSparsity(np.eye(2, dtype=bool), 16)
    >>> values, b = np.ones((1, 2, 16, 16), np.float32), np.ones((1, 1, 32, 8), np.float32)
    >>> dsd_matmul(values, b, sparsity).max()
    np.float32(16.0)
    """
    _check_values(values, sparsity, b=b)
    shaped((*b.shape[:2], sparsity.columns * sparsity.size, b.shape[3]), b=b)
    return _dsd(values, b, sparsity.table, shape_of(sparsity), False)


def dds_matmul(a: Any, values: Any, sparsity: BlockSparsity) -> Any:
    """Return the product of a dense matrix and a sparse one; differentiable.

    Args:
        a: Array (batch, heads, K, M) of fp16, bf16, fp32 or fp64, of any strides.
        values: The blocks of the sparse matrix (M, N): (batch, blocks, size, size).
        sparsity: Of (M, N).

    Returns:
        Array (batch, heads, K, N), the transpose of one in row-major order.

    >>> import numpy as np
    >>> sparsity = BlockSparsity(np.eye(2, dtype=bool), 16)
    >>> values, a = np.ones((1, 2, 16, 16), np.float32), np.ones((1, 1, 8, 32), np.float32)
    >>> dds_matmul(a, values, sparsity).max()
    np.float32(16.0)
    """
    _check_values(values, sparsity, a=a)
    shaped((*a.shape[:3], sparsity.rows * sparsity.size), a=a)
    return swapped(_dsd(values, swapped(a), sparsity.table, shape_of(sparsity), True))


def swapped(x: Any) -> Any:
    """Return a view whose last two dimensions have changed places."""
    return x.mT if is_tensor(x) else np.swapaxes(x, -1, -2)


def require_sparsity(sparsity: Any, **arrays: Any) -> None:
    """Raise unless there is a sparsity, and it is where the arrays are, which are floats."""
    if not isinstance(sparsity, BlockSparsity):
        kind = type(sparsity).__name__
        raise TypeError(f"`sparsity` is a {kind}; a BlockSparsity is needed")
    array(**arrays)
    floating(**arrays)
    same_kind(**arrays, sparsity=sparsity.table)


def _require_dense(sparsity: BlockSparsity, **arrays: Any) -> None:
    """Raise unless arrays are (batch, heads, rows, columns), with the heads of a sparsity."""
    require_sparsity(sparsity, **arrays)
    for name, x in arrays.items():
        if x.ndim != 4 or x.shape[1] != sparsity.heads:
            shape = f"(batch, {sparsity.heads}, rows, columns)"
            raise ValueError(f"`{name}` has the shape {tuple(x.shape)}; {shape} is needed")


def _check_values(values: Any, sparsity: BlockSparsity, **dense: Any) -> None:
    _require_dense(sparsity, **dense)
    require_sparsity(sparsity, values=values)
    same_kind(values=values, **dense)
    same_dtype(values=values, **dense)
    (batch,) = {x.shape[0] for x in dense.values()}
    shaped((batch, sparsity.blocks, sparsity.size, sparsity.size), values=values)


# ---- kernels --------------------------------------------------------------------------------


@tw.jit
def sdd_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    head_ptr,
    row_ptr,
    column_ptr,
    blocks,
    K,
    a_batch,
    a_head,
    a_row,
    a_column,
    b_batch,
    b_head,
    b_row,
    b_column,
    SIZE: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One block of a product of dense matrices."""
    DTYPE: tl.constexpr = accumulator(a_ptr.dtype.element_ty)
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    head = tl.load(head_ptr + block).to(tl.int64)
    at = tl.arange(0, SIZE)
    row, column = tl.load(row_ptr + block) * SIZE + at, tl.load(column_ptr + block) * SIZE + at
    k = tl.arange(0, DEPTH)
    a_ptrs = a_ptr + batch * a_batch + head * a_head + row[:, None] * a_row + k[None, :] * a_column
    b_ptrs = (
        b_ptr + batch * b_batch + head * b_head + k[:, None] * b_row + column[None, :] * b_column
    )
    acc = tl.zeros((SIZE, SIZE), DTYPE)
    for first in range(0, K, DEPTH):
        a = tl.load(a_ptrs + first * a_column, (first + k < K)[None, :], 0.0)
        b = tl.load(b_ptrs + first * b_row, (first + k < K)[:, None], 0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=DTYPE)
    out_ptrs = out_ptr + (batch * blocks + block) * SIZE * SIZE + at[:, None] * SIZE + at[None, :]
    tl.store(out_ptrs, acc)


@tw.jit
def dsd_kernel(
    values_ptr,
    b_ptr,
    out_ptr,
    starts_ptr,
    order_ptr,
    other_ptr,
    blocks,
    rows,
    K,
    b_batch,
    b_head,
    b_row,
    b_column,
    TRANSPOSED: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A block row of a sparse matrix (a block column, if `TRANSPOSED`) times a dense one."""
    DTYPE: tl.constexpr = accumulator(b_ptr.dtype.element_ty)
    line = tl.program_id(1)
    head, batch = (tl.program_id(2) % HEADS).to(tl.int64), (tl.program_id(2) // HEADS).to(tl.int64)
    first = tl.load(starts_ptr + head * rows + line)
    end = tl.load(starts_ptr + head * rows + line + 1)
    at, k = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    is_column = (column < K)[None, :]
    within = at[:, None] + k[None, :] * SIZE if TRANSPOSED else at[:, None] * SIZE + k[None, :]
    b_ptrs = b_ptr + batch * b_batch + head * b_head + column[None, :] * b_column
    STEPS: tl.constexpr = SIZE // DEPTH
    acc = tl.zeros((SIZE, WIDTH), DTYPE)
    for step in range(first * STEPS, end * STEPS):
        block = tl.load(order_ptr + step // STEPS) if TRANSPOSED else step // STEPS
        part = step % STEPS * DEPTH
        start = (batch * blocks + block) * SIZE * SIZE
        a = tl.load(values_ptr + start + (part * SIZE if TRANSPOSED else part) + within)
        row = tl.load(other_ptr + block) * SIZE + part + k
        b = tl.load(b_ptrs + row[:, None].to(tl.int64) * b_row, is_column, 0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=DTYPE)
    place = ((batch * HEADS + head) * rows + line) * SIZE
    tl.store(out_ptr + (place + at[:, None]) * K + column[None, :], acc, is_column)


# ---- operations -----------------------------------------------------------------------------


def _allocate_sdd(a: Any, b: Any, table: Any, shape: list[int]) -> Any:
    _, _, _, blocks, size = shape
    return empty((a.shape[0], blocks, size, size), a)


@operation(
    "block_sparse_sdd(Tensor a, Tensor b, Tensor table, int[] shape) -> Tensor",
    allocate=_allocate_sdd,
    autocast="lower",
)
def _sdd(out: Any, a: Any, b: Any, table: Any, shape: list[int]) -> None:
    parts, size = parts_of(table, shape), shape[4]
    if 0 in out.shape:
        return
    depth = a.shape[3]
    sdd_kernel[(shape[3], a.shape[0])](
        a,
        b,
        out,
        parts["head"],
        parts["row"],
        parts["column"],
        shape[3],
        depth,
        *strides(a),
        *strides(b),
        SIZE=size,
        DEPTH=min(tw.next_power_of_2(max(depth, 16)), 64),
        PRECISION=product_precision(a),
        num_warps=8 if size >= 128 else 4,
        num_stages=4,
    )


def _allocate_dsd(values: Any, b: Any, table: Any, shape: list[int], transposed: bool) -> Any:
    heads, rows, columns, _, size = shape
    return empty((b.shape[0], heads, (columns if transposed else rows) * size, b.shape[3]), b)


@operation(
    "block_sparse_dsd(Tensor values, Tensor b, Tensor table, int[] shape, bool transposed)"
    " -> Tensor",
    allocate=_allocate_dsd,
    autocast="lower",
)
def _dsd(out: Any, values: Any, b: Any, table: Any, shape: list[int], transposed: bool) -> None:
    parts, (heads, rows, columns, blocks, size) = parts_of(table, shape), shape
    if 0 in out.shape:
        return
    lines, width = (columns if transposed else rows), out.shape[3]
    tile = min(tw.next_power_of_2(max(width, 16)), 128)
    dsd_kernel[(tw.cdiv(width, tile), lines, heads * out.shape[0])](
        contiguous(values),
        b,
        out,
        parts["column_starts" if transposed else "row_starts"],
        parts["by_column"],
        parts["row" if transposed else "column"],
        blocks,
        lines,
        width,
        *strides(b),
        TRANSPOSED=transposed,
        HEADS=heads,
        SIZE=size,
        DEPTH=min(size, 64),
        WIDTH=tile,
        PRECISION=product_precision(b),
        num_warps=8 if size >= 128 else 4,
        num_stages=4,
    )


def _setup_sdd(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, table, ctx.shape = inputs
    ctx.save_for_backward(a, b, table)


def _sdd_backward(ctx: Any, dvalues: Any) -> tuple[Any, ...]:
    a, b, table = ctx.saved_tensors
    da = db = None
    if ctx.needs_input_grad[0]:
        da = _dsd(dvalues, b.mT, table, ctx.shape, False)
    if ctx.needs_input_grad[1]:
        db = _dsd(dvalues, a, table, ctx.shape, True).mT
    return da, db, None, None


_sdd.register_autograd(_sdd_backward, setup_context=_setup_sdd)


def _setup_dsd(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    values, b, table, ctx.shape, ctx.transposed = inputs
    ctx.save_for_backward(values, b, table)


def _dsd_backward(ctx: Any, dout: Any) -> tuple[Any, ...]:
    values, b, table = ctx.saved_tensors
    dvalues = db = None
    if ctx.needs_input_grad[0]:
        pair = (b, dout.mT) if ctx.transposed else (dout, b.mT)
        dvalues = _sdd(*pair, table, ctx.shape)
    if ctx.needs_input_grad[1]:
        db = _dsd(values, dout, table, ctx.shape, not ctx.transposed)
    return dvalues, db, None, None, None


_dsd.register_autograd(_dsd_backward, setup_context=_setup_dsd)
