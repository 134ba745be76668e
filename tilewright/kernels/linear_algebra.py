"""Cholesky factors and triangular systems of many small matrices, forward and backward.

A program holds a matrix as a tile, and works through its columns; a column or row of a tile is
what a sum over a mask leaves.
"""

import math
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import empty, expanded, is_tensor, strides, torch
from tilewright.kernels.checks import floating, same_dtype, same_kind
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["cholesky", "solve_triangular"]

_LARGEST = 64
_COLUMNS = 32  # of the right side for each program


def cholesky(A: Any) -> Any:
    """Return the lower triangular L with L @ L.T = A, of each matrix; differentiable.

    Args:
        A: Symmetric positive definite matrices of shape (..., n, n), n at most 64, of fp16, bf16,
            fp32 or fp64 and any strides. Computed in fp32 (fp64), from the lower half alone. One
            that is not positive definite gives NaN.

    Returns:
        An array of the shape and dtype of `A`.

    Source: Golub and Van Loan, "Matrix Computations", 4.2.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    return _cholesky(A)


def solve_triangular(
    A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """Return X with A @ X = B (or X @ A = B), of each pair of matrices; differentiable.

    Args:
        A: Triangular matrices of shape (..., n, n), n at most 64, of fp16, bf16, fp32 or fp64 and
            any strides. Computed in fp32 (fp64). The other half is not looked at.
        B: Matrices of shape (..., n, k), or (..., k, n), of the dtype of `A`. Dimensions in front
            broadcast.
        upper: Whether the upper half of `A` counts.
        left: Whether `A` is on the left of X.
        unitriangular: Whether the diagonal of `A` counts as ones.

    Returns:
        An array of the shape of `B` (broadcast) and the dtype of `A`.

    Source: Golub and Van Loan, "Matrix Computations", 3.1.

    >>> import numpy as np
    >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([[2.0], [9.0]]), upper=False)
    array([[1.],
           [2.]])
    """
    if left:
        return _solve(A, B, upper, unitriangular)
    return _transposed(_solve(_transposed(A), _transposed(B), not upper, unitriangular))


def _transposed(x: Any) -> Any:
    return x.swapaxes(-1, -2)


@tw.jit
def cholesky_kernel(a_ptr, l_ptr, n, a_matrix_stride, a_row_stride, a_stride, N: tl.constexpr):
    """Take the columns of a matrix off one after the other."""
    DTYPE: tl.constexpr = accumulator(a_ptr.dtype.element_ty)
    matrix = tl.program_id(0).to(tl.int64)
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    mask = (row < n) & (column < n)
    is_lower = mask & (row >= column)
    a_ptrs = a_ptr + matrix * a_matrix_stride
    # Of the matrix and its mirror image the lower half is read.
    first, second = tl.maximum(row, column), tl.minimum(row, column)
    a = tl.load(a_ptrs + first * a_row_stride + second * a_stride, mask, 0.0).to(DTYPE)
    factor = tl.zeros((N, N), DTYPE)
    for j in range(n):
        pivot = tl.sqrt(tl.sum(tl.where((row == j) & (column == j), a, 0.0)))
        down = tl.sum(tl.where(column == j, a, 0.0), axis=1)[:, None] / pivot
        along = tl.sum(tl.where(row == j, a, 0.0), axis=0)[None, :] / pivot
        down, along = tl.where(row >= j, down, 0.0), tl.where(column >= j, along, 0.0)
        factor = tl.where(column == j, down, factor)
        a -= down * along
    out = matrix * n * n + row * n + column
    tl.store(l_ptr + out, tl.where(is_lower, factor, 0.0), mask)


@tw.jit
def solve_triangular_kernel(
    a_ptr,
    b_ptr,
    x_ptr,
    n,
    columns,
    a_matrix_stride,
    a_row_stride,
    a_stride,
    b_matrix_stride,
    b_row_stride,
    b_stride,
    UPPER: tl.constexpr,
    UNIT: tl.constexpr,
    N: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Solve for one row after the other, and take it off the right side of those that follow."""
    DTYPE: tl.constexpr = accumulator(a_ptr.dtype.element_ty)
    matrix = tl.program_id(0).to(tl.int64)
    row, inner = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    a_ptrs = a_ptr + matrix * a_matrix_stride + row * a_row_stride + inner * a_stride
    a = tl.load(a_ptrs, (row < n) & (inner < n), 0.0).to(DTYPE)
    mask = (row < n) & (column < columns)
    b_ptrs = b_ptr + matrix * b_matrix_stride + row * b_row_stride + column * b_stride
    x = tl.load(b_ptrs, mask, 0.0).to(DTYPE)
    for step in range(n):
        j = n - 1 - step if UPPER else step
        of_j = tl.sum(tl.where(inner == j, a, 0.0), axis=1)[:, None]
        found = tl.sum(tl.where(row == j, x, 0.0), axis=0)[None, :]
        if not UNIT:
            found = found / tl.sum(tl.where((row == j) & (inner == j), a, 0.0))
        follows = row < j if UPPER else row > j
        x = tl.where(row == j, found, tl.where(follows, x - of_j * found, x))
    tl.store(x_ptr + (matrix * n + row) * columns + column, x, mask)


