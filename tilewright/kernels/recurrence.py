"""Linear recurrences along one dimension, as in minGRU, S5 or Mamba, by scans."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty_like, folded, strides
from tilewright.kernels.checks import array, dimension, floating, same_kind, shaped
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["linear_recurrence"]

_configs = [
    tw.Config({"STEPS": steps, "BLOCK": block}, num_warps=warps)
    for steps, block, warps in [(16, 64, 4), (32, 32, 4), (64, 32, 4), (64, 32, 8), (128, 16, 4)]
]


def linear_recurrence(a: Any, b: Any, initial: Any = None, dim: int = 1) -> Any:
    """Return h, where h[t] = a[t] * h[t - 1] + b[t] along `dim`; differentiable.

    Args:
        a: Array of fp16, bf16, fp32 or fp64, of any shape and strides: how much is kept.
        b: Array of that shape and dtype: what is added.
        initial: h[-1], of that shape without `dim`; zeros if None.
        dim: The dimension of time.

    Returns:
        An array of the shape and dtype of `b`; sums are in fp32 (fp64).

    Source: Blelloch, "Prefix sums and their applications", 1990; Feng et al., "Were RNNs all we
    needed?", 2024.

    >>> import numpy as np
    >>> a, b = np.full((1, 4), 0.5, np.float32), np.ones((1, 4), np.float32)
    >>> linear_recurrence(a, b)
    array([[1.   , 1.5  , 1.75 , 1.875]], dtype=float32)
    """
    array(a=a, b=b)
    floating(a=a, b=b, initial=initial)
    same_kind(a=a, b=b, initial=initial)
    shaped(tuple(b.shape), a=a)
    dim = dimension(b, dim)
    shape = tuple(b.shape)
    shaped(shape[:dim] + shape[dim + 1 :], initial=initial)
    if a.dtype != b.dtype:
        raise TypeError(f"`a` is of {a.dtype}, and `b` of {b.dtype}")
    return _linear_recurrence(a, b, initial, dim)


@tw.jit
def joined(a, b, next_a, next_b):
    """Return one step that does what two do, one after another."""
    return a * next_a, next_a * b + next_b


@tw.jit
def scanned(a, b, carried, STEPS: tl.constexpr):
    """Return the states of `STEPS` steps after the state `carried`, and the last of them."""
    kept, added = tl.associative_scan((a, b), 0, joined)
    h = kept * carried[None, :] + added
    is_last = tl.arange(0, STEPS)[:, None] == STEPS - 1
    return h, tl.sum(tl.where(is_last, h, 0.0), axis=0)


def _default(arguments: dict[str, Any]) -> tw.Config:
    if arguments["after"] == 1:
        return tw.Config({"STEPS": 512, "BLOCK": 1})
    return tw.Config({"STEPS": 64, "BLOCK": 32}, num_warps=8)


@tw.autotune(_configs, key=["steps", "after"], default=_default)
@tw.jit
def linear_recurrence_kernel(
    a_ptr,
    b_ptr,
    initial_ptr,
    h_ptr,
    steps,
    after,
    a_before_stride,
    a_step_stride,
    a_after_stride,
    b_before_stride,
    b_step_stride,
    b_after_stride,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """States of `BLOCK` recurrences, `STEPS` steps at a time."""
    DTYPE: tl.constexpr = accumulator(b_ptr.dtype.element_ty)
    before, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    is_column = column < after
    a_ptrs = a_ptr + before * a_before_stride + column[None, :] * a_after_stride
    b_ptrs = b_ptr + before * b_before_stride + column[None, :] * b_after_stride
    h_ptrs = h_ptr + before * steps * after + column[None, :]
    carried = tl.zeros((BLOCK,), DTYPE)
    if initial_ptr is not None:
        carried = tl.load(initial_ptr + before * after + column, is_column, 0.0).to(DTYPE)
    for first in range(0, steps, STEPS):
        t = (first + tl.arange(0, STEPS))[:, None].to(tl.int64)
        mask = (t < steps) & is_column[None, :]
        a = tl.load(a_ptrs + t * a_step_stride, mask, 1.0).to(DTYPE)
        b = tl.load(b_ptrs + t * b_step_stride, mask, 0.0).to(DTYPE)
        h, carried = scanned(a, b, carried, STEPS)
        tl.store(h_ptrs + t * after, h, mask)


@tw.autotune(_configs, key=["steps", "after"], default=_default)
@tw.jit
def linear_recurrence_backward_kernel(
    a_ptr,
    initial_ptr,
    h_ptr,
    dh_ptr,
    da_ptr,
    db_ptr,
    dinitial_ptr,
    steps,
    after,
    a_before_stride,
    a_step_stride,
    a_after_stride,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients, which are a recurrence themselves, from the last step on."""
    DTYPE: tl.constexpr = accumulator(h_ptr.dtype.element_ty)
    before, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    is_column = column < after
    a_ptrs = a_ptr + before * a_before_stride + column[None, :] * a_after_stride
    start = before * steps * after + column[None, :]
    carried = tl.zeros((BLOCK,), DTYPE)
    for first in range(0, steps, STEPS):
        t = steps - 1 - (first + tl.arange(0, STEPS))[:, None].to(tl.int64)
        mask = (t >= 0) & is_column[None, :]
        # What a state hands on is kept by the step behind it; nothing is behind the last.
        a = tl.load(a_ptrs + (t + 1) * a_step_stride, mask & (t + 1 < steps), 1.0).to(DTYPE)
        dh = tl.load(dh_ptr + start + t * after, mask, 0.0).to(DTYPE)
        db, carried = scanned(a, dh, carried, STEPS)
        old = tl.load(h_ptr + start + (t - 1) * after, mask & (t > 0), 0.0).to(DTYPE)
        if initial_ptr is not None:
            own = tl.load(initial_ptr + before * after + column, is_column, 0.0).to(DTYPE)
            old = tl.where(t == 0, own[None, :], old)
        tl.store(da_ptr + start + t * after, db * old, mask)
        tl.store(db_ptr + start + t * after, db, mask)
    if initial_ptr is not None:
        a = tl.load(a_ptr + before * a_before_stride + column * a_after_stride, is_column, 0.0)
        tl.store(dinitial_ptr + before * after + column, carried * a.to(DTYPE), is_column)


