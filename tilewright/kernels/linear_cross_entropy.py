"""Cross-entropy of the logits of a linear layer, which are never in memory all together."""

from typing import Any

import numpy as np

from tilewright.kernels.arrays import contiguous, empty, empty_like, is_tensor, torch
from tilewright.kernels.checks import array, floating, same_dtype, same_kind, shaped, share
from tilewright.kernels.cross_entropy import (
    differentiate_logits,
    loss_outputs,
    read_logits,
    reduce_losses,
)
from tilewright.kernels.operation import operation, under_autocast
from tilewright.kernels.rows import accumulator_name

__all__ = ["linear_cross_entropy"]

_LOGITS = 1 << 27  # that are in memory at a time
_FEWEST_CLASSES = 1024  # whose logits are made together


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return `cross_entropy(logits, target, weight)` of the logits of a layer; differentiable.

    The logits, `input @ linear_weight.T + linear_bias`, are made for some classes at a time, and
    again in the backward pass, so memory grows with the number of places and not with its product
    with that of classes.

    Args:
        input: Array of shape (places..., features), of fp16, bf16, fp32 or fp64 and any strides.
        linear_weight: Array of shape (classes, features) and the dtype of `input`.
        target: The class of each place, integers of shape (places...).
        linear_bias: Array of shape (classes,) and the dtype of `input`, or None.
        weight: A factor of each class in the loss, of shape (classes,), or None.
        ignore_index: Places with this target count nothing.
        reduction: "none", a loss for each place; "sum"; or "mean": the sum over the sum of weights.
        label_smoothing: The part of each target that is spread over all classes, from 0 to 1.

    Returns:
        The loss, of the dtype of `input`.

    Source: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024.

    >>> import numpy as np
    >>> x, linear_weight = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)
    >>> round(float(linear_cross_entropy(x, linear_weight, np.array([1, 3]))), 3)
    1.386
    """
    array(input=input, linear_weight=linear_weight, target=target)
    share(label_smoothing=label_smoothing)
    # The weights of classes belong to the loss, which autocast does not lower.
    operands = under_autocast((input, linear_weight, target, linear_bias), "lower")
    return _linear_cross_entropy(
        *operands, weight, ignore_index, reduction, float(label_smoothing)
    )[0]


def _allocate_linear(
    x: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Any:
    floating(linear_weight=linear_weight, linear_bias=linear_bias, weight=weight)
    same_kind(
        input=x, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight
    )
    same_dtype(input=x, linear_weight=linear_weight, linear_bias=linear_bias)
    if x.ndim == 0 or linear_weight.ndim != 2:
        raise ValueError("`input` has to be (places..., features), `linear_weight` a matrix")
    shaped((linear_weight.shape[0], x.shape[-1]), linear_weight=linear_weight)
    shaped((linear_weight.shape[0],), linear_bias=linear_bias, weight=weight)
    shaped(tuple(x.shape[:-1]), target=target)
    return loss_outputs(x, target, reduction, label_smoothing)


def _parts(rows: int, classes: int) -> list[slice]:
    """Return the classes whose logits are in memory together."""
    size = max(_FEWEST_CLASSES, _LOGITS // max(rows, 1) // 256 * 256)
    return [slice(first, min(first + size, classes)) for first in range(0, classes, size)]


def _logits(x: Any, linear_weight: Any, bias: Any, part: slice) -> Any:
    """Return the logits of some classes, as rows."""
    if is_tensor(x):
        if bias is None:
            return torch.mm(x, linear_weight[part].mT)
        return torch.addmm(bias[part], x, linear_weight[part].mT)
    accumulate = np.dtype(accumulator_name(x))
    y = x.astype(accumulate) @ linear_weight[part].T.astype(accumulate)
    return (y if bias is None else y + bias[part].astype(accumulate)).astype(x.dtype)


@operation(
    "linear_cross_entropy(Tensor x, Tensor linear_weight, Tensor target, Tensor? linear_bias,"
    " Tensor? weight, int ignore_index, str reduction, float label_smoothing)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_linear,
)
def _linear_cross_entropy(
    outputs: Any,
    x: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> None:
    loss, state, total = outputs
    classes, features = linear_weight.shape
    losses = loss if reduction == "none" else empty(tuple(target.shape), x, accumulator_name(x))
    target = contiguous(target)
    weight = None if weight is None else contiguous(weight)
    rows = x.reshape((-1, features))
    for part in _parts(len(rows), classes):
        logits = _logits(rows, linear_weight, linear_bias, part)[:, :, None]
        read_logits(
            logits,
            target,
            weight,
            state,
            losses,
            part.start,
            classes,
            ignore_index,
            label_smoothing,
        )
    reduce_losses(losses, state, loss, total, reduction)


def _allocate_backward(
    dloss: Any,
    x: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    state: Any,
    total: Any,
    ignore_index: int,
    label_smoothing: float,
    wanted: list[bool],
) -> Any:
    return tuple(
        empty_like(like) if needed else empty((0,), x)
        for like, needed in zip((x, linear_weight, linear_bias), wanted, strict=True)
    )


@operation(
    "linear_cross_entropy_backward(Tensor dloss, Tensor x, Tensor linear_weight, Tensor target,"
    " Tensor? linear_bias, Tensor? weight, Tensor state, Tensor total, int ignore_index,"
    " float label_smoothing, bool[] wanted) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_backward,
)
def _linear_cross_entropy_backward(
    outputs: Any,
    dloss: Any,
    x: Any,
    linear_weight: Any,
    target: Any,
    linear_bias: Any,
    weight: Any,
    state: Any,
    total: Any,
    ignore_index: int,
    label_smoothing: float,
    wanted: list[bool],
) -> None:
    dx, dweight, dbias = outputs
    classes, features = linear_weight.shape
    rows = x.reshape((-1, features))
    keep = (contiguous(target), None if weight is None else contiguous(weight), state, total)
    rows_gradient = torch.zeros(
        rows.shape, dtype=getattr(torch, accumulator_name(x)), device=x.device
    )
    for part in _parts(len(rows), classes):
        logits = _logits(rows, linear_weight, linear_bias, part)
        planes = logits[:, :, None]
        differentiate_logits(
            planes, planes, dloss, keep, part.start, classes, ignore_index, label_smoothing
        )
        if wanted[0]:
            rows_gradient += torch.mm(logits, linear_weight[part])
        if wanted[1]:
            torch.mm(logits.mT, rows, out=dweight[part])
        if wanted[2]:
            torch.sum(logits, 0, out=dbias[part])
    if wanted[0]:
        dx.copy_(rows_gradient.reshape(dx.shape))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *arrays, ctx.ignore_index, _, ctx.label_smoothing = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*arrays, *output[1:])


def _backward(ctx: Any, dloss: Any, *_: Any) -> tuple[Any, ...]:
    if dloss is None:
        return (None,) * 8
    wanted = [ctx.needs_input_grad[place] for place in (0, 1, 3)]
    gradients = _linear_cross_entropy_backward(
        dloss, *ctx.saved_tensors, ctx.ignore_index, ctx.label_smoothing, wanted
    )
    dx, dweight, dbias = (
        d if needed else None for d, needed in zip(gradients, wanted, strict=True)
    )
    return dx, dweight, None, dbias, None, None, None, None


_linear_cross_entropy.register_autograd(_backward, setup_context=_setup_context)
