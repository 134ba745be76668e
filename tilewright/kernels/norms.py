"""Layer norm and RMS norm over the last dimensions, also of a sum, forward and backward."""

import math
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty, empty_like, on_cpu, strides
from tilewright.kernels.checks import array, floating, plain, same_dtype, same_kind, shaped
from tilewright.kernels.norm_gradients import norm_backward
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import (
    accumulator,
    accumulator_name,
    column_numbers,
    down,
    own_rows,
    row_blocks,
    row_configs,
    row_sums,
    row_warps,
    rows_and_columns,
)

__all__ = ["add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"]


def layer_norm(
    input: Any,
    normalized_shape: tuple[int, ...] | list[int] | int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Any:
    """Return (input - mean) / sqrt(variance + eps) * weight + bias; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32 (fp64).
        normalized_shape: The sizes of the last dimensions, which mean and variance are taken over.
        weight: Array of that shape, or None for ones.
        bias: Array of that shape, or None for zeros.
        eps: Added to the variance.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Ba et al., "Layer Normalization", 2016.

    >>> import numpy as np
    >>> layer_norm(np.array([[1, 3], [5, 9]], np.float32), 2, eps=0.0)
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    dims = _dimensions(input, normalized_shape, weight=weight, bias=bias)
    return _normalize(input, weight, bias, dims, eps, False)[0]


def rms_norm(
    input: Any,
    normalized_shape: tuple[int, ...] | list[int] | int,
    weight: Any = None,
    eps: float | None = None,
) -> Any:
    """Return input / sqrt(mean(input^2) + eps) * weight over the last dimensions; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32 (fp64).
        normalized_shape: The sizes of the last dimensions, which the mean is taken over.
        weight: Array of that shape, or None for ones.
        eps: Added to the mean; by default the spacing of fp32 (fp64) numbers at 1.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> import numpy as np
    >>> rms_norm(np.array([[3, 3], [-2, 2]], np.float32), 2, eps=0.0)
    array([[ 1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    dims = _dimensions(input, normalized_shape, weight=weight)
    return _normalize(input, weight, None, dims, _epsilon(input, eps), True)[0]


def add_layer_norm(
    input: Any,
    residual: Any,
    normalized_shape: tuple[int, ...] | list[int] | int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> tuple[Any, Any]:
    """Return `layer_norm(input + residual, ...)` and the sum, in one pass; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32 (fp64).
        residual: Array of the shape and dtype of `input`.
        normalized_shape: The sizes of the last dimensions, which mean and variance are taken over.
        weight: Array of that shape, or None for ones.
        bias: Array of that shape, or None for zeros.
        eps: Added to the variance.

    Returns:
        The norm and the sum, of the shape and dtype of `input`.

    >>> import numpy as np
    >>> y, total = add_layer_norm(np.ones((1, 2)), np.array([[0.0, 2.0]]), 2, eps=0.0)
    >>> y, total
    (array([[-1.,  1.]]), array([[1., 3.]]))
    """
    dims = _dimensions(input, normalized_shape, weight=weight, bias=bias)
    y, total, *_ = _add_normalize(input, residual, weight, bias, dims, eps, False)
    return y, total


def add_rms_norm(
    input: Any,
    residual: Any,
    normalized_shape: tuple[int, ...] | list[int] | int,
    weight: Any = None,
    eps: float | None = None,
) -> tuple[Any, Any]:
    """Return `rms_norm(input + residual, ...)` and the sum, in one pass; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32 (fp64).
        residual: Array of the shape and dtype of `input`.
        normalized_shape: The sizes of the last dimensions, which the mean is taken over.
        weight: Array of that shape, or None for ones.
        eps: Added to the mean; by default the spacing of fp32 (fp64) numbers at 1.

    Returns:
        The norm and the sum, of the shape and dtype of `input`.

    >>> import numpy as np
    >>> y, total = add_rms_norm(np.ones((1, 2)), np.array([[1.0, -3.0]]), 2, eps=0.0)
    >>> y, total
    (array([[ 1., -1.]]), array([[ 2., -2.]]))
    """
    dims = _dimensions(input, normalized_shape, weight=weight)
    y, total, *_ = _add_normalize(input, residual, weight, None, dims, _epsilon(input, eps), True)
    return y, total


def _dimensions(x: Any, normalized_shape: Any, **parameters: Any) -> int:
    """Return how many dimensions a mean is taken over; raise where shapes do not fit."""
    array(input=x)
    is_several = isinstance(normalized_shape, list | tuple)
    shape = tuple(normalized_shape) if is_several else (normalized_shape,)
    for size in shape:
        plain("an integer", normalized_shape=size)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(
            f"`normalized_shape` is {shape}, and `input` has the shape {tuple(x.shape)}, which has"
            " to end so"
        )
    floating(input=x, **parameters)
    same_kind(input=x, **parameters)
    shaped(shape, **parameters)
    return len(shape)


def _epsilon(x: Any, eps: float | None) -> float:
    return float(np.finfo(accumulator_name(x)).eps) if eps is None else eps


@tw.jit
def row_elements(x_ptrs, residual_ptr, residual_at, mask, DTYPE: tl.constexpr):
    """Return elements of rows, or of sums, rounded to the type of the rows."""
    x = tl.load(x_ptrs, mask, 0.0)
    if residual_ptr is not None:
        total = x.to(DTYPE) + tl.load(residual_ptr + residual_at, mask, 0.0).to(DTYPE)
        x = total.to(x.dtype)
    return x.to(DTYPE)


@tw.jit
def parameter(pointer, column, mask, other, DTYPE: tl.constexpr):
    """Return elements of weight or bias, or what stands for those that are not there."""
    if pointer is None:
        return tl.full(mask.shape, other, DTYPE)
    return tl.load(pointer + column, mask, 0.0)


def _norm_config(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: of one input up to 32 elements for each thread."""
    config = row_warps(arguments)
    warps = config.num_warps
    if arguments["residual_ptr"] is None:
        elements = arguments["ROWS"] * arguments["BLOCK"]
        warps = max(min(warps, 8), elements // 1024)
    return tw.Config({}, num_warps=warps, num_stages=config.num_stages)


@tw.autotune(row_configs, key=["rows", "columns"], default=_norm_config)
@tw.jit
def normalize_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sum_ptr,
    mean_ptr,
    rstd_ptr,
    rows,
    columns,
    x_row_stride,
    x_column_stride,
    residual_row_stride,
    residual_column_stride,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    LOAD_FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The norms of `ROWS` rows that fit into a block.

    `LOAD_FIRST`: weight and bias are loaded before the sums, for which threads of a GPU wait. With
    two sums, one after the other, what is loaded would take registers for too long.
    """
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = own_rows(ROWS).to(tl.int64)
    is_row = row < rows
    at = column_numbers(ROWS, BLOCK)
    mask = down(is_row, ROWS) & (at < columns)
    x_ptrs = x_ptr + down(row, ROWS) * x_row_stride + at * x_column_stride
    residual_at = down(row, ROWS) * residual_row_stride + at * residual_column_stride
    x = row_elements(x_ptrs, residual_ptr, residual_at, mask, DTYPE)
    if LOAD_FIRST:
        weight = parameter(weight_ptr, at, at < columns, 1.0, DTYPE)
        bias = parameter(bias_ptr, at, at < columns, 0.0, DTYPE)
    if RMS:
        centered = x
    else:
        mean = row_sums(x, ROWS) / columns
        centered = tl.where(mask, x - down(mean, ROWS), 0.0)
    rstd = 1 / tl.sqrt(row_sums(centered * centered, ROWS) / columns + EPS)
    if not LOAD_FIRST:
        weight = parameter(weight_ptr, at, at < columns, 1.0, DTYPE)
        bias = parameter(bias_ptr, at, at < columns, 0.0, DTYPE)
    y = centered * down(rstd, ROWS) * weight.to(DTYPE) + bias.to(DTYPE)
    # All stores come last: one in between would part what is computed in one go.
    out = down(row, ROWS) * columns + at
    tl.store(y_ptr + out, y, mask, cache_modifier=".cs")
    if sum_ptr is not None:
        tl.store(sum_ptr + out, x, mask)
    if not RMS:
        tl.store(mean_ptr + row, mean, is_row)
    tl.store(rstd_ptr + row, rstd, is_row)


@tw.jit
def long_rows_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sum_ptr,
    mean_ptr,
    rstd_ptr,
    columns,
    x_row_stride,
    x_column_stride,
    residual_row_stride,
    residual_column_stride,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The norm of a row that is read in blocks, twice."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    residual_row = row * residual_row_stride
    mean = tl.cast(0.0, DTYPE)
    squares = tl.cast(0.0, DTYPE)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < columns
        residual_at = residual_row + at * residual_column_stride
        x = row_elements(x_ptr + at * x_column_stride, residual_ptr, residual_at, mask, DTYPE)
        if sum_ptr is not None:
            tl.store(sum_ptr + row * columns + at, x, mask)
        if RMS:
            squares += tl.sum(x * x)
        else:
            # Chan et al., "Updating formulae and a pairwise algorithm", 1979: two parts' mean and
            # squares about it make those of both.
            size = tl.minimum(columns - first, BLOCK)
            step = tl.sum(x) / size - mean
            centered = tl.where(mask, x - (mean + step), 0.0)
            part = tl.cast(first, DTYPE) / (first + size)
            squares += tl.sum(centered * centered) + step * step * (part * size)
            mean += step * (1 - part)
    rstd = 1 / tl.sqrt(squares / columns + EPS)
    tl.store(rstd_ptr + row, rstd)
    if not RMS:
        tl.store(mean_ptr + row, mean)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < columns
        residual_at = residual_row + at * residual_column_stride
        x = row_elements(x_ptr + at * x_column_stride, residual_ptr, residual_at, mask, DTYPE)
        weight = parameter(weight_ptr, at, mask, 1.0, DTYPE).to(DTYPE)
        y = (x - mean) * rstd * weight + parameter(bias_ptr, at, mask, 0.0, DTYPE).to(DTYPE)
        tl.store(y_ptr + row * columns + at, y, mask)


def _statistics(x: Any, dims: int, rms: bool) -> tuple[Any, Any]:
    """Return room for the means of rows, none for RMS norm, and their 1 / deviation."""
    rows = math.prod(x.shape[: x.ndim - dims])
    dtype = accumulator_name(x)
    return empty((0 if rms else rows,), x, dtype), empty((rows,), x, dtype)


def _allocate(x: Any, weight: Any, bias: Any, dims: int, eps: float, rms: bool) -> Any:
    return empty_like(x), *_statistics(x, dims, rms)


@operation(
    "normalize(Tensor input, Tensor? weight, Tensor? bias, int dims, float eps, bool rms)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate,
    autocast="float32",
)
def _normalize(
    outputs: Any, x: Any, weight: Any, bias: Any, dims: int, eps: float, rms: bool
) -> None:
    y, mean, rstd = outputs
    _launch(x, None, weight, bias, (y, None, mean, rstd), dims, eps, rms)


def _allocate_add(
    x: Any, residual: Any, weight: Any, bias: Any, dims: int, eps: float, rms: bool
) -> Any:
    array(residual=residual)
    same_kind(input=x, residual=residual)
    shaped(tuple(x.shape), residual=residual)
    same_dtype(residual=residual, input=x)
    return empty_like(x), empty_like(x), *_statistics(x, dims, rms)


@operation(
    "add_normalize(Tensor input, Tensor residual, Tensor? weight, Tensor? bias, int dims,"
    " float eps, bool rms) -> (Tensor, Tensor, Tensor, Tensor)",
    allocate=_allocate_add,
)
def _add_normalize(
    outputs: Any,
    x: Any,
    residual: Any,
    weight: Any,
    bias: Any,
    dims: int,
    eps: float,
    rms: bool,
) -> None:
    _launch(x, residual, weight, bias, outputs, dims, eps, rms)


def _launch(
    x: Any,
    residual: Any,
    weight: Any,
    bias: Any,
    outputs: tuple[Any, ...],
    dims: int,
    eps: float,
    rms: bool,
) -> None:
    rows, columns = rows_and_columns(x, dims)
    if rows * columns == 0:
        return
    x = x.reshape((rows, columns))
    residual = None if residual is None else residual.reshape((rows, columns))
    weight = None if weight is None else contiguous(weight)
    bias = None if bias is None else contiguous(bias)
    per_program, block = row_blocks(x, rows, columns)
    arrays = (x, residual, weight, bias, *outputs)
    layout = (*strides(x), *((0, 0) if residual is None else strides(residual)))
    if columns > block:
        long_rows_kernel[(rows,)](
            *arrays, columns, *layout, EPS=eps, RMS=rms, BLOCK=block, num_warps=16
        )
        return
    normalize_kernel[(tw.cdiv(rows, per_program),)](
        *arrays,
        rows,
        columns,
        *layout,
        EPS=eps,
        RMS=rms,
        LOAD_FIRST=rms and not on_cpu(x),
        ROWS=per_program,
        BLOCK=block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, ctx.dims, _, ctx.rms = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, *output[1:])


def _backward(ctx: Any, dy: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, mean, rstd = ctx.saved_tensors
    wanted = ctx.needs_input_grad[1:3]
    gradients = norm_backward(x, weight, mean, rstd, dy, None, ctx.dims, ctx.rms, wanted)
    return *gradients, None, None, None


_normalize.register_autograd(_backward, setup_context=_setup_context)


def _setup_context_add(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, _, weight, _, ctx.dims, _, ctx.rms = inputs
    ctx.set_materialize_grads(False)
    _, total, mean, rstd = output
    ctx.save_for_backward(total, weight, mean, rstd)


def _backward_add(ctx: Any, dy: Any, dsum: Any, *_: Any) -> tuple[Any, ...]:
    if dy is None:
        return dsum, dsum, None, None, None, None, None
    x, weight, mean, rstd = ctx.saved_tensors
    wanted = ctx.needs_input_grad[2:4]
    dx, *others = norm_backward(x, weight, mean, rstd, dy, dsum, ctx.dims, ctx.rms, wanted)
    return dx, dx, *others, None, None, None


_add_normalize.register_autograd(_backward_add, setup_context=_setup_context_add)
