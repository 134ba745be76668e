"""Reductions and scans along an axis, sorting and counting."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import (
    arithmetic,
    casts,
    comparison,
    ordering,
    reductions,
    shapes,
    values,
)
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Arange, Maximum, Minimum, Predicate

__all__ = [
    "argmax", "argmin", "argsort", "associative_scan", "bitonic_merge", "cumprod", "cumsum",
    "histogram", "max", "min", "reduce", "reduce_or", "sort", "sum", "topk", "xor_sum",
]  # fmt: skip

FP32, INT32, UINT32 = DTYPES["fp32"], DTYPES["i32"], DTYPES["u32"]


@tensor_member
@builtin
def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Combine all elements along `axis` (all of them when None) with a function of the language.

    `input` is a tile or a tuple of n tiles of one shape; `combine_fn` takes 2n scalars (the earlier
    elements, then the later ones), must be associative and keep the types. The order of the
    elements is kept, their grouping is not specified.

    >>> tl.reduce(tl.arange(0, 6).reshape(2, 3), 0, tl.maximum)
    tensor([3, 4, 5], i32[3])
    """
    return reductions.reduce(input, axis, combine_fn, keep_dims=keep_dims)


@tensor_member
@builtin
def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: bool = False) -> Any:
    """Return the running combination along `axis`, from the first element (the last, if `reverse`).

    `input` and `combine_fn` are as in `reduce`. Elements are combined one after the other, so the
    result is defined for functions that are not associative, too; GPUs need an associative one.

    >>> tl.associative_scan(tl.arange(1, 5), 0, tl.mul, reverse=True)
    tensor([24, 24, 12,  4], i32[4])
    """
    return reductions.scan(input, axis, combine_fn, reverse=reverse)


