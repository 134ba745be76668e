"""Reductions and scans with a combine function, and sorting."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.regions import element_block
from tilewright.frontend.semantic.shapes import (
    expand_dims,
    move_axis_last,
    normalized_axis,
    permute,
    reshape,
    take,
)
from tilewright.frontend.semantic.values import as_tensor, describe, fail, to_constant, to_flag
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Block
from tilewright.ir.types import DType, TileType
from tilewright.ops import Arange, Histogram, Reduce, Scan, Sort

__all__ = ["histogram", "reduce", "scan", "sort", "top"]


def _combine_block(name: str, function: Any, inputs: tuple[Tensor, ...]) -> Block:
    """Return a region over the earlier element of each input, then the later ones."""
    types = [TileType(x.dtype) for x in inputs]
    return element_block(name, function, [*types, *types], len(types))


def _inputs(name: str, x: Any) -> tuple[Tensor, ...]:
    items = x if isinstance(x, tuple | list) else (x,)
    tensors = tuple(as_tensor(t, name) for t in items)
    if len({t.shape for t in tensors}) != 1:
        shown = ", ".join(describe(t) for t in tensors)
        fail(
            f"{name}: the inputs must have one shape, got {shown or 'none'}",
            hint="broadcast them: tl.broadcast(x, y)",
        )
    return tensors


def _result(x: Any, results: tuple[Tensor, ...]) -> Any:
    return results if isinstance(x, tuple | list) else results[0]


def reduce(
    x: Any,
    axis: Any,
    combine: Any,
    *,
    keep_dims: Any = False,
    name: str = "reduce",
    commutative: bool = False,
) -> Any:
    """Combine all elements along `axis` (all axes when None) of a tile, or of several at once."""
    inputs = _inputs(name, x)
    shape = inputs[0].shape
    if axis is None:
        inputs = tuple(reshape(t, (t.numel,)) for t in inputs)
        number = 0
    else:
        number = normalized_axis(axis, len(shape), name)
    block = _combine_block(name, combine, inputs)
    results = emit_all(Reduce, inputs, number, block, commutative=commutative)
    if to_flag(keep_dims, f"{name}: keep_dims"):
        kept = range(len(shape)) if axis is None else (number,)
        results = tuple(expand_dims(r, tuple(kept)) if shape else r for r in results)
    return _result(x, results)


def scan(
    x: Any, axis: Any, combine: Any, *, reverse: Any = False, name: str = "associative_scan"
) -> Any:
    """Return the running combination along `axis` of a tile, or of several at once."""
    inputs = _inputs(name, x)
    number = normalized_axis(axis, len(inputs[0].shape), name)
    block = _combine_block(name, combine, inputs)
    backward = to_flag(reverse, f"{name}: reverse")
    return _result(x, emit_all(Scan, inputs, number, block, reverse=backward))


def sort(x: Tensor, dim: Any = None, *, descending: Any = False, name: str = "sort") -> Tensor:
    """Sort along `dim` (the last axis); NaN counts as the largest value."""
    rank = len(x.shape)
    axis = rank - 1 if dim is None else normalized_axis(dim, rank, name)
    falling = to_flag(descending, f"{name}: descending")
    if axis != rank - 1:
        extension(f"{name} along another axis than the last", "permute first, and back after it")
    if axis == rank - 1:
        return emit(Sort, x, falling)
    moved, inverse = move_axis_last(x, axis)
    return permute(emit(Sort, moved, falling), inverse)


def top(x: Tensor, k: Any, dim: Any = None, *, descending: Any = True) -> Tensor:
    """Return the first `k` elements along `dim` after sorting."""
    rank = len(x.shape)
    count = to_constant(k, "topk: k")
    axis = rank - 1 if dim is None else normalized_axis(dim, rank, "topk")
    if rank and not 0 < count <= x.shape[axis]:
        fail(
            f"topk: k must be between 1 and {x.shape[axis]}, got {count}",
            hint="ask for at most what the axis has",
        )
    ordered = sort(x, axis, descending=descending, name="topk")
    return ordered if count == x.shape[axis] else take(ordered, emit(Arange, 0, count), axis)


def histogram(x: Tensor, num_bins: Any, mask: Tensor | None) -> Tensor:
    """Count how often each of 0, ..., `num_bins` - 1 occurs."""
    if not (isinstance(x.dtype, DType) and x.dtype.is_int()):
        fail(f"histogram: expected integers, got {describe(x)}", hint="convert it: x.to(tl.int32)")
    return emit(Histogram, to_constant(num_bins, "histogram: num_bins"), x, mask)
