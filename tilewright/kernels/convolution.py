"""Convolutions over one and two dimensions, forward and backward."""

import math
from typing import Any

import tilewright as tw
from tilewright.kernels.activations import activation_gradient
from tilewright.kernels.arrays import (
    contiguous,
    empty,
    empty_images,
    is_channels_last,
    is_tensor,
    itemsize,
    on_cpu,
    permuted,
    product_precision,
    strides,
    torch,
)
from tilewright.kernels.checks import (
    array,
    floating,
    numbers,
    one_of,
    same_dtype,
    same_kind,
    shaped,
)
from tilewright.kernels.convolution_cpu import product_on_cpu, weight_gradient_on_cpu
from tilewright.kernels.convolution_kernels import (
    convolution_kernel,
    convolution_weight_kernel,
    depthwise_kernel,
    depthwise_weight_kernel,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import MULTIPROCESSORS, accumulator_name, column_sums

__all__ = ["causal_conv1d", "conv1d", "conv2d"]


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the correlation of `input` with filters over the last dimension; differentiable.

    Args:
        input: Array of shape (samples, channels, length), of fp16, bf16, fp32 or fp64 and any
            strides. Sums are in fp32 (fp64).
        weight: Filters of shape (out channels, channels / groups, size) and the dtype of `input`.
        bias: Array of shape (out channels,), or None.
        stride: The distance between places of the output, in the input.
        padding: How many zeros stand at each end; "valid" for none, "same" for an output as long.
        dilation: The distance between neighbours of a filter, in the input.
        groups: Channels of so many equal groups see each other; with as many as there are channels
            a filter sees one (depthwise).

    Returns:
        An array of shape (samples, out channels, places) and the dtype of `input`.

    >>> import numpy as np
    >>> conv1d(np.arange(5.0).reshape(1, 1, 5), np.array([[[1.0, 0.0, -1.0]]]))
    array([[[-2., -2., -2.]]])
    """
    _check(3, input=input, weight=weight)
    options = _options(weight, 1, stride, padding, dilation)
    y = _convolve(input[:, :, None], weight[:, :, None], bias, options, groups)
    return y[:, :, 0]


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Return the correlation of images with filters; differentiable.

    Args:
        input: Array of shape (samples, channels, height, width), of fp16, bf16, fp32 or fp64 and
            any strides. Sums are in fp32 (fp64). Channels that are neighbours in memory
            (`torch.channels_last`) are faster on GPUs; they are so in the output, too.
        weight: Filters of shape (out channels, channels / groups, height, width) and the dtype of
            `input`.
        bias: Array of shape (out channels,), or None.
        stride: The distance between places of the output: an integer or two.
        padding: How many zeros stand at each end, an integer or two; "valid" for none, "same" for
            an output of the size of the input.
        dilation: The distance between neighbours of a filter: an integer or two.
        groups: Channels of so many equal groups see each other; with as many as there are channels
            a filter sees one (depthwise).

    Returns:
        An array of shape (samples, out channels, rows, columns) and the dtype of `input`.

    >>> import numpy as np
    >>> conv2d(np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2)))
    array([[[[ 8., 12.],
             [20., 24.]]]])
    """
    _check(4, input=input, weight=weight)
    return _convolve(input, weight, bias, _options(weight, 2, stride, padding, dilation), groups)


def causal_conv1d(input: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Any:
    """Return the causal correlation of each channel with its own filter; differentiable.

    Place t of the output is the sum of weight[:, k] * input[:, :, t - (size - 1) + k].

    Args:
        input: Array of shape (samples, channels, length), of fp16, bf16, fp32 or fp64 and any
            strides. Sums are in fp32 (fp64).
        weight: Filters of shape (channels, size) and the dtype of `input`.
        bias: Array of shape (channels,), or None.
        activation: "silu" for an activation in the same pass, or None.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023.

    >>> import numpy as np
    >>> causal_conv1d(np.arange(4.0).reshape(1, 1, 4), np.array([[1.0, 10.0]]))
    array([[[ 0., 10., 21., 32.]]])
    """
    one_of(("silu", "none"), activation=activation or "none")
    array(input=input, weight=weight)
    floating(input=input, weight=weight, bias=bias)
    if input.ndim != 3 or weight.ndim != 2:
        raise ValueError("`input` has to be (samples, channels, length), `weight` (channels, size)")
    channels, length = input.shape[1:]
    shaped((channels, weight.shape[1]), weight=weight)
    y = _convolution(
        input[:, :, None],
        weight[:, None, None],
        bias,
        [1, 1],
        [0, weight.shape[1] - 1],
        [1, 1],
        channels,
        [1, length],
        activation == "silu",
    )
    return y[:, :, 0]


def _check(dims: int, **arrays: Any) -> None:
    array(**arrays)
    for name, x in arrays.items():
        if x.ndim != dims:
            raise ValueError(f"`{name}` has {x.ndim} dimensions; {dims} are needed")


def _options(weight: Any, dims: int, stride: Any, padding: Any, dilation: Any) -> Any:
    """Return stride, padding and dilation as two numbers each; padding None for "same"."""
    stride, dilation = numbers(dims, 1, stride=stride), numbers(dims, 1, dilation=dilation)
    if padding == "same":
        if max(stride) > 1:
            raise ValueError(f"`padding` is 'same', and `stride` {stride[2 - dims :]}; 1 is needed")
        return stride, None, dilation
    return stride, numbers(dims, 0, padding=0 if padding == "valid" else padding), dilation


def _convolve(x: Any, weight: Any, bias: Any, options: Any, groups: int) -> Any:
    stride, padding, dilation = options
    extents = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:], strict=True)]
    if padding is None:  # the longer end is the later one, as in PyTorch
        padding, size = [extent // 2 for extent in extents], list(x.shape[2:])
    else:
        size = [
            (have + 2 * pad - extent - 1) // step + 1
            for have, pad, extent, step in zip(x.shape[2:], padding, extents, stride, strict=True)
        ]
        if min(size) < 1:
            raise ValueError(
                f"`input` has the shape {tuple(x.shape)}, `weight` {tuple(weight.shape)}: filters"
                " are larger than the input with its padding"
            )
    return _convolution(x, weight, bias, stride, padding, dilation, groups, size, False)


def _allocate(
    x: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    size: list[int],
    silu: bool,
) -> Any:
    floating(input=x, weight=weight, bias=bias)
    same_kind(input=x, weight=weight, bias=bias)
    same_dtype(input=x, weight=weight, bias=bias)
    shaped((weight.shape[0],), bias=bias)
    if groups < 1 or weight.shape[0] % groups or x.shape[1] != weight.shape[1] * groups:
        raise ValueError(
            f"`input` has {x.shape[1]} channels, `weight` the shape {tuple(weight.shape)}, and"
            f" `groups` is {groups}: they do not fit"
        )
    shape = (x.shape[0], weight.shape[0], *size)
    return empty_images(shape, x, channels_last=is_channels_last(x))


def _is_depthwise(weight: Any, groups: int) -> bool:
    return bool(weight.shape[1] == 1 and (groups > 1 or weight.shape[0] == 1))


@operation(
    "convolution(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding,"
    " SymInt[] dilation, SymInt groups, SymInt[] size, bool silu) -> Tensor",
    allocate=_allocate,
    autocast="lower",
)
def _convolution(
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    size: list[int],
    silu: bool,
) -> None:
    geometry = (*stride, *padding, *dilation)
    bias = None if bias is None else contiguous(bias)
    if _is_depthwise(weight, groups):
        multiple = weight.shape[0] // groups
        _depthwise(y, x, weight, bias, geometry, multiple, inverse=False, silu=silu)
    else:
        near = _near_channels(y)
        _product(
            near, _near_channels(x, filled=True), weight, bias, geometry, groups, inverse=False
        )
        if near is not y:
            y[...] = near


def _near_channels(x: Any, *, filled: bool = False) -> Any:
    """Return `x`, or on GPUs an array for it, whose channels are neighbours in memory.

    Several are read at once, then, which takes less time than a copy. `filled`: with its elements.
    """
    if on_cpu(x) or strides(x)[1] == 1 or x.shape[1] == 1:
        return x
    samples, channels, *size = x.shape
    order = (0, 3, 1, 2)
    room = empty((samples, *size, channels), x)
    room = room.permute(order) if is_tensor(x) else room.transpose(order)
    if filled:
        room[...] = x
    return room


def _product(
    y: Any, x: Any, weight: Any, bias: Any, geometry: tuple[int, ...], groups: int, *, inverse: bool
) -> None:
    """Compute outputs from inputs; or, if `inverse`, the inputs' gradient from the outputs'."""
    is_gradient = inverse
    out_channels, channels, *filter_size = weight.shape
    out_channels //= groups
    if inverse and geometry[:2] == (1, 1):
        # The gradient is a convolution, too, by the filters' points in the opposite order.
        weight, inverse = weight.flip((2, 3)), False
        padding = (
            dilation * (size - 1) - before
            for dilation, size, before in zip(geometry[4:], filter_size, geometry[2:4], strict=True)
        )
        geometry = (1, 1, *padding, *geometry[4:])
    weight = weight.reshape((groups, out_channels, channels, *filter_size))
    if math.prod(y.shape) == 0:
        return
    if on_cpu(x) and not inverse:
        if is_gradient:
            weight = permuted(weight, (0, 2, 1, 3, 4))
        filters = weight.reshape((y.shape[1], -1, *filter_size))
        product_on_cpu(y, x, filters, bias, geometry, groups)
        return
    # (group, tap, channel that is summed over, channel of the result)
    weight = permuted(weight, (0, 3, 4, 1, 2) if is_gradient else (0, 3, 4, 2, 1))
    if is_gradient:
        channels, out_channels = out_channels, channels
    rows = y.shape[0] * math.prod(y.shape[2:])
    taps = math.prod(filter_size)
    block = next((k for k in (64, 32, 16) if channels % k == 0), 0)

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        blocks = tw.cdiv(out_channels, meta["BLOCK_N"])
        return tw.cdiv(rows, meta["BLOCK_M"]) * blocks, groups

    convolution_kernel[grid](
        x,
        weight,
        bias,
        y,
        rows,
        channels,
        out_channels,
        taps,
        filter_size[1],
        *x.shape[2:],
        *y.shape[2:],
        strides(x),
        strides(y),
        tuple(geometry),
        INVERSE=inverse,
        WHOLE_TAPS=block > 0,
        BLOCK_K=block or 32,
        PRECISION=product_precision(x),
    )


def _depthwise(
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    geometry: tuple[int, ...],
    multiple: int,
    *,
    inverse: bool,
    silu: bool,
) -> None:
    outputs = math.prod(y.shape)
    if outputs == 0:
        return
    block = 2048 if on_cpu(x) else 512
    depthwise_kernel[(tw.cdiv(outputs, block),)](
        x,
        contiguous(weight),
        bias,
        y,
        outputs,
        y.shape[1],
        multiple,
        math.prod(weight.shape[2:]),
        weight.shape[3],
        *x.shape[2:],
        *y.shape[2:],
        strides(x),
        geometry,
        CHANNELS_LAST=is_channels_last(y),
        INVERSE=inverse,
        SILU=silu,
        BLOCK=block,
    )


# ---- gradients ------------------------------------------------------------------------------


def _allocate_backward(
    dy: Any,
    x: Any,
    weight: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    dx_shape = tuple(x.shape) if wanted[0] else (0,)
    return (
        empty_images(dx_shape, x, channels_last=wanted[0] and is_channels_last(x)),
        empty(tuple(weight.shape) if wanted[1] else (0,), weight),
        empty((weight.shape[0],) if wanted[2] else (0,), weight),
    )


@operation(
    "convolution_backward(Tensor dy, Tensor x, Tensor weight, SymInt[] stride, SymInt[] padding,"
    " SymInt[] dilation, SymInt groups, bool[] wanted) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_backward,
)
def _convolution_backward(
    gradients: Any,
    dy: Any,
    x: Any,
    weight: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    wanted: list[bool],
) -> None:
    dx, dweight, dbias = gradients
    geometry = (*stride, *padding, *dilation)
    if not _is_depthwise(weight, groups):
        dy = _near_channels(dy, filled=True)
        x = _near_channels(x, filled=True) if wanted[1] else x
    if wanted[0]:
        if _is_depthwise(weight, groups):
            multiple = weight.shape[0] // groups
            _depthwise(dx, dy, weight, None, geometry, multiple, inverse=True, silu=False)
        else:
            near = _near_channels(dx)
            _product(near, dy, weight, None, geometry, groups, inverse=True)
            if near is not dx:
                dx[...] = near
    if wanted[1]:
        _weight_gradient(dweight, x, dy, geometry, groups)
    if wanted[2]:
        dbias.copy_(dy.sum((0, 2, 3), dtype=getattr(torch, accumulator_name(x))))


def _weight_blocks(x: Any, out_channels: int, channels: int) -> tuple[int, int, int]:
    """Return the blocks of the gradient of filters, and how many places are summed at once."""
    if itemsize(x) != 2:
        return 64, 64, 32
    height = 128 if out_channels > 64 else 64
    width = next((w for w in (256, 128) if height == 128 and channels > w // 2), 64)
    return height, width, 64


def _weight_gradient(dweight: Any, x: Any, dy: Any, geometry: tuple[int, ...], groups: int) -> None:
    filters, channels, *filter_size = dweight.shape
    rows, taps = dy.shape[0] * math.prod(dy.shape[2:]), math.prod(filter_size)
    if rows == 0:
        dweight.zero_()
        return
    layout = (taps, filter_size[1], *x.shape[2:], *dy.shape[2:], strides(x), strides(dy))
    if _is_depthwise(dweight, groups):
        depthwise_weight_kernel[(filters * taps,)](
            x, dy, dweight, rows, filters // groups, *layout, geometry, BLOCK=1024
        )
        return
    if on_cpu(x):
        weight_gradient_on_cpu(dweight, x, dy, geometry, groups)
        return
    out_channels, columns = filters // groups, taps * channels
    height, width, depth = _weight_blocks(x, out_channels, channels)
    across = min(tw.next_power_of_2(dy.shape[3]), depth)
    blocks = tw.cdiv(out_channels, height) * tw.cdiv(channels, width) * taps * groups
    lines = dy.shape[0] * dy.shape[2]
    turns = tw.cdiv(dy.shape[3], across)
    steps = tw.cdiv(lines, depth // across) * turns
    # Enough programs to be busy, each with enough places to be worth it.
    programs = MULTIPROCESSORS * (2 if width <= 128 else 1)
    splits = max(1, min(programs // blocks, steps // 16))
    steps_of_split = tw.cdiv(steps, splits)
    splits = tw.cdiv(steps, steps_of_split)
    sums = empty((splits, filters * columns), x, accumulator_name(x))
    convolution_weight_kernel[(blocks // groups, groups, splits)](
        x,
        dy,
        sums,
        lines,
        turns,
        steps_of_split,
        channels,
        out_channels,
        *layout,
        geometry,
        BLOCK_M=height,
        BLOCK_N=width,
        BLOCK_K=depth,
        WIDTH=across,
        PRECISION=product_precision(x),
        num_warps=8 if height * width >= 128 * 128 else 4,
    )
    total = empty((filters * columns,), sums)
    column_sums([(sums, total)])
    dweight.copy_(total.reshape((filters, *filter_size, channels)).permute(0, 3, 1, 2))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, *ctx.options, ctx.size, ctx.silu = inputs
    ctx.save_for_backward(x, weight, bias)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    x, weight, bias = ctx.saved_tensors
    if ctx.silu:
        before = _convolution(x, weight, bias, *ctx.options, ctx.size, False)
        dy = activation_gradient(dy, before, "silu")
    wanted = list(ctx.needs_input_grad[:3])
    gradients = _convolution_backward(dy, x, weight, *ctx.options, wanted)
    made = [d if is_wanted else None for d, is_wanted in zip(gradients, wanted, strict=True)]
    return *made, *(None for _ in range(6))


_convolution.register_autograd(_backward, setup_context=_setup_context)
