"""The standard library: what is written in the language itself, beside the reductions."""

# The parameters of functions in the language have the types of their arguments, and a
# `constexpr` parameter takes plain values.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="assignment, redundant-expr, arg-type"

from __future__ import annotations

from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import device_function
from tilewright.frontend.tensor import tensor_member
from tilewright.language.creation import zeros, zeros_like
from tilewright.language.elementwise import minimum
from tilewright.language.math import cdiv, exp, fdiv
from tilewright.language.reduction import (
    argmax,
    argmin,
    bitonic_merge,
    cumprod,
    cumsum,
    max,
    min,
    reduce_or,
    sort,
    sum,
    topk,
    xor_sum,
)
from tilewright.language.shape import flip, interleave, ravel

__all__ = [
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "flip", "interleave", "max",
    "min", "ravel", "reduce_or", "sigmoid", "softmax", "sort", "sum", "swizzle2d", "topk",
    "xor_sum", "zeros", "zeros_like",
]  # fmt: skip


@builtin
def _log2(n: int) -> int:
    """Return the logarithm of a power of two, at compile time; kernels of Inductor ask for it."""
    return n.bit_length() - 1


@tensor_member
@device_function
def sigmoid(x):
    """Return 1 / (1 + exp(-x)).

    >>> tl.sigmoid(tl.zeros((2,), tl.float32))
    tensor([0.5, 0.5], fp32[2])
    """
    return fdiv(1, 1 + exp(-x))


@tensor_member
@device_function
def softmax(
    x, dim: constexpr = None, keep_dims: constexpr = False, ieee_rounding: constexpr = False
):
    """Return exp(x) divided by its sum along `dim` (the first axis), in the shape of `x`.

    The largest element is subtracted first, so nothing overflows.

    >>> tl.softmax(tl.zeros((4,), tl.float32))
    tensor([0.25, 0.25, 0.25, 0.25], fp32[4])
    """
    axis: constexpr = 0 if dim is None else dim
    shifted = exp(x - max(x, axis, keep_dims=True))
    return fdiv(shifted, sum(shifted, axis, keep_dims=True), ieee_rounding)


@device_function
def swizzle2d(i, j, size_i, size_j, size_g):
    """Return where place (i, j) of a row-major grid goes when groups of rows go column by column.

    In a grid of `size_i` x `size_j`, each `size_g` rows are walked down their columns, which keeps
    neighbouring programs on the same columns. All are integers; `i` and `j` scalars or tiles.

    >>> tl.swizzle2d(tl.arange(0, 4) // 2, tl.arange(0, 4) % 2, 2, 2, 2)
    (tensor([0, 1, 0, 1], i32[4]), tensor([0, 0, 1, 1], i32[4]))
    """
    place = i * size_j + j
    places_per_group = size_g * size_j
    first_row = place // places_per_group * size_g
    rows = minimum(size_i - first_row, size_g)  # the last group may have fewer
    place_in_group = place % places_per_group
    return first_row + place_in_group % rows, place_in_group // rows
