"""The operation behind all pooling: one or two dimensions, the largest or the mean."""

import math
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import (
    empty,
    empty_images,
    in_order,
    is_channels_last,
    on_cpu,
    strides,
)
from tilewright.kernels.checks import array, floating, numbers
from tilewright.kernels.operation import operation
from tilewright.kernels.pooling_kernels import pool_backward_kernel, pool_kernel

__all__ = ["Windows", "adaptive", "pooled"]


@dataclass(frozen=True)
class Windows:
    """How windows lie over the last `dims` dimensions; each number is an integer or `dims` such."""

    dims: int
    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool

    def all_numbers(self) -> list[list[int]]:
        """Return size, stride, padding and dilation, as two numbers each."""
        stride = self.kernel_size if self.stride is None else self.stride
        sizes = numbers(self.dims, 1, kernel_size=self.kernel_size)
        paddings = numbers(self.dims, 0, padding=self.padding)
        for size, padding in zip(sizes, paddings, strict=True):
            if 2 * padding > size:
                raise ValueError(f"`padding` is {padding}, more than half of a window of {size}")
        return [
            sizes,
            numbers(self.dims, 1, stride=stride),
            paddings,
            numbers(self.dims, 1, dilation=self.dilation),
        ]

    def outputs(self, size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
        """Return the number of windows along a dimension."""
        room = size + 2 * padding - dilation * (kernel - 1) - 1
        count = (room + (stride - 1 if self.ceil_mode else 0)) // stride + 1
        # The last window has to start within the input or the padding before it.
        return count - (self.ceil_mode and (count - 1) * stride >= size + padding)


def pooled(
    x: Any, windows: Windows, is_max: bool, include_pad: bool, divisor: int
) -> tuple[Any, Any]:
    """Return the results of windows, and of the largest elements where they are."""
    image = _image(x, windows.dims)
    layout = windows.all_numbers()
    out_size = [
        windows.outputs(size, *of) for size, *of in zip(image.shape[-2:], *layout, strict=True)
    ]
    if min(out_size) < 1:
        raise ValueError(f"`input` has the shape {tuple(x.shape)}, which is less than a window")
    results = _pool(image, out_size, *layout, False, is_max, include_pad, divisor)
    return _without_image(results, windows.dims, is_max)


def adaptive(x: Any, output_size: Any, dims: int, is_max: bool) -> tuple[Any, Any]:
    """Return the results of so many parts, and of the largest elements where they are."""
    image = _image(x, dims)
    sizes = image.shape[-2:]
    wanted = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * dims
    if len(wanted) == dims:  # None leaves a size as it is
        wanted = [
            size if want is None else want
            for size, want in zip(sizes[2 - dims :], wanted, strict=True)
        ]
    out_size = numbers(dims, 0, output_size=wanted)
    if dims == 1:
        out_size[0] = 1
    largest = [size // max(out, 1) + 2 for size, out in zip(sizes, out_size, strict=True)]
    results = _pool(image, out_size, largest, [1, 1], [0, 0], [1, 1], True, is_max, False, 0)
    return _without_image(results, dims, is_max)


def _image(x: Any, dims: int) -> Any:
    array(input=x)
    if x.ndim < dims + 1:
        raise ValueError(f"`input` has {x.ndim} dimensions; {dims + 1} at least are needed")
    return x[..., None, :] if dims == 1 else x


def _without_image(results: tuple[Any, Any], dims: int, is_max: bool) -> tuple[Any, Any]:
    y, index = results
    if dims == 2:
        return y, index
    return y[..., 0, :], index[..., 0, :] if is_max else index


def _allocate(
    x: Any,
    out_size: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    is_adaptive: bool,
    is_max: bool,
    include_pad: bool,
    divisor: int,
) -> Any:
    floating(input=x)
    shape = (*x.shape[:-2], *out_size)
    channels_last = is_channels_last(x)
    y = empty_images(shape, x, channels_last=channels_last)
    if not is_max:
        return y, empty((0,), x, "int32")
    return y, empty_images(shape, x, "int32", channels_last=channels_last)


_NUMBERS = (
    "SymInt[] out_size, SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation,"
    " bool is_adaptive, bool is_max, bool include_pad, SymInt divisor"
)


@operation(f"pool(Tensor input, {_NUMBERS}) -> (Tensor, Tensor)", allocate=_allocate)
def _pool(
    results: tuple[Any, Any],
    x: Any,
    out_size: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    is_adaptive: bool,
    is_max: bool,
    include_pad: bool,
    divisor: int,
) -> None:
    y, index = results
    outputs = math.prod(y.shape)
    if outputs == 0:
        return
    channels_last = is_channels_last(x)
    images = x
    if not channels_last:  # planes, each by itself
        images = x.reshape((math.prod(x.shape[:-2]), 1, *x.shape[-2:]))
    block = _block(x)
    pool_kernel[(tw.cdiv(outputs, block),)](
        images,
        y,
        index if is_max else None,
        outputs,
        *images.shape[1:],
        *out_size,
        *strides(images),
        *kernel,
        *stride,
        *padding,
        *dilation,
        divisor,
        CHANNELS_LAST=channels_last,
        INCLUDE_PAD=include_pad,
        ADAPTIVE=is_adaptive,
        BLOCK=block,
    )


def _block(x: Any) -> int:
    return 1024 if on_cpu(x) else 512


def _allocate_backward(dy: Any, index: Any, size: list[int], channels_last: bool, *_: Any) -> Any:
    return empty_images((*dy.shape[:-2], *size), dy, channels_last=channels_last)


@operation(
    f"pool_backward(Tensor dy, Tensor index, SymInt[] size, bool channels_last, {_NUMBERS})"
    " -> Tensor",
    allocate=_allocate_backward,
)
def _pool_backward(
    dx: Any,
    dy: Any,
    index: Any,
    size: list[int],
    channels_last: bool,
    out_size: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    is_adaptive: bool,
    is_max: bool,
    include_pad: bool,
    divisor: int,
) -> None:
    inputs = math.prod(dx.shape)
    if inputs == 0:
        return
    taps = kernel
    if is_adaptive:  # parts that may have an element
        taps = [out // have + 2 for out, have in zip(out_size, size, strict=True)]
    block = _block(dx)
    pool_backward_kernel[(tw.cdiv(inputs, block),)](
        in_order(dy, channels_last),
        in_order(index, channels_last) if is_max else None,
        dx,
        inputs,
        dx.shape[1] if channels_last else 1,
        *size,
        *out_size,
        *taps,
        *kernel,
        *stride,
        *padding,
        *dilation,
        divisor,
        CHANNELS_LAST=channels_last,
        INCLUDE_PAD=include_pad,
        ADAPTIVE=is_adaptive,
        BLOCK=block,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.numbers = inputs
    ctx.size, ctx.channels_last = list(x.shape[-2:]), is_channels_last(x)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, dy: Any, _: Any) -> tuple[Any, ...]:
    (index,) = ctx.saved_tensors
    dx = (
        None if dy is None else _pool_backward(dy, index, ctx.size, ctx.channels_last, *ctx.numbers)
    )
    return dx, *(None for _ in ctx.numbers)


_pool.register_autograd(_backward, setup_context=_setup_context)
