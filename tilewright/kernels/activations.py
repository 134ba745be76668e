"""Activations, and gated ones of two halves, forward and backward."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import empty, empty_in_layout_of, empty_like
from tilewright.kernels.checks import even_sized, floating, one_of, same_dtype, same_kind, shaped
from tilewright.kernels.elementwise import (
    element_block,
    element_configs,
    grid,
    in_memory_order,
    lines,
    place,
    row_stride,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = [
    "activation_gradient",
    "geglu",
    "gelu",
    "relu",
    "silu",
    "swiglu",
    "value_and_slope",
]

_APPROXIMATIONS = ("none", "tanh")


def relu(input: Any) -> Any:
    """Return max(input, 0); differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides.

    Returns:
        An array of the shape and dtype of `input`.

    >>> import numpy as np
    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return _activation(input, "relu")


def silu(input: Any) -> Any:
    """Return input * sigmoid(input); differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides. Computed in fp32 (fp64).

    Returns:
        An array of the shape and dtype of `input`.

    Source: Elfwing et al., "Sigmoid-weighted linear units", 2017.

    >>> import numpy as np
    >>> silu(np.array([-1.0, 2.0])).round(3)
    array([-0.269,  1.762])
    """
    return _activation(input, "silu")


def gelu(input: Any, approximate: str = "none") -> Any:
    """Return `input` times the probability of a standard normal number up to it; differentiable.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides. Computed in fp32 (fp64).
        approximate: "none", input (1 + erf(input / sqrt(2))) / 2; or "tanh",
            input (1 + tanh(sqrt(2 / pi) (input + 0.044715 input^3))) / 2.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> import numpy as np
    >>> gelu(np.array([-1.0, 2.0])).round(3)
    array([-0.159,  1.954])
    """
    return _activation(input, _gelu_kind(approximate))


def swiglu(gate: Any, up: Any = None) -> Any:
    """Return silu(gate) * up, in one pass; differentiable.

    Args:
        gate: Array of fp16, bf16, fp32 or fp64, of any strides. Computed in fp32 (fp64).
        up: Array of the shape and dtype of `gate`; or None where `gate` has both, one behind the
            other in the last dimension: their gradient is then one array, too.

    Returns:
        An array of the shape of `up` and the dtype of `gate`.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    >>> import numpy as np
    >>> swiglu(np.array([1.0, 2.0]), np.array([3.0, 1.0])).round(3)
    array([2.193, 1.762])
    >>> swiglu(np.array([1.0, 2.0, 3.0, 1.0])).round(3)
    array([2.193, 1.762])
    """
    return _gated(gate, up, "silu")


def geglu(gate: Any, up: Any = None, approximate: str = "none") -> Any:
    """Return gelu(gate, approximate) * up, in one pass; differentiable.

    Args:
        gate: Array of fp16, bf16, fp32 or fp64, of any strides. Computed in fp32 (fp64).
        up: Array of the shape and dtype of `gate`; or None where `gate` has both, one behind the
            other in the last dimension: their gradient is then one array, too.
        approximate: "none" or "tanh", as in `gelu`.

    Returns:
        An array of the shape of `up` and the dtype of `gate`.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.

    >>> import numpy as np
    >>> geglu(np.array([1.0, 2.0]), np.array([3.0, 1.0])).round(3)
    array([2.524, 1.954])
    """
    return _gated(gate, up, _gelu_kind(approximate))


def _gelu_kind(approximate: str) -> str:
    one_of(_APPROXIMATIONS, approximate=approximate)
    return "gelu" if approximate == "none" else "gelu_tanh"


@tw.jit
def value_and_slope(x, KIND: tl.constexpr):
    """Return an activation of `x`, and its derivative."""
    if KIND == "relu":
        # A comparison that is true for numbers alone would lose NaN.
        return tl.where(x < 0, 0.0, x), tl.where(x <= 0, 0.0, 1.0)
    if KIND == "silu":
        part = tl.sigmoid(x)
        return x * part, part * (1 + x * (1 - part))
    if KIND == "gelu_tanh":
        # (1 + tanh(z)) / 2 is sigmoid(2 z), here with z = sqrt(2 / pi) (x + 0.044715 x^3).
        part = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))
        inner = 1.5957691216057308 * (1 + 3 * 0.044715 * x * x)
        return x * part, part * (1 + x * (1 - part) * inner)
    below = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
    density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
    return x * below, below + x * density


@tw.jit
def gradient_of(x, dy, KIND: tl.constexpr):
    """Return the gradient of `x`, from that of its activation."""
    if KIND == "relu":
        # The product of 0 and a gradient that is not finite would be NaN.
        return tl.where(x <= 0, 0.0, dy)
    _, slope = value_and_slope(x, KIND)
    return slope * dy


