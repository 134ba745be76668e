"""Cross-entropy of logits."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    empty,
    empty_like,
    folded,
    itemsize,
    on_cpu,
    strides,
)
from tilewright.kernels.checks import array, floating, integral, one_of, same_kind, shaped, share
from tilewright.kernels.cross_entropy_kernels import (
    cross_entropy_backward_kernel,
    cross_entropy_kernel,
    reduce_losses_kernel,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator_name, row_blocks

__all__ = [
    "cross_entropy",
    "differentiate_logits",
    "loss_outputs",
    "read_logits",
    "reduce_losses",
]

_REDUCTIONS = ("none", "mean", "sum")
_MOST_CLASSES = 4096  # that are read at a time
_MANY_CLASSES = 65536  # whose gradients are written in larger blocks


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return log(sum(exp(input))) - input[target] for the mean of all places; differentiable.

    Args:
        input: Logits of shape (places, classes), (places, classes, more places...) or (classes,),
            of fp16, bf16, fp32 or fp64 and any strides. Sums are in fp32 (fp64).
        target: The class of each place: integers of the shape of `input` without classes. A number
            that is no class makes the loss NaN.
        weight: A factor of each class, of shape (classes,), or None.
        ignore_index: Places with this target count nothing.
        reduction: "none", a loss for each place; "sum"; or "mean": the sum over the sum of weights.
        label_smoothing: The part of each target that is spread over all classes, from 0 to 1.

    Returns:
        The loss, of the dtype of `input`.

    >>> import numpy as np
    >>> round(float(cross_entropy(np.zeros((2, 4)), np.array([1, 3]))), 3)
    1.386
    """
    array(input=input, target=target)
    floating(weight=weight)
    share(label_smoothing=label_smoothing)
    return _cross_entropy(input, target, weight, ignore_index, reduction, float(label_smoothing))[0]


def loss_outputs(x: Any, target: Any, reduction: str, label_smoothing: float) -> Any:
    """Return the loss, what is kept of each place, and the sum of weights, not filled."""
    array(input=x, target=target)
    floating(input=x)
    integral(target=target)
    one_of(_REDUCTIONS, reduction=reduction)
    shape = tuple(target.shape)
    dtype = accumulator_name(x)
    loss = empty(shape if reduction == "none" else (), x)
    return loss, empty((4, *shape), x, dtype), empty((1,), x, dtype)


def _allocate(
    x: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float
) -> Any:
    if x.ndim == 0:
        raise ValueError("`input` has no dimension of classes")
    same_kind(input=x, target=target, weight=weight)
    dim = _class_dimension(x)
    shaped(tuple(x.shape[:dim]) + tuple(x.shape[dim + 1 :]), target=target)
    shaped((x.shape[dim],), weight=weight)
    return loss_outputs(x, target, reduction, label_smoothing)


def _class_dimension(x: Any) -> int:
    return 0 if x.ndim == 1 else 1


@operation(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight, int ignore_index, str reduction,"
    " float label_smoothing) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate,
    autocast="float32",
)
def _cross_entropy(
    outputs: Any,
    x: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> None:
    loss, state, total = outputs
    logits = folded(x, _class_dimension(x))
    target = contiguous(target)
    weight = None if weight is None else contiguous(weight)
    losses = loss if reduction == "none" else empty(tuple(target.shape), x, accumulator_name(x))
    classes = logits.shape[1]
    read_logits(logits, target, weight, state, losses, 0, classes, ignore_index, label_smoothing)
    reduce_losses(losses, state, loss, total, reduction)


def read_logits(
    logits: Any,
    target: Any,
    weight: Any,
    state: Any,
    losses: Any,
    first_class: int,
    classes: int,
    ignore_index: int,
    label_smoothing: float,
) -> None:
    """Read the logits of some classes; the last ones make the losses."""
    before, columns, after = logits.shape
    rows = before * after
    if rows == 0:
        return
    per_program, block = row_blocks(logits, rows, columns, _MOST_CLASSES)
    cross_entropy_kernel[(tw.cdiv(rows, per_program),)](
        logits,
        target,
        weight,
        state,
        losses,
        rows,
        columns,
        after,
        first_class,
        classes,
        ignore_index,
        *strides(logits),
        SMOOTHING=label_smoothing,
        FIRST=first_class == 0,
        LAST=first_class + columns == classes,
        ROWS=per_program,
        BLOCK=block,
        WIDTH=block if on_cpu(logits) else min(block, 16 // itemsize(logits)),
    )


def reduce_losses(losses: Any, state: Any, loss: Any, total: Any, reduction: str) -> None:
    """Make the loss of the losses of places."""
    if reduction == "none":
        total[...] = 1
        return
    (rows,) = losses.reshape((-1,)).shape
    reduce_losses_kernel[(1,)](
        losses, state, loss, total, rows, MEAN=reduction == "mean", BLOCK=4096, num_warps=16
    )


def _allocate_backward(
    dloss: Any,
    x: Any,
    target: Any,
    weight: Any,
    state: Any,
    total: Any,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    return empty_like(x)


@operation(
    "cross_entropy_backward(Tensor dloss, Tensor x, Tensor target, Tensor? weight, Tensor state,"
    " Tensor total, int ignore_index, float label_smoothing) -> Tensor",
    allocate=_allocate_backward,
)
def _cross_entropy_backward(
    dx: Any,
    dloss: Any,
    x: Any,
    target: Any,
    weight: Any,
    state: Any,
    total: Any,
    ignore_index: int,
    label_smoothing: float,
) -> None:
    dim = _class_dimension(x)
    x, dx = folded(x, dim), folded(dx, dim)
    weight = None if weight is None else contiguous(weight)
    keep = (contiguous(target), weight, state, total)
    differentiate_logits(dx, x, dloss, keep, 0, x.shape[1], ignore_index, label_smoothing)


def differentiate_logits(
    dx: Any,
    x: Any,
    dloss: Any,
    keep: tuple[Any, ...],
    first_class: int,
    classes: int,
    ignore_index: int,
    label_smoothing: float,
) -> None:
    """Compute the gradient of the logits of some classes."""
    before, columns, after = x.shape
    rows = before * after
    if rows * columns == 0:
        return
    factor = 2 if columns > _MANY_CLASSES and not on_cpu(x) else 1
    per_program, block = row_blocks(x, rows, columns, factor * _MOST_CLASSES)
    cross_entropy_backward_kernel[(tw.cdiv(rows, per_program), tw.cdiv(columns, block))](
        dx,
        x,
        contiguous(dloss),
        *keep,
        rows,
        columns,
        after,
        first_class,
        classes,
        ignore_index,
        *strides(dx),
        *strides(x),
        SCALAR=dloss.ndim == 0 and len(keep[0].shape) > 0,
        SMOOTHING=label_smoothing,
        ROWS=per_program,
        BLOCK=block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, target, weight, ctx.ignore_index, _, ctx.label_smoothing = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, target, weight, *output[1:])


def _backward(ctx: Any, dloss: Any, *_: Any) -> tuple[Any, ...]:
    dx = None
    if dloss is not None:
        dx = _cross_entropy_backward(
            dloss, *ctx.saved_tensors, ctx.ignore_index, ctx.label_smoothing
        )
    return dx, None, None, None, None, None


_cross_entropy.register_autograd(_backward, setup_context=_setup_context)