def _grid(before: int, after: int) -> Any:
    return lambda meta: (tw.cdiv(after, meta["BLOCK"]), before)


def _allocate(a: Any, b: Any, initial: Any, dim: int) -> Any:
    return empty_like(b)


@operation(
    "linear_recurrence(Tensor a, Tensor b, Tensor? initial, int dim) -> Tensor", allocate=_allocate
)
def _linear_recurrence(h: Any, a: Any, b: Any, initial: Any, dim: int) -> None:
    if 0 in h.shape:
        return
    a, b = folded(a, dim), folded(b, dim)
    before, steps, after = b.shape
    linear_recurrence_kernel[_grid(before, after)](
        a,
        b,
        None if initial is None else contiguous(initial),
        h,
        steps,
        after,
        *strides(a),
        *strides(b),
    )


def _allocate_backward(a: Any, initial: Any, h: Any, dh: Any, dim: int) -> tuple[Any, Any, Any]:
    shape = tuple(h.shape)
    return (
        empty_like(h),
        empty_like(h),
        h.new_empty(shape[:dim] + shape[dim + 1 :] if initial is not None else (0,)),
    )


@operation(
    "linear_recurrence_backward(Tensor a, Tensor? initial, Tensor h, Tensor dh, int dim)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_backward,
)
def _linear_recurrence_backward(
    outputs: Any, a: Any, initial: Any, h: Any, dh: Any, dim: int
) -> None:
    da, db, dinitial = outputs
    if 0 in h.shape:
        dinitial.zero_()
        return
    a = folded(a, dim)
    before, steps, after = a.shape
    linear_recurrence_backward_kernel[_grid(before, after)](
        a,
        None if initial is None else contiguous(initial),
        h,
        contiguous(dh),
        da,
        db,
        dinitial,
        steps,
        after,
        *strides(a),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, _, initial, ctx.dim = inputs
    ctx.save_for_backward(a, initial, output)


def _backward(ctx: Any, dh: Any) -> tuple[Any, ...]:
    a, initial, h = ctx.saved_tensors
    da, db, dinitial = _linear_recurrence_backward(a, initial, h, dh, ctx.dim)
    return da, db, None if initial is None else dinitial, None


_linear_recurrence.register_autograd(_backward, setup_context=_setup_context)