@tw.autotune(element_configs, key=["columns"], default=element_block)
@tw.jit
def activation_kernel(
    x_ptr,
    dy_ptr,
    out_ptr,
    columns,
    x_row_stride,
    dy_row_stride,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """An activation of a part of a row; its gradient where there is `dy_ptr`."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    row, column = place(columns, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * x_row_stride + column, mask, 0.0).to(DTYPE)
    if dy_ptr is None:
        y, _ = value_and_slope(x, KIND)
    else:
        dy = tl.load(dy_ptr + row * dy_row_stride + column, mask, 0.0).to(DTYPE)
        y = gradient_of(x, dy, KIND)
    tl.store(out_ptr + row * columns + column, y, mask, cache_modifier=".cs")


def _allocate(x: Any, kind: str) -> Any:
    floating(input=x)
    return empty_in_layout_of(x)


@operation("activation(Tensor input, str kind) -> Tensor", allocate=_allocate)
def _activation(out: Any, x: Any, kind: str) -> None:
    _launch(out, x, None, kind)


def _launch(out: Any, x: Any, dy: Any, kind: str) -> None:
    x, dy = lines(*in_memory_order(out, x, dy))
    rows, columns = x.shape
    if rows * columns == 0:
        return
    activation_kernel[grid(rows, columns)](
        x, dy, out, columns, row_stride(x), row_stride(dy), KIND=kind
    )


def _allocate_backward(dy: Any, x: Any, kind: str) -> Any:
    return empty_in_layout_of(x)


@operation(
    "activation_backward(Tensor dy, Tensor x, str kind) -> Tensor", allocate=_allocate_backward
)
def activation_gradient(dx: Any, dy: Any, x: Any, kind: str) -> None:
    """Compute the gradient of the input `x` of an activation."""
    _launch(dx, x, dy, kind)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    return activation_gradient(dy, *ctx.saved_tensors, ctx.kind), None


_activation.register_autograd(_backward, setup_context=_setup_context)


@tw.autotune(element_configs, key=["columns"], default=element_block)
@tw.jit
def gated_kernel(
    gate_ptr,
    up_ptr,
    y_ptr,
    columns,
    gate_row_stride,
    up_row_stride,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """An activation of a part of a row, times another row."""
    DTYPE: tl.constexpr = accumulator(gate_ptr.dtype.element_ty)
    row, column = place(columns, BLOCK)
    mask = column < columns
    gate = tl.load(gate_ptr + row * gate_row_stride + column, mask, 0.0).to(DTYPE)
    up = tl.load(up_ptr + row * up_row_stride + column, mask, 0.0).to(DTYPE)
    y, _ = value_and_slope(gate, KIND)
    tl.store(y_ptr + row * columns + column, y * up, mask, cache_modifier=".cs")


@tw.autotune(element_configs, key=["columns"], default=element_block)
@tw.jit
def gated_backward_kernel(
    gate_ptr,
    up_ptr,
    dy_ptr,
    dgate_ptr,
    dup_ptr,
    columns,
    gate_row_stride,
    up_row_stride,
    dy_row_stride,
    out_row_stride,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of both rows."""
    DTYPE: tl.constexpr = accumulator(gate_ptr.dtype.element_ty)
    row, column = place(columns, BLOCK)
    mask = column < columns
    gate = tl.load(gate_ptr + row * gate_row_stride + column, mask, 0.0).to(DTYPE)
    up = tl.load(up_ptr + row * up_row_stride + column, mask, 0.0).to(DTYPE)
    dy = tl.load(dy_ptr + row * dy_row_stride + column, mask, 0.0).to(DTYPE)
    y, slope = value_and_slope(gate, KIND)
    out = row * out_row_stride + column
    tl.store(dgate_ptr + out, dy * up * slope, mask, cache_modifier=".cs")
    tl.store(dup_ptr + out, dy * y, mask, cache_modifier=".cs")


def _halves(gate: Any, up: Any) -> tuple[Any, Any]:
    if up is not None:
        return gate, up
    half = gate.shape[-1] // 2
    return gate[..., :half], gate[..., half:]


def _allocate_gated(gate: Any, up: Any, kind: str) -> Any:
    floating(gate=gate, up=up)
    if up is None:
        even_sized(gate=gate)
        return empty((*gate.shape[:-1], gate.shape[-1] // 2), gate)
    same_kind(gate=gate, up=up)
    same_dtype(gate=gate, up=up)
    shaped(tuple(gate.shape), up=up)
    return empty_in_layout_of(gate)


@operation(
    "gated_activation(Tensor gate, Tensor? up, str kind) -> Tensor", allocate=_allocate_gated
)
def _gated(y: Any, gate: Any, up: Any, kind: str) -> None:
    gate, up = lines(*in_memory_order(y, *_halves(gate, up)))
    rows, columns = gate.shape
    if rows * columns == 0:
        return
    gated_kernel[grid(rows, columns)](
        gate, up, y, columns, row_stride(gate), row_stride(up), KIND=kind
    )


def _allocate_gated_backward(dy: Any, gate: Any, up: Any, kind: str) -> Any:
    return empty_like(gate), empty((0,), gate) if up is None else empty_like(up)


@operation(
    "gated_activation_backward(Tensor dy, Tensor gate, Tensor? up, str kind) -> (Tensor, Tensor)",
    allocate=_allocate_gated_backward,
)
def _gated_backward(outputs: Any, dy: Any, gate: Any, up: Any, kind: str) -> None:
    dgate, dup = outputs if up is not None else _halves(outputs[0], None)
    gate, up, dy, dgate, dup = lines(*_halves(gate, up), dy, dgate, dup)
    rows, columns = gate.shape
    if rows * columns == 0:
        return
    gated_backward_kernel[grid(rows, columns)](
        gate,
        up,
        dy,
        dgate,
        dup,
        columns,
        *map(row_stride, (gate, up, dy, dgate)),
        KIND=kind,
    )


def _setup_context_gated(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    gate, up, ctx.kind = inputs
    ctx.save_for_backward(gate, up)


def _backward_gated(ctx: Any, dy: Any) -> tuple[Any, ...]:
    gate, up = ctx.saved_tensors
    dgate, dup = _gated_backward(dy, gate, up, ctx.kind)
    return dgate, None if up is None else dup, None


_gated.register_autograd(_backward_gated, setup_context=_setup_context_gated)