def _square(A: Any) -> int:
    floating(A=A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] > _LARGEST:
        raise ValueError(
            f"`A` has the shape {tuple(A.shape)}; (..., n, n) with n of at most {_LARGEST} is"
            " needed: larger ones are for torch.linalg"
        )
    size: int = A.shape[-1]
    return size


def _tile(n: int) -> int:
    return max(tw.next_power_of_2(n), 16)


def _allocate_cholesky(A: Any) -> Any:
    _square(A)
    return empty(tuple(A.shape), A)


@operation("cholesky(Tensor A) -> Tensor", allocate=_allocate_cholesky)
def _cholesky(factor: Any, A: Any) -> None:
    n, matrices = A.shape[-1], math.prod(A.shape[:-2])
    if n * matrices == 0:
        return
    A = A.reshape((matrices, n, n))
    cholesky_kernel[(matrices,)](A, factor, n, *strides(A), N=_tile(n), num_warps=4)


def _setup_cholesky(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(output)


def _backward_cholesky(ctx: Any, dfactor: Any) -> tuple[Any]:
    """Murray, "Differentiation of the Cholesky decomposition", 2016, equation 10."""
    (factor,) = ctx.saved_tensors
    inner = torch.matmul(factor.mT, dfactor).tril()
    inner = inner - 0.5 * torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
    half = _solve(factor.mT, inner, True, False)
    whole = _solve(factor.mT, half.mT, True, False).mT
    return (0.5 * (whole + whole.mT),)


_cholesky.register_autograd(_backward_cholesky, setup_context=_setup_cholesky)


def _batch(A: Any, B: Any) -> tuple[int, ...]:
    """Return the dimensions in front that both broadcast to."""
    shapes = tuple(A.shape[:-2]), tuple(B.shape[:-2])
    try:
        return tuple((torch if is_tensor(A) else np).broadcast_shapes(*shapes))
    except (RuntimeError, ValueError):
        raise ValueError(
            f"`A` has the shape {tuple(A.shape)}, and `B` {tuple(B.shape)}: the dimensions in front"
            " do not fit"
        ) from None


def _allocate_solve(A: Any, B: Any, upper: bool, unitriangular: bool) -> Any:
    n = _square(A)
    floating(B=B)
    same_kind(A=A, B=B)
    same_dtype(A=A, B=B)
    if B.ndim < 2 or B.shape[-2] != n:
        raise ValueError(f"`B` has the shape {tuple(B.shape)}, and `A` {tuple(A.shape)}")
    return empty((*_batch(A, B), n, B.shape[-1]), A)


@operation(
    "solve_triangular(Tensor A, Tensor B, bool upper, bool unitriangular) -> Tensor",
    allocate=_allocate_solve,
)
def _solve(x: Any, A: Any, B: Any, upper: bool, unitriangular: bool) -> None:
    *batch, n, columns = x.shape
    matrices = math.prod(batch)
    if matrices * n * columns == 0:
        return
    A, B = (
        y if tuple(y.shape[:-2]) == tuple(batch) else expanded(y, (*batch, *y.shape[-2:]))
        for y in (A, B)
    )
    A, B = A.reshape((matrices, n, n)), B.reshape((matrices, n, columns))
    solve_triangular_kernel[(matrices, tw.cdiv(columns, _COLUMNS))](
        A,
        B,
        x,
        n,
        columns,
        *strides(A),
        *strides(B),
        UPPER=upper,
        UNIT=unitriangular,
        N=_tile(n),
        COLUMNS=min(_tile(columns), _COLUMNS),
        num_warps=4,
    )


def _setup_solve(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    A, B, ctx.upper, ctx.unitriangular = inputs
    ctx.shapes = A.shape, B.shape
    ctx.save_for_backward(A, output)


def _backward_solve(ctx: Any, dx: Any) -> tuple[Any, ...]:
    A, x = ctx.saved_tensors
    dB = _solve(A.mT, dx, not ctx.upper, ctx.unitriangular)
    dA = None
    if ctx.needs_input_grad[0]:
        offset = int(ctx.unitriangular)
        dA = -torch.matmul(dB, x.mT)
        dA = dA.triu(offset) if ctx.upper else dA.tril(-offset)
        dA = dA.sum_to_size(ctx.shapes[0])
    return dA, dB.sum_to_size(ctx.shapes[1]), None, None


_solve.register_autograd(_backward_solve, setup_context=_setup_solve)