@builtin
def _add(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.add(x, y)


@builtin
def _multiply(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.multiply(x, y)


@builtin
def _xor(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.bit_xor(x, y)


@builtin
def _or(x: Tensor, y: Tensor) -> Tensor:
    return arithmetic.bit_or(x, y)


@builtin
def _larger(x: Tensor, y: Tensor) -> Tensor:
    return emit(Maximum, x, y)


@builtin
def _smaller(x: Tensor, y: Tensor) -> Tensor:
    return emit(Minimum, x, y)


def _numbers(name: str, x: Any) -> tuple[Tensor, DType]:
    tensor = values.as_tensor(x, name)
    if not isinstance(tensor.dtype, DType):
        values.fail(
            f"{name}: expected numbers, got {values.describe(tensor)}",
            hint="load what pointers point to first",
        )
    return tensor, tensor.dtype


def _integers(name: str, x: Any) -> Tensor:
    tensor, element = _numbers(name, x)
    if not element.is_int():
        values.fail(
            f"{name}: expected integers, got {values.describe(tensor)}",
            hint="convert it: x.to(tl.int32), or compare: x != 0",
        )
    return tensor


def _combined(name: str, x: Tensor, axis: Any, combine: Any, keep_dims: Any) -> Any:
    """Reduce with a function that does not care for the order of its arguments."""
    return reductions.reduce(x, axis, combine, keep_dims=keep_dims, name=name, commutative=True)


def _accumulated(x: Tensor, dtype: DType, combine: Callable[[Tensor], Any]) -> Tensor:
    """Combine in `dtype`; narrow floats in fp32, rounded once at the end."""
    is_narrow = dtype.is_floating() and dtype.primitive_bitwidth < 32
    result: Tensor = combine(casts.convert(x, FP32 if is_narrow else dtype))
    return casts.convert(result, dtype)


def _sum_dtype(name: str, element: DType, dtype: Any) -> DType:
    """Small integers are summed in 32 bits of their signedness, bools counted as unsigned."""
    if dtype is not None:
        chosen = values.as_dtype(dtype, name)
        if not isinstance(chosen, DType):
            values.fail(
                f"{name}: the dtype must be a number's, got {chosen}",
                hint="for instance dtype=tl.int32",
            )
        return chosen
    if element.is_int() and element.primitive_bitwidth < 32:
        return INT32 if element.is_int_signed() else UINT32
    return element


@tensor_member
@builtin
def sum(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Tensor:
    """Return the sum along `axis` (of all elements when None).

    With `keep_dims` the axis stays, with size 1. The result has `dtype`, or that of `input`;
    integers below 32 bits and bools become int32 or uint32. fp16, bf16 and fp8 are summed in fp32
    and rounded once.

    >>> tl.sum(tl.arange(0, 6).reshape(2, 3), axis=1)
    tensor([ 3, 12], i32[2])
    """
    tensor, element = _numbers("sum", input)
    return _accumulated(
        tensor,
        _sum_dtype("sum", element, dtype),
        lambda x: _combined("sum", x, axis, _add, keep_dims),
    )


@tensor_member
@builtin
def xor_sum(input: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Return the exclusive or of all integers along `axis` (of all when None).

    >>> tl.xor_sum(tl.arange(0, 4), axis=0)
    0
    """
    return _combined("xor_sum", _integers("xor_sum", input), axis, _xor, keep_dims)


@tensor_member
@builtin
def reduce_or(input: Any, axis: Any, keep_dims: bool = False) -> Any:
    """Return the bitwise or of all integers along `axis`.

    >>> tl.reduce_or(tl.arange(0, 4), axis=0)
    3
    """
    return _combined("reduce_or", _integers("reduce_or", input), axis, _or, keep_dims)


@tensor_member
@builtin
def max(
    input: Any,
    axis: Any = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Return the largest element along `axis` (of all when None); NaN is ignored.

    With `return_indices`, return the pair of values and int32 indices, of the first of equal
    elements or, without `return_indices_tie_break_left`, the last. Types below 32 bits become fp32
    or int32; with indices only bf16 does.

    >>> tl.max(tl.arange(0, 6).reshape(2, 3), axis=1)
    tensor([2, 5], i32[2])
    """
    if values.to_flag(return_indices, "max: return_indices"):
        left = values.to_flag(return_indices_tie_break_left, "max: the tie break")
        return _extremum("max", input, axis, left, keep_dims)
    return _combined("max", _widened("max", input), axis, _larger, keep_dims)


@tensor_member
@builtin
def min(
    input: Any,
    axis: Any = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Return the smallest element along `axis` (of all when None); otherwise as `max`.

    >>> tl.min(tl.arange(0, 6).reshape(2, 3), axis=1, return_indices=True)
    (tensor([0, 3], i32[2]), tensor([0, 0], i32[2]))
    """
    if values.to_flag(return_indices, "min: return_indices"):
        left = values.to_flag(return_indices_tie_break_left, "min: the tie break")
        return _extremum("min", input, axis, left, keep_dims)
    return _combined("min", _widened("min", input), axis, _smaller, keep_dims)


@tensor_member
@builtin
def argmax(input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> Tensor:
    """Return the int32 index of the largest element along `axis`; NaN counts only if all are NaN.

    Of equal elements the first counts or, without `tie_break_left`, the last.

    >>> tl.argmax(tl.arange(0, 4) % 3, axis=0)
    2
    """
    left = values.to_flag(tie_break_left, "argmax: tie_break_left")
    _, index = _extremum("argmax", input, axis, left, keep_dims)
    return index


@tensor_member
@builtin
def argmin(input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> Tensor:
    """Return the int32 index of the smallest element along `axis`; otherwise as `argmax`.

    >>> tl.argmin(tl.arange(0, 4) % 3, axis=0, tie_break_left=False)
    3
    """
    left = values.to_flag(tie_break_left, "argmin: tie_break_left")
    _, index = _extremum("argmin", input, axis, left, keep_dims)
    return index


def _widened(name: str, x: Any) -> Tensor:
    tensor, element = _numbers(name, x)
    if element.primitive_bitwidth >= 32:
        return tensor
    return casts.convert(tensor, FP32 if element.is_floating() else INT32)


def _extremum(
    name: str, x: Any, axis: Any, tie_break_left: bool, keep_dims: Any
) -> tuple[Tensor, Tensor]:
    tensor, element = _numbers(name, x)
    if element is DTYPES["bf16"]:
        tensor = casts.convert(tensor, FP32)
    shape = tensor.shape
    if axis is None:
        tensor, number = shapes.reshape(tensor, (tensor.numel,)), 0
    else:
        number = shapes.normalized_axis(axis, len(shape), name)
    size = tensor.shape[number]
    column = [size if i == number else 1 for i in range(len(tensor.shape))]
    index = shapes.broadcast_to(shapes.reshape(emit(Arange, 0, size), column), tensor.shape)
    combine = _better("max" in name, tie_break_left)
    results = reductions.reduce((tensor, index), number, combine, name=name, commutative=True)
    if values.to_flag(keep_dims, f"{name}: keep_dims"):
        kept = (number,) if axis is not None else tuple(range(builtins.max(1, len(shape))))
        results = tuple(shapes.expand_dims(r, kept) for r in results)
    extremum, place = results
    return extremum, place


def _better(is_larger: bool, tie_break_left: bool) -> Any:
    """Return the combine function of a total order, in which NaN is worse than any number.

    Being total, it gives the same element in any grouping and order.
    """
    beats = Predicate.GT if is_larger else Predicate.LT
    nearer = Predicate.LT if tie_break_left else Predicate.GT

    @builtin
    def combine(x: Tensor, i: Tensor, y: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        better = comparison.compare(beats, x, y)
        ties = comparison.compare(Predicate.EQ, x, y)
        if x.dtype.is_floating():
            x_is_nan = comparison.compare(Predicate.NE, x, x)
            y_is_nan = comparison.compare(Predicate.NE, y, y)
            better |= y_is_nan & ~x_is_nan
            ties |= x_is_nan & y_is_nan
        keep = better | (ties & comparison.compare(nearer, i, j))
        return comparison.where(keep, x, y), comparison.where(keep, i, j)

    return combine


@tensor_member
@builtin
def cumsum(input: Any, axis: Any = 0, reverse: bool = False, dtype: Any = None) -> Tensor:
    """Return the running sum along `axis`, from the end if `reverse`, in the shape of `input`.

    Types are as in `sum` (bools count), but bf16 becomes fp32.

    >>> tl.cumsum(tl.arange(0, 5))
    tensor([ 0,  1,  3,  6, 10], i32[5])
    """
    tensor, element = _numbers("cumsum", input)
    element = FP32 if element is DTYPES["bf16"] else element
    return _accumulated(
        tensor,
        _sum_dtype("cumsum", element, dtype),
        lambda x: reductions.scan(x, axis, _add, reverse=reverse, name="cumsum"),
    )


@tensor_member
@builtin
def cumprod(input: Any, axis: Any = 0, reverse: bool = False) -> Tensor:
    """Return the running product along `axis`, from the end if `reverse`; bf16 becomes fp32.

    >>> tl.cumprod(tl.arange(1, 5))
    tensor([ 1,  2,  6, 24], i32[4])
    """
    tensor, element = _numbers("cumprod", input)
    return _accumulated(
        tensor,
        FP32 if element is DTYPES["bf16"] else element,
        lambda x: reductions.scan(x, axis, _multiply, reverse=reverse, name="cumprod"),
    )


@tensor_member
@builtin
def sort(x: Any, dim: Any = None, descending: Any = 0) -> Tensor:
    """Sort along `dim` (the last axis), rising or `descending`; NaN counts as the largest value.

    >>> tl.sort(tl.arange(0, 5) % 3)
    tensor([0, 0, 1, 1, 2], i32[5])
    """
    return reductions.sort(values.as_tensor(x, "sort"), dim, descending=descending)


@tensor_member
@builtin
def argsort(x: Any, dim: Any = None, descending: Any = False) -> Tensor:
    """Return the int32 indices that sort along `dim` (the last axis), in the order of `sort`.

    Equal elements (also 0.0 and -0.0) keep their order, and so do NaNs.

    >>> tl.argsort(tl.arange(0, 5) % 3)
    tensor([0, 3, 1, 4, 2], i32[5])
    """
    return ordering.argsort(values.as_tensor(x, "argsort"), dim, descending=descending)


@builtin
def bitonic_merge(x: Any, dim: Any = None, descending: Any = 0) -> Tensor:
    """Sort elements along `dim` that rise and then fall (or the other way round)."""
    tensor = values.as_tensor(x, "bitonic_merge")
    return reductions.sort(tensor, dim, descending=descending, name="bitonic_merge")


@tensor_member
@builtin
def topk(x: Any, k: Any, dim: Any = None, descending: Any = True) -> Tensor:
    """Return the `k` largest elements along `dim` (the last axis), largest first.

    The smallest, smallest first, if not `descending`. `k` is a compile-time int. Types below 32
    bits become fp32 or int32 unless `k` is the whole axis.

    >>> tl.topk(tl.arange(0, 5) % 3, 2)
    tensor([2, 1], i32[2])
    """
    tensor, _ = _numbers("topk", x)
    axis = shapes.normalized_axis(-1 if dim is None else dim, len(tensor.shape), "topk")
    if values.to_constant(k, "topk: k") != tensor.shape[axis]:
        tensor = _widened("topk", tensor)
    return reductions.top(tensor, k, axis, descending=descending)


@tensor_member
@builtin
def histogram(input: Any, num_bins: int | constexpr, mask: Any = None) -> Tensor:
    """Count how often each of 0, ..., `num_bins` - 1 occurs in a 1-d tile of integers (int32).

    Other values, and lanes where `mask` is false, are not counted.

    >>> tl.histogram(tl.arange(0, 5) % 3, 4)
    tensor([2, 2, 1, 0], i32[4])
    """
    tensor = values.as_tensor(input, "histogram")
    lanes = None
    if mask is not None:
        lanes = shapes.broadcast_to(values.as_tensor(mask, "histogram: the mask"), tensor.shape)
    return reductions.histogram(tensor, num_bins, lanes)
