"""Products of rows with the matrices of their groups, as in mixtures of experts."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    descriptor_strides,
    empty,
    on_cpu,
    product_precision,
)
from tilewright.kernels.checks import array, floating, integral, rising, same_kind, shaped
from tilewright.kernels.matmul.grouped_kernels import group_gradients_kernel, grouped_kernel
from tilewright.kernels.matmul.operator import itemsize_of, oriented
from tilewright.kernels.operation import operation, under_autocast

__all__ = ["grouped_mm"]


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any) -> Any:
    """Return the rows of `mat_a`, each times the matrix of its group; differentiable.

    Args:
        mat_a: (rows, K) of fp16, bf16, fp32 or fp64, of any strides, sorted by groups.
        mat_b: (groups, K, N), of the same dtype.
        offs: (groups,) of int32: where the rows of each group end; a group may have none. They do
            not fall, and are at most `rows`: on a GPU, and in compiled functions, that is not
            checked, and rows that are not there are left out.

    Returns:
        An array (rows, N) of the dtype of `mat_a`; 0 for rows beyond the last group.

    Source: Gale et al., "MegaBlocks", 2022.

    >>> import numpy as np
    >>> x, weight = np.ones((3, 4), np.float32), np.ones((2, 4, 2), np.float32)
    >>> grouped_mm(x, weight, offs=np.array([1, 3], np.int32)).shape
    (3, 2)
    """
    mat_a, mat_b = under_autocast((mat_a, mat_b), "lower")
    array(mat_a=mat_a, mat_b=mat_b, offs=offs)
    floating(mat_a=mat_a, mat_b=mat_b)
    integral(offs=offs)
    same_kind(mat_a=mat_a, mat_b=mat_b, offs=offs)
    if mat_a.dtype != mat_b.dtype:
        raise TypeError(f"`mat_a` is of {mat_a.dtype}, and `mat_b` of {mat_b.dtype}")
    if mat_a.ndim != 2 or mat_b.ndim != 3:
        raise ValueError("`mat_a` of two axes and `mat_b` of three are needed")
    shaped((mat_b.shape[0], mat_a.shape[1], mat_b.shape[2]), mat_b=mat_b)
    shaped((mat_b.shape[0],), offs=offs)
    rising(mat_a.shape[0], offs=offs)
    return _grouped(mat_a, mat_b, contiguous(offs))


def _blocks(x: Any) -> dict[str, int]:
    """Return the blocks of both kernels, and the warps and stages."""
    itemsize = itemsize_of(x)
    if on_cpu(x):
        shape = (128, 128, 128, 4, 1)
    elif itemsize == 2:
        shape = (128, 256, 64, 8, 4)
    else:
        shape = (64, 64, 32, 4, 2)
    return dict(
        zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"), shape, strict=True)
    )


def _allocate(x: Any, weight: Any, ends: Any) -> Any:
    return empty((x.shape[0], weight.shape[2]), x)


@operation("grouped_mm(Tensor x, Tensor weight, Tensor ends) -> Tensor", allocate=_allocate)
def _grouped(out: Any, x: Any, weight: Any, ends: Any) -> None:
    (rows, inner), (groups, _, columns) = x.shape, weight.shape
    if 0 in {rows, inner, groups, columns}:
        out[...] = 0
        return
    (left, is_left_transposed), (right, is_right_transposed) = oriented(x[None]), oriented(weight)
    blocks = _blocks(x)
    # Each group may leave a block of its last rows, and so may what comes after all of them.
    most_tiles = rows // blocks["BLOCK_M"] + groups + 1
    grouped_kernel[tw.cdiv(columns, blocks["BLOCK_N"]), most_tiles](
        left,
        right,
        out,
        ends,
        (descriptor_strides(left), descriptor_strides(right)),
        (rows, columns, inner, groups),
        GROUPS=tw.next_power_of_2(groups),
        A_TRANSPOSED=is_left_transposed,
        B_TRANSPOSED=is_right_transposed,
        PRECISION=product_precision(x),
        **blocks,
    )


def _allocate_gradients(x: Any, out_gradient: Any, ends: Any) -> Any:
    return empty((ends.shape[0], x.shape[1], out_gradient.shape[1]), x)


@operation(
    "grouped_mm_gradients(Tensor x, Tensor out_gradient, Tensor ends) -> Tensor",
    allocate=_allocate_gradients,
)
def _group_gradients(out: Any, x: Any, out_gradient: Any, ends: Any) -> None:
    if 0 in out.shape or x.shape[0] == 0:
        out[...] = 0
        return
    (left, is_left_transposed), (right, is_right_transposed) = map(
        oriented, (x[None], out_gradient[None])
    )
    (rows, inner), columns = x.shape, out.shape[2]
    blocks = _blocks(x)
    grid = (
        tw.cdiv(inner, blocks["BLOCK_M"]) * tw.cdiv(columns, blocks["BLOCK_N"]),
        out.shape[0],
    )
    group_gradients_kernel[grid](
        left,
        right,
        out,
        ends,
        (descriptor_strides(left), descriptor_strides(right)),
        (rows, columns, inner, out.shape[0]),
        A_TRANSPOSED=is_left_transposed,
        B_TRANSPOSED=is_right_transposed,
        PRECISION=product_precision(x),
        **blocks,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    x, weight, ends = ctx.saved_tensors
    needs_x, needs_weight, _ = ctx.needs_input_grad
    return (
        _grouped(gradient, weight.mT, ends) if needs_x else None,
        _group_gradients(x, gradient, ends) if needs_weight else None,
        None,
    )


_grouped.register_autograd(_backward, setup_context=_setup_context)
