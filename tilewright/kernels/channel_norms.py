"""Group, instance and batch norm, forward and backward."""

import math
from typing import Any

from tilewright.kernels.arrays import (
    contiguous,
    converted,
    empty,
    empty_like,
    strides,
)
from tilewright.kernels.checks import array, floating, plain, same_kind, shaped
from tilewright.kernels.operation import operation
from tilewright.kernels.plane_groups import (
    group_gradient_kernel,
    group_norm_kernel,
    whole_group_gradient_kernel,
    whole_group_norm_kernel,
)
from tilewright.kernels.plane_tiles import Planes, empty_planes, shared_out
from tilewright.kernels.planes import (
    join_products_kernel,
    join_statistics_kernel,
    plane_gradient_kernel,
    plane_norm_kernel,
    plane_products_kernel,
    plane_statistics_kernel,
)
from tilewright.kernels.rows import accumulator_name, column_sums

__all__ = ["batch_norm", "group_norm", "instance_norm"]


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Return (input - mean) / sqrt(variance + eps) * weight + bias over groups; differentiable.

    Args:
        input: Array of shape (samples, channels, ...), of fp16, bf16, fp32 or fp64 and any strides.
            Sums are in fp32 (fp64).
        num_groups: The channels of a sample are so many groups with a mean and variance each.
        weight: Array of shape (channels,), or None for ones.
        bias: Array of shape (channels,), or None for zeros.
        eps: Added to the variance.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Wu and He, "Group Normalization", 2018.

    >>> import numpy as np
    >>> group_norm(np.array([[1.0, 3.0, 5.0, 9.0]]), 2, eps=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    _check(input, weight=weight, bias=bias)
    plain("an integer", num_groups=num_groups)
    if num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"`num_groups` is {num_groups}, and `input` has {input.shape[1]} channels: no equal"
            " groups of them"
        )
    return _channel_norm(input, weight, bias, num_groups, eps)[0]


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Return (input - mean) / sqrt(variance + eps) * weight + bias of each channel; differentiable.

    Args:
        input: Array of shape (samples, channels, ...), of fp16, bf16, fp32 or fp64 and any strides.
            Sums are in fp32 (fp64).
        running_mean: Array of shape (channels,) or None, moved towards the mean in place.
        running_var: Array of shape (channels,) or None, moved towards the variance in place.
        weight: Array of shape (channels,), or None for ones.
        bias: Array of shape (channels,), or None for zeros.
        use_input_stats: Whether mean and variance are those of each sample; else the running ones.
        momentum: How far the running ones move, from 0 to 1.
        eps: Added to the variance.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Ulyanov et al., "Instance Normalization: The Missing Ingredient", 2016.

    >>> import numpy as np
    >>> instance_norm(np.array([[[1.0, 3.0], [5.0, 9.0]]]), eps=0.0)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    _check(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not use_input_stats:
        return _with_running(input, running_mean, running_var, weight, bias, eps)
    y, mean, rstd = _channel_norm(input, weight, bias, input.shape[1], eps)
    if _is_moved(running_mean, running_var):
        count = math.prod(input.shape[2:])
        _move(running_mean, running_var, mean.mean(0), (rstd**-2 - eps).mean(0), count, momentum)
    return y


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Return (input - mean) / sqrt(variance + eps) * weight + bias of each channel; differentiable.

    Args:
        input: Array of shape (samples, channels, ...), of fp16, bf16, fp32 or fp64 and any strides.
            Sums are in fp32 (fp64).
        running_mean: Array of shape (channels,); in training moved towards the mean in place, if
            it is not None.
        running_var: Array of shape (channels,), in the same way.
        weight: Array of shape (channels,), or None for ones.
        bias: Array of shape (channels,), or None for zeros.
        training: Whether mean and variance are those of all samples; else the running ones.
        momentum: How far the running ones move, from 0 to 1.
        eps: Added to the variance.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Ioffe and Szegedy, "Batch Normalization", 2015.

    >>> import numpy as np
    >>> batch_norm(np.array([[1.0, 5.0], [3.0, 9.0]]), None, None, training=True, eps=0.0)
    array([[-1., -1.],
           [ 1.,  1.]])
    """
    _check(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        return _with_running(input, running_mean, running_var, weight, bias, eps)
    y, mean, rstd = _channel_norm(input, weight, bias, 0, eps)
    if _is_moved(running_mean, running_var):
        count = math.prod(input.shape) // max(input.shape[1], 1)
        _move(running_mean, running_var, mean, rstd**-2 - eps, count, momentum)
    return y


def _check(x: Any, **parameters: Any) -> None:
    array(input=x)
    if x.ndim < 2:
        raise ValueError(
            f"`input` has the shape {tuple(x.shape)}; (samples, channels, ...) is needed"
        )
    floating(input=x, **parameters)
    same_kind(input=x, **parameters)
    shaped((x.shape[1],), **parameters)


def _with_running(
    x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    if running_mean is None or running_var is None:
        raise ValueError("`running_mean` and `running_var` are needed beside training")
    return _channel_norm_with(x, running_mean, running_var, weight, bias, eps)


def _is_moved(running_mean: Any, running_var: Any) -> bool:
    """Whether there are running statistics; raise `ValueError` where there is one of the two."""
    if (running_mean is None) != (running_var is None):
        raise ValueError("`running_mean` and `running_var` are given together, or both are None")
    return running_mean is not None


def _move(
    running_mean: Any, running_var: Any, mean: Any, variance: Any, count: int, momentum: float
) -> None:
    """Move running statistics, the variance with Bessel's correction, outside of gradients."""
    if hasattr(mean, "detach"):
        mean, variance = mean.detach(), variance.detach()
    running_mean[...] = running_mean * (1 - momentum) + mean * momentum
    variance = variance * (count / max(count - 1, 1))
    running_var[...] = running_var * (1 - momentum) + variance * momentum


# ---- operations -----------------------------------------------------------------------------


def _statistics(planes: Planes, mean: Any, rstd: Any, eps: float) -> None:
    """Compute the mean and 1 / deviation of groups of planes."""
    _, channels, inside = planes.shape
    means, squares = planes.numbers(2)
    x = planes.arrays[0]
    planes.launch(plane_statistics_kernel, x, strides(x), means, squares)
    grid, rows, tile = planes.join()
    join_statistics_kernel[grid](
        means,
        squares,
        mean,
        rstd,
        channels,
        inside,
        planes.parts,
        planes.span,
        rows,
        planes.in_group,
        EPS=eps,
        **tile,
    )


def _normalize(planes: Planes, mean: Any, rstd: Any, weight: Any, bias: Any) -> None:
    """Compute the results from statistics."""
    x, y = planes.arrays
    numbers = (mean, rstd, _dense(weight), _dense(bias))
    grouping = (planes.in_group, planes.groups)
    layout = (strides(x), strides(y))
    planes.launch(plane_norm_kernel, x, y, layout, grouping, *numbers, blocks=True)


def _dense(x: Any) -> Any:
    return None if x is None else contiguous(x)


def _allocate(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    shape = (x.shape[0], groups) if groups else (x.shape[1],)
    dtype = accumulator_name(x)
    return empty_planes(x), empty(shape, x, dtype), empty(shape, x, dtype)


@operation(
    "channel_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt groups, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    allocate=_allocate,
    autocast="float32",
)
def _channel_norm(outputs: Any, x: Any, weight: Any, bias: Any, groups: int, eps: float) -> None:
    """Each sample's channels are so many groups; or, for 0, a channel is one of all samples."""
    y, mean, rstd = outputs
    if math.prod(x.shape) == 0:
        mean[...] = 0
        rstd[...] = float("nan")
        return
    planes = shared_out(groups, x, y)
    if not planes.by_group:
        _statistics(planes, mean, rstd, eps)
        _normalize(planes, mean, rstd, weight, bias)
        return
    samples, _, inside = planes.shape
    x, y = planes.arrays
    kernel = whole_group_norm_kernel if planes.is_whole else group_norm_kernel
    kernel[(samples * planes.groups,)](
        x,
        y,
        (strides(x), strides(y)),
        mean,
        rstd,
        _dense(weight),
        _dense(bias),
        inside,
        planes.in_group,
        planes.groups,
        planes.apart[0],
        EPS=eps,
        **planes.tile,
        **planes.lanes,
    )


def _allocate_with(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
    return empty_planes(x)


@operation(
    "channel_norm_with(Tensor input, Tensor mean, Tensor var, Tensor? weight, Tensor? bias,"
    " float eps)"
    " -> Tensor",
    allocate=_allocate_with,
)
def _channel_norm_with(
    y: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> None:
    """The norm with statistics that are given."""
    if math.prod(x.shape) == 0:
        return
    rstd = (converted(var, accumulator_name(x)) + eps) ** -0.5
    _normalize(shared_out(0, x, y, has_statistics=True), contiguous(mean), rstd, weight, bias)


def _allocate_backward(
    dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, groups: int, is_given: bool
) -> Any:
    parameter = x if weight is None else weight
    channels = (x.shape[1],)
    return empty_planes(x), empty(channels, parameter), empty(channels, parameter)


@operation(
    "channel_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd,"
    " SymInt groups, bool is_given) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_backward,
)
def _channel_norm_backward(
    outputs: Any,
    dy: Any,
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    groups: int,
    is_given: bool,
) -> None:
    dx, dweight, dbias = outputs
    if math.prod(x.shape) == 0:
        dweight.zero_()
        dbias.zero_()
        return
    planes = shared_out(groups, x, dx, dy, has_statistics=is_given)
    weight, mean, rstd = _dense(weight), contiguous(mean), contiguous(rstd)
    sums, products = planes.numbers(2)
    if planes.by_group:
        _differentiate_groups(planes, mean, rstd, weight, sums, products)
    else:
        _differentiate_planes(planes, mean, rstd, weight, sums, products, is_given)
    column_sums([(products, dweight), (sums, dbias)])


def _differentiate_groups(
    planes: Planes, mean: Any, rstd: Any, weight: Any, sums: Any, products: Any
) -> None:
    x, dx, dy = planes.arrays
    samples, _, inside = planes.shape
    kernel = whole_group_gradient_kernel if planes.is_whole else group_gradient_kernel
    kernel[(samples * planes.groups,)](
        x,
        dy,
        dx,
        tuple(map(strides, (x, dy, dx))),
        mean,
        rstd,
        weight,
        sums,
        products,
        inside,
        planes.in_group,
        planes.groups,
        planes.apart,
        **planes.tile,
        **planes.lanes,
    )


def _differentiate_planes(
    planes: Planes, mean: Any, rstd: Any, weight: Any, sums: Any, products: Any, is_given: bool
) -> None:
    x, dx, dy = planes.arrays
    _, channels, inside = planes.shape
    layout = tuple(map(strides, (x, dy, dx)))
    grouping = (planes.in_group, planes.groups)
    planes.launch(plane_products_kernel, x, dy, layout, grouping, mean, rstd, sums, products)
    level = along = None
    if not is_given:
        level, along = empty_like(mean), empty_like(mean)
        grid, rows, tile = planes.join()
        join_products_kernel[grid](
            sums,
            products,
            weight,
            level,
            along,
            channels,
            inside,
            planes.parts,
            rows,
            planes.in_group,
            **tile,
        )
    planes.launch(
        plane_gradient_kernel,
        x,
        dy,
        dx,
        layout,
        grouping,
        mean,
        rstd,
        weight,
        level,
        along,
        blocks=True,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, ctx.groups, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, *output[1:])


def _backward(ctx: Any, dy: Any, *_: Any) -> tuple[Any, ...]:
    if dy is None:
        return (None,) * 5
    gradients = _channel_norm_backward(dy, *ctx.saved_tensors, ctx.groups, False)
    return *_wanted(gradients, ctx.needs_input_grad[:3]), None, None


def _wanted(gradients: tuple[Any, ...], needed: tuple[bool, ...]) -> list[Any]:
    return [d if is_needed else None for d, is_needed in zip(gradients, needed, strict=True)]


_channel_norm.register_autograd(_backward, setup_context=_setup_context)


def _setup_context_with(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, mean, var, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight, mean, var)


def _backward_with(ctx: Any, dy: Any) -> tuple[Any, ...]:
    x, weight, mean, var = ctx.saved_tensors
    rstd = (converted(var, accumulator_name(x)) + ctx.eps) ** -0.5
    gradients = _channel_norm_backward(dy, x, weight, mean, rstd, 0, True)
    needed = [ctx.needs_input_grad[place] for place in (0, 3, 4)]
    dx, dweight, dbias = _wanted(gradients, tuple(needed))
    return dx, None, None, dweight, dbias, None


_channel_norm_with.register_autograd(_backward_with, setup_context=_setup_context_with)
