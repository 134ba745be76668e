"""Histograms of floating-point numbers."""

import math
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    contiguous,
    converted,
    empty,
    is_tensor,
    on_cpu,
    torch,
)
from tilewright.kernels.checks import array, floating, plain
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator, accumulator_name

__all__ = ["histc"]

_BLOCK = 2048
_MOST_LOCAL_BINS = 4096  # that a program counts in before it adds to the counts of all


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Return how many elements are in each of `bins` equal parts of the range, ends included.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides.
        bins: The number of parts.
        min: Where the range starts.
        max: Where it ends; if it is `min`, the range is that of the elements.

    Returns:
        Counts of shape (bins,) and the dtype of `input`; there is no derivative.

    >>> import numpy as np
    >>> histc(np.array([0.1, 0.6, 0.9, 1.5]), 2, 0, 1)
    array([1., 2.])
    """
    array(input=input)
    plain("an integer", bins=bins)
    plain("a number", min=min, max=max)
    if bins < 1 or min > max:
        raise ValueError(f"`bins` is {bins}, `min` {min} and `max` {max}; there is no such range")
    return converted(
        _histc(input, bins, float(min), float(max)), str(input.dtype).removeprefix("torch.")
    )


@tw.jit
def histc_kernel(
    x_ptr,
    range_ptr,
    counts_ptr,
    size,
    bins,
    per_program,
    BINS: tl.constexpr,
    LOCAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Count a part of the elements; sums of integers are the same in any order."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    low, high = tl.load(range_ptr), tl.load(range_ptr + 1)
    start = tl.program_id(0).to(tl.int64) * per_program
    counts = tl.zeros((BINS,), tl.int32)
    for first in range(0, per_program, BLOCK):
        at = start + first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, at < size, float("nan")).to(DTYPE)
        is_inside = (x >= low) & (x <= high)
        place = tl.where(is_inside, (x - low) * bins / (high - low), 0.0).to(tl.int32)
        place = tl.minimum(place, bins - 1)
        if LOCAL:
            counts += tl.histogram(place, BINS, mask=is_inside)
        else:
            tl.atomic_add(counts_ptr + place, tl.full((BLOCK,), 1, tl.int32), is_inside)
    if LOCAL:
        place = tl.arange(0, BINS)
        tl.atomic_add(counts_ptr + place, counts, (place < bins) & (counts > 0))


def _allocate(x: Any, bins: int, low: float, high: float) -> Any:
    floating(input=x)
    return empty((bins,), x, "int32")


@operation("histc(Tensor input, int bins, float low, float high) -> Tensor", allocate=_allocate)
def _histc(counts: Any, x: Any, bins: int, low: float, high: float) -> None:
    counts[...] = 0
    size = math.prod(x.shape)
    if size == 0:
        return
    per_program = tw.cdiv(tw.cdiv(size, 4 if on_cpu(x) else 1024), _BLOCK) * _BLOCK
    local_bins = max(tw.next_power_of_2(bins), 16)
    is_local = local_bins <= _MOST_LOCAL_BINS
    histc_kernel[(tw.cdiv(size, per_program),)](
        contiguous(x),
        _range(x, low, high),
        counts,
        size,
        bins,
        per_program,
        BINS=local_bins if is_local else 16,
        LOCAL=is_local,
        BLOCK=_BLOCK,
    )


def _range(x: Any, low: float, high: float) -> Any:
    """Return the ends of the range, of elements if it is empty, and of one around a single one."""
    dtype = accumulator_name(x)
    if low == high and is_tensor(x):
        ends = torch.stack((x.min(), x.max())).to(getattr(torch, dtype))
        return ends + (ends[0] == ends[1]) * torch.tensor([-1, 1], device=x.device)
    if low == high:
        low, high = float(x.min()), float(x.max())
        low, high = (low - 1, high + 1) if low == high else (low, high)
    if is_tensor(x):
        return torch.tensor([low, high], dtype=getattr(torch, dtype), device=x.device)
    return np.array([low, high], dtype)
