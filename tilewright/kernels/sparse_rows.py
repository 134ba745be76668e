"""Products of matrices whose elements that are not zero are listed by rows (CSR).

An element `e` of row `r` is at `crow_indices[r] <= e < crow_indices[r + 1]`, in the column
`col_indices[e]`, as in `torch.sparse_csr_tensor`.
"""

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    contiguous,
    empty,
    is_at_hand,
    is_tensor,
    on_cpu,
    strides,
    torch,
)
from tilewright.kernels.checks import (
    array,
    floating,
    integral,
    plain,
    ranked,
    rising,
    same_kind,
    shaped,
    within,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["coo_to_csr", "sddmm", "spmm"]


def spmm(crow_indices: Any, col_indices: Any, values: Any, b: Any) -> Any:
    """Return the product of a sparse matrix (M, N), by rows, and a dense one; differentiable.

    Args:
        crow_indices: Where rows begin, integers (M + 1): 0 at first, E at last, and none falls. On
            a GPU, and in compiled functions, that is not checked: a row has the elements that are
            there.
        col_indices: The columns of elements, integers (E). What is no column gives NaN.
        values: The elements (E), of fp16, bf16, fp32 or fp64.
        b: Array (N, K) of that dtype, of any strides.

    Returns:
        Array (M, K); sums are in fp32 (fp64).

    >>> import numpy as np
    >>> spmm(np.array([0, 1, 3]), np.array([1, 0, 1]), np.ones(3, np.float32), np.eye(2, dtype="f"))
    array([[0., 1.],
           [1., 1.]], dtype=float32)
    """
    _check(crow_indices, col_indices, values=values, b=b)
    shaped((col_indices.shape[0],), values=values)
    _require_rows(crow_indices, col_indices.shape[0])
    return _spmm(crow_indices, col_indices, values, b)


def sddmm(crow_indices: Any, col_indices: Any, a: Any, b: Any) -> Any:
    """Return those elements of a @ b that a sparse matrix (M, N) has; differentiable.

    Args:
        crow_indices: As for `spmm`; elements that are in no row are NaN where it is not checked.
        col_indices: The columns of elements, integers (E). What is no column gives NaN.
        a: Array (M, K) of fp16, bf16, fp32 or fp64, of any strides.
        b: Array (K, N) of that dtype, of any strides; its columns are read.

    Returns:
        The elements (E); sums are in fp32 (fp64).

    >>> import numpy as np
    >>> sddmm(np.array([0, 1, 3]), np.array([1, 0, 1]), np.eye(2, dtype="f"), np.eye(2, dtype="f"))
    array([0., 0., 1.], dtype=float32)
    """
    _check(crow_indices, col_indices, a=a, b=b)
    shaped((crow_indices.shape[0] - 1, a.shape[1]), a=a)
    shaped((a.shape[1], b.shape[1]), b=b)
    _require_rows(crow_indices, col_indices.shape[0])
    return _sddmm(crow_indices, col_indices, a, b)


def coo_to_csr(row_indices: Any, col_indices: Any, values: Any, rows: int) -> tuple[Any, Any, Any]:
    """Return a sparse matrix by rows of elements in any order; differentiable.

    Args:
        row_indices: The rows of elements, integers (E) from 0 to `rows` - 1. On a GPU, and in
            compiled functions, that is not checked: where rows begin leaves others out.
        col_indices: Their columns, integers (E).
        values: The elements (E). Several at one place stay several: products add them.
        rows: How many rows there are.

    Returns:
        Where rows begin (rows + 1), and the columns (E) and elements (E) in the order of rows.

    >>> import numpy as np
    >>> coo_to_csr(np.array([1, 0]), np.array([0, 1]), np.array([3.0, 2.0]), 2)
    (array([0, 1, 2]), array([1, 0]), array([2., 3.]))
    """
    array(row_indices=row_indices, col_indices=col_indices, values=values)
    integral(row_indices=row_indices, col_indices=col_indices)
    floating(values=values)
    same_kind(row_indices=row_indices, col_indices=col_indices, values=values)
    plain("an integer", rows=rows)
    if rows < 0:
        raise ValueError(f"`rows` is {rows}; an integer of at least 0 is needed")
    ranked(1, 1, row_indices=row_indices)
    shaped(tuple(row_indices.shape), col_indices=col_indices, values=values)
    within(0, rows - 1, row_indices=row_indices)
    order, starts = _grouped(row_indices, rows)
    return starts, col_indices[order], values[order]


def _check(crow_indices: Any, col_indices: Any, **dense: Any) -> None:
    indices = {"crow_indices": crow_indices, "col_indices": col_indices}
    array(**indices, **dense)
    integral(**indices)
    floating(**dense)
    same_kind(**indices, **dense)
    ranked(1, 1, **indices)
    if not crow_indices.shape[0]:
        raise ValueError("`crow_indices` is empty; where rows begin, and the end, is needed")
    (first, x), (second, y) = dense.items()
    ranked(2, 2, **{second: y}, **({"a": x} if first == "a" else {}))
    if x.dtype != y.dtype:
        raise TypeError(f"`{first}` is of {x.dtype}, and `{second}` of {y.dtype}")


def _require_rows(crow_indices: Any, count: int) -> None:
    rising(count, crow_indices=crow_indices)
    if not is_at_hand(crow_indices):
        return
    first, last = int(crow_indices[0]), int(crow_indices[-1])
    if (first, last) != (0, count):
        raise ValueError(
            f"`crow_indices` begins with {first} and ends with {last}; 0 and {count}, the number of"
            " elements, are needed"
        )


def _grouped(index: Any, groups: int) -> tuple[Any, Any]:
    """Return the order by groups, stable within each, and where each group begins."""
    if is_tensor(index):
        order = torch.sort(index, stable=True).indices
        edges = torch.arange(groups + 1, device=index.device, dtype=index.dtype)
        return order, torch.searchsorted(index[order], edges)
    order = np.argsort(index, kind="stable")
    return order, np.searchsorted(index[order], np.arange(groups + 1))


def _rows_of(crow_indices: Any, count: int) -> Any:
    """Return the row of each element."""
    ends = contiguous(crow_indices[1:])
    if is_tensor(ends):
        elements = torch.arange(count, device=ends.device, dtype=ends.dtype)
        return torch.searchsorted(ends, elements, right=True)
    return np.searchsorted(ends, np.arange(count), side="right")


# ---- kernels --------------------------------------------------------------------------------

_configs = [
    tw.Config({"ELEMENTS": elements, "BLOCK": block}, num_warps=warps)
    for elements, block, warps in [(4, 128, 1), (8, 128, 1), (16, 128, 1), (8, 128, 2), (8, 256, 1)]
]


def _default(arguments: dict[str, Any]) -> tw.Config:
    block = min(tw.next_power_of_2(max(arguments["width"], 1)), 128)
    return tw.Config({"ELEMENTS": 4, "BLOCK": block}, num_warps=1)


@tw.autotune(_configs, key=["rows", "width"], default=_default)
@tw.jit
def spmm_kernel(
    starts_ptr,
    column_ptr,
    values_ptr,
    b_ptr,
    out_ptr,
    rows,
    columns,
    count,
    width,
    b_row,
    b_column,
    ELEMENTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows of b, weighted and added: a part of one row of the product."""
    DTYPE: tl.constexpr = accumulator(values_ptr.dtype.element_ty)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.maximum(tl.load(starts_ptr + row), 0)
    end = tl.minimum(tl.load(starts_ptr + row + 1), count)
    acc = tl.zeros((ELEMENTS, BLOCK), DTYPE)
    for start in range(first, end, ELEMENTS):
        element = start + tl.arange(0, ELEMENTS)
        column = tl.load(column_ptr + element, element < end, 0).to(tl.int64)
        is_known = (column >= 0) & (column < columns)
        value = tl.load(values_ptr + element, element < end, 0.0).to(DTYPE)
        mask = ((element < end) & is_known)[:, None] & (at < width)[None, :]
        b_ptrs = b_ptr + column[:, None] * b_row + at[None, :] * b_column
        b = tl.load(b_ptrs, mask, 0.0).to(DTYPE)
        acc += tl.where(is_known, value, float("nan"))[:, None] * b
    tl.store(out_ptr + row * width + at, tl.sum(acc, axis=0), at < width)


@tw.jit
def sddmm_kernel(
    row_ptr,
    column_ptr,
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    columns,
    count,
    depth,
    a_row,
    a_column,
    b_row,
    b_column,
    ELEMENTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Products of a row and a column, `ELEMENTS` of them."""
    DTYPE: tl.constexpr = accumulator(a_ptr.dtype.element_ty)
    element = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_element = element < count
    row = tl.load(row_ptr + element, is_element, 0).to(tl.int64)[:, None]
    column = tl.load(column_ptr + element, is_element, 0).to(tl.int64)[:, None]
    is_known = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    acc = tl.zeros((ELEMENTS, BLOCK), DTYPE)
    for first in range(0, depth, BLOCK):
        k = (first + tl.arange(0, BLOCK))[None, :]
        mask = is_element[:, None] & is_known & (k < depth)
        a = tl.load(a_ptr + row * a_row + k * a_column, mask, 0.0).to(DTYPE)
        acc += a * tl.load(b_ptr + k * b_row + column * b_column, mask, 0.0).to(DTYPE)
    acc = tl.where(is_known, acc, float("nan"))
    tl.store(out_ptr + element, tl.sum(acc, axis=1), is_element)


# ---- operations -----------------------------------------------------------------------------


def _allocate_spmm(crow_indices: Any, col_indices: Any, values: Any, b: Any) -> Any:
    return empty((crow_indices.shape[0] - 1, b.shape[1]), b)


@operation(
    "sparse_spmm(Tensor crow_indices, Tensor col_indices, Tensor values, Tensor b) -> Tensor",
    allocate=_allocate_spmm,
)
def _spmm(out: Any, crow_indices: Any, col_indices: Any, values: Any, b: Any) -> None:
    rows, width = out.shape
    if rows * width == 0:
        return
    spmm_kernel[lambda meta: (rows, tw.cdiv(width, meta["BLOCK"]))](
        contiguous(crow_indices),
        contiguous(col_indices),
        contiguous(values),
        b,
        out,
        rows,
        b.shape[0],
        values.shape[0],
        width,
        *strides(b),
    )


def _allocate_sddmm(crow_indices: Any, col_indices: Any, a: Any, b: Any) -> Any:
    return empty((col_indices.shape[0],), a)


@operation(
    "sparse_sddmm(Tensor crow_indices, Tensor col_indices, Tensor a, Tensor b) -> Tensor",
    allocate=_allocate_sddmm,
)
def _sddmm(out: Any, crow_indices: Any, col_indices: Any, a: Any, b: Any) -> None:
    (count,) = out.shape
    if count == 0:
        return
    depth = a.shape[1]
    block = min(tw.next_power_of_2(max(depth, 1)), 256 if on_cpu(a) else 128)
    elements = max(1024 // block, 1)
    sddmm_kernel[(tw.cdiv(count, elements),)](
        _rows_of(crow_indices, count),
        contiguous(col_indices),
        a,
        b,
        out,
        a.shape[0],
        b.shape[1],
        count,
        depth,
        *strides(a),
        *strides(b),
        ELEMENTS=elements,
        BLOCK=block,
    )


def _allocate_transpose(crow_indices: Any, col_indices: Any, columns: int) -> tuple[Any, ...]:
    count = col_indices.shape[0]
    return (
        empty((columns + 1,), col_indices, "int64"),
        empty((count,), col_indices, "int64"),
        empty((count,), col_indices, "int64"),
    )


@operation(
    "sparse_transpose(Tensor crow_indices, Tensor col_indices, SymInt columns)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_transpose,
)
def _transpose(outputs: Any, crow_indices: Any, col_indices: Any, columns: int) -> None:
    """Return where columns begin, the rows of elements by columns, and which elements they are."""
    starts, rows, elements = outputs
    order, begins = _grouped(col_indices, columns)
    starts[...] = begins
    elements[...] = order
    rows[...] = _rows_of(crow_indices, len(order))[order]


def _times_transpose(
    crow_indices: Any, col_indices: Any, values: Any, dense: Any, columns: int
) -> Any:
    """Return the transpose of a sparse matrix times a dense one."""
    starts, rows, elements = _transpose(crow_indices, col_indices, columns)
    return _spmm(starts, rows, values[elements], dense)


def _setup_spmm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _spmm_backward(ctx: Any, dout: Any) -> tuple[Any, ...]:
    crow_indices, col_indices, values, b = ctx.saved_tensors
    dvalues = db = None
    if ctx.needs_input_grad[2]:
        dvalues = _sddmm(crow_indices, col_indices, dout, b.mT)
    if ctx.needs_input_grad[3]:
        db = _times_transpose(crow_indices, col_indices, values, dout, b.shape[0])
    return None, None, dvalues, db


_spmm.register_autograd(_spmm_backward, setup_context=_setup_spmm)


def _sddmm_backward(ctx: Any, dvalues: Any) -> tuple[Any, ...]:
    crow_indices, col_indices, a, b = ctx.saved_tensors
    da = db = None
    if ctx.needs_input_grad[2]:
        da = _spmm(crow_indices, col_indices, dvalues, b.mT)
    if ctx.needs_input_grad[3]:
        db = _times_transpose(crow_indices, col_indices, dvalues, a, b.shape[1]).mT
    return None, None, da, db


_sddmm.register_autograd(_sddmm_backward, setup_context=_setup_spmm)
