"""Weights of which two of each four neighbours are there (2:4), and products with them.

They take 9/16 of the memory: the two values, and a number from 0 to 3 for the place of each, those
of two groups in a byte. A kernel reads them so, and multiplies what they stand for.
"""

from typing import Any

import numpy as np

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    descriptor_strides,
    empty,
    for_descriptors,
    is_tensor,
    itemsize,
    on_cpu,
    permuted,
    product_precision,
    torch,
)
from tilewright.kernels.checks import (
    array,
    floating,
    of_bytes,
    ranked,
    same_dtype,
    same_kind,
    shaped,
)
from tilewright.kernels.matmul.blocks import steps_for
from tilewright.kernels.matmul.epilogue import Epilogue
from tilewright.kernels.matmul.operator import add_parts
from tilewright.kernels.matmul.product import Sizes
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator_name
from tilewright.kernels.semi_sparse_kernels import (
    semi_sparse_cpu_kernel,
    semi_sparse_few_rows_kernel,
    semi_sparse_linear_kernel,
)

__all__ = ["compress_semi_sparse", "expand_semi_sparse", "semi_sparse_linear"]

_FEW_ROWS = 64
_BYTES = 32  # of places, that the CPU takes at once


def compress_semi_sparse(weight: Any) -> tuple[Any, Any]:
    """Return (values, places) of the two largest of each four neighbours in a row.

    Args:
        weight: Array (N, K) of fp16, bf16, fp32 or fp64; 8 divides K.

    Returns:
        The values (N, K / 2), differentiable, and their places (N, K / 8) of uint8.

    >>> import numpy as np
    >>> values, places = compress_semi_sparse(np.array([[0, 3, 0, 4, 5, 0, 0, 6.0]]))
    >>> values, places
    (array([[3., 4., 5., 6.]]), array([[205]], dtype=uint8))
    """
    array(weight=weight)
    floating(weight=weight)
    if weight.ndim != 2 or weight.shape[1] % 8:
        raise ValueError(f"`weight` has the shape {tuple(weight.shape)}; (N, K), 8 divides K")
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // 4, 4)
    if is_tensor(weight):
        largest = groups.detach().abs().topk(2, -1).indices.sort(-1).values
        values = groups.gather(-1, largest)
        largest = largest.to(torch.uint8)
    else:
        largest = np.sort(np.argsort(-np.abs(groups), -1, kind="stable")[..., :2], -1)
        values = np.take_along_axis(groups, largest, -1)
        largest = largest.astype(np.uint8)
    nibbles = (largest[..., 0] | (largest[..., 1] << 2)).reshape(rows, columns // 8, 2)
    return values.reshape(rows, columns // 2), nibbles[..., 0] | (nibbles[..., 1] << 4)


def expand_semi_sparse(values: Any, places: Any) -> Any:
    """Return the matrix that `compress_semi_sparse` has made values and places of; differentiable.

    Args:
        values: Array (N, K / 2) of fp16, bf16, fp32 or fp64.
        places: Array (N, K / 8) of uint8.

    Returns:
        Array (N, K) of the dtype of `values`, 0 where there is no value.

    >>> import numpy as np
    >>> expand_semi_sparse(np.array([[3.0, 4, 5, 6]]), np.array([[205]], np.uint8))
    array([[0., 3., 0., 4., 5., 0., 0., 6.]])
    """
    _check(values, places)
    rows, half = values.shape
    index, pairs = _indices(places), values.reshape(rows, half // 2, 2)
    if is_tensor(values):
        groups = values.new_zeros((rows, half // 2, 4)).scatter(-1, index, pairs)
    else:
        groups = np.zeros((rows, half // 2, 4), values.dtype)
        np.put_along_axis(groups, index, pairs, -1)
    return groups.reshape(rows, 2 * half)


def semi_sparse_linear(input: Any, values: Any, places: Any, bias: Any = None) -> Any:
    """Return input weight^T + bias, of a weight that is kept by values and places; differentiable.

    Args:
        input: Array (..., K) of fp16, bf16, fp32 or fp64.
        values: Array (N, K / 2) of that dtype: see `compress_semi_sparse`.
        places: Array (N, K / 8) of uint8.
        bias: Array (N), or None.

    Returns:
        Array (..., N).

    >>> import numpy as np
    >>> values, places = compress_semi_sparse(np.eye(8, dtype=np.float32))
    >>> semi_sparse_linear(np.arange(8, dtype=np.float32)[None], values, places)
    array([[0., 1., 2., 3., 4., 5., 6., 7.]], dtype=float32)
    """
    array(input=input)
    floating(input=input, bias=bias)
    _check(values, places)
    same_kind(input=input, values=values, places=places, bias=bias)
    same_dtype(input=input, values=values, bias=bias)
    ranked(1, None, input=input)
    (rows, half), batch = values.shape, tuple(input.shape[:-1])
    shaped((*batch, 2 * half), input=input)
    shaped((rows,), bias=bias)
    y = _linear(input.reshape(-1, 2 * half), values, places).reshape(*batch, rows)
    return y if bias is None else y + bias


def _check(values: Any, places: Any) -> None:
    array(values=values, places=places)
    floating(values=values)
    of_bytes(places=places)
    same_kind(values=values, places=places)
    if values.ndim != 2 or values.shape[1] % 4:
        raise ValueError(f"`values` has the shape {tuple(values.shape)}; (N, K / 2), 8 divides K")
    shaped((values.shape[0], values.shape[1] // 4), places=places)


def _indices(places: Any) -> Any:
    """Return the place of each value among four, (N, K / 4, 2)."""
    rows, count = places.shape
    shifts = [0, 2, 4, 6]
    if is_tensor(places):
        four = torch.tensor(shifts, device=places.device, dtype=torch.uint8)
        return ((places.unsqueeze(-1) >> four) & 3).to(torch.int64).reshape(rows, 2 * count, 2)
    return ((places[..., None] >> np.array(shifts, np.uint8)) & 3).reshape(rows, 2 * count, 2)


def _allocate(x: Any, values: Any, places: Any) -> Any:
    return empty((x.shape[0], values.shape[0]), x)


@operation(
    "semi_sparse_linear(Tensor x, Tensor values, Tensor places) -> Tensor",
    allocate=_allocate,
    autocast="lower",
)
def _linear(out: Any, x: Any, values: Any, places: Any) -> None:
    rows, columns = out.shape
    if rows * columns == 0:
        return
    depth = x.shape[1]
    if on_cpu(x):
        _by_values(out, x, values, places)
        return
    if itemsize(x) == 2 and rows <= _FEW_ROWS and depth % 32 == 0:
        _few_rows(out, x, values, places)
        return
    tile = min(tw.next_power_of_2(max(rows, 16)), 128)
    semi_sparse_linear_kernel[(tw.cdiv(columns, 64), tw.cdiv(rows, tile))](
        contiguous(x),
        contiguous(values),
        contiguous(places),
        out,
        rows,
        columns,
        depth,
        ROWS=tile,
        COLUMNS=64,
        DEPTH=min(tw.next_power_of_2(max(depth, 16)), 128),
        PRECISION=product_precision(x),
        num_warps=4,
        num_stages=3,
    )


def _by_values(out: Any, x: Any, values: Any, places: Any) -> None:
    """Multiply on the CPU, where only the values that there are take time."""
    rows, depth = x.shape
    block = min(max(tw.next_power_of_2(rows), 8), 32)
    blocks, steps = tw.cdiv(rows, block), tw.cdiv(depth, 8 * _BYTES)
    padded = empty((blocks * block, steps * 8 * _BYTES), x, accumulator_name(x))
    padded[:rows, :depth], padded[:rows, depth:], padded[rows:] = x, 0, 0
    semi_sparse_cpu_kernel[(tw.cdiv(out.shape[1], 128), blocks)](
        permuted(padded.reshape(blocks, block, -1), (0, 2, 1)),
        contiguous(values),
        contiguous(places),
        out,
        rows,
        out.shape[1],
        depth,
        ROWS=block,
        COLUMNS=128,
        BYTES=_BYTES,
    )


def _few_rows(out: Any, x: Any, values: Any, places: Any) -> None:
    """Multiply by pairs of values as they are read, the inner axis in parts."""
    (rows, columns), depth = out.shape, x.shape[1]
    block_rows, block_columns, block_depth, stages = max(16, tw.next_power_of_2(rows)), 128, 128, 4
    tiles, steps = tw.cdiv(columns, block_columns), tw.cdiv(depth, block_depth)
    staged = stages * block_depth * (block_columns + block_columns // 8 + 2 * block_rows)
    chunk = steps_for(x, tiles, steps, staged)
    parts = tw.cdiv(steps, chunk)
    words = torch.int32 if is_tensor(x) else np.int32
    arrays = [for_descriptors(contiguous(y)) for y in (x, values, places)]
    arrays[1:] = [y.view(words) for y in arrays[1:]]
    sums = empty((parts, rows, columns), x, "float32")
    semi_sparse_few_rows_kernel[tiles, parts](
        *arrays,
        sums,
        tuple(descriptor_strides(y)[0] for y in arrays),
        (rows, columns, depth),
        chunk,
        BLOCK_M=block_rows,
        BLOCK_N=block_columns,
        BLOCK_K=block_depth,
        num_warps=4,
        num_stages=stages,
    )
    length = chunk * block_depth
    add_parts(sums, out, Sizes(1, rows, columns, depth, parts, length, parts), Epilogue(), 1.0, "")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    x, values, places = ctx.saved_tensors
    dx = dvalues = None
    if ctx.needs_input_grad[0]:
        dx = dy @ expand_semi_sparse(values, places)
    if ctx.needs_input_grad[1]:
        dweight = (dy.mT @ x).reshape(values.shape[0], -1, 4)
        dvalues = dweight.gather(-1, _indices(places)).reshape(values.shape)
    return dx, dvalues, None


_linear.register_autograd(_backward, setup_context=_setup_context)
