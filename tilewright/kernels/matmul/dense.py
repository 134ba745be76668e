"""Products of matrices and of batches of them."""

import math
from typing import Any

import numpy as np

from tilewright.kernels.arrays import dtype_name, is_tensor, torch
from tilewright.kernels.checks import (
    array,
    broadcastable,
    floating,
    ranked,
    same_dtype,
    same_kind,
    shaped,
)
from tilewright.kernels.matmul.epilogue import ACTIVATIONS
from tilewright.kernels.matmul.operator import matmul_operation
from tilewright.kernels.operation import under_autocast

__all__ = ["linear", "matmul"]


def matmul(
    input: Any,
    other: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    scale: float = 1.0,
) -> Any:
    """Return activation(scale * input other + bias) + residual, in one kernel; differentiable.

    Args:
        input: (..., M, K) or (K,) of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32
            (fp64); on a GPU fp32 is multiplied as `torch.set_float32_matmul_precision` says.
        other: (..., K, N) or (K,), of the same dtype; leading axes broadcast.
        bias: (N,), added to each row.
        activation: "relu", "gelu", "gelu_tanh" (the approximation) or "silu".
        residual: Broadcastable to the result, added at the end.
        scale: A factor for the product.

    Returns:
        An array (..., M, N) of the dtype of `input`.

    Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.

    >>> import numpy as np
    >>> matmul(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), activation="relu")
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    input, other, bias, residual = under_autocast((input, other, bias, residual), "lower")
    _require_operands(bias, residual, input=input, other=other)
    a = input[None] if input.ndim == 1 else input
    b = other[:, None] if other.ndim == 1 else other
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"`input` has the shape {tuple(input.shape)}, and `other` {tuple(other.shape)}: "
            f"{a.shape[-1]} columns, and {b.shape[-2]} rows"
        )
    out = _product(a, b, bias, activation, residual, scale)
    out = out[..., 0, :] if input.ndim == 1 else out
    return out[..., 0] if other.ndim == 1 else out


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    scale: float = 1.0,
) -> Any:
    """Return activation(scale * input weightᵀ + bias) + residual, in one kernel; differentiable.

    Args:
        input: (..., K) of fp16, bf16, fp32 or fp64, of any strides.
        weight: (N, K), of the same dtype.
        bias: (N,).
        activation: As for `matmul`.
        residual: Broadcastable to the result, added at the end.
        scale: A factor for the product.

    Returns:
        An array (..., N) of the dtype of `input`.

    >>> import numpy as np
    >>> linear(np.ones((1, 3), np.float32), np.ones((2, 3), np.float32), np.ones(2, np.float32))
    array([[4., 4.]], dtype=float32)
    """
    input, weight, bias, residual = under_autocast((input, weight, bias, residual), "lower")
    _require_operands(bias, residual, input=input, weight=weight)
    if weight.ndim != 2:
        raise ValueError(f"`weight` has {weight.ndim} axes; (N, K) is needed")
    if input.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"`input` has the shape {tuple(input.shape)}, and `weight` {tuple(weight.shape)};"
            " (..., K) and (N, K) are needed"
        )
    a = input[None] if input.ndim == 1 else input
    out = _product(a, weight.swapaxes(0, 1), bias, activation, residual, scale)
    return out[..., 0, :] if input.ndim == 1 else out


def _require_operands(bias: Any, residual: Any, **operands: Any) -> None:
    array(**operands)
    floating(**operands, bias=bias, residual=residual)
    same_kind(**operands, bias=bias, residual=residual)
    ranked(1, None, **operands)
    same_dtype(**operands)


def _product(a: Any, b: Any, bias: Any, activation: str | None, residual: Any, scale: float) -> Any:
    """Fold the axes before the last two into one, or into rows where the right operand has none."""
    name = activation or ""
    if name not in ACTIVATIONS:
        raise ValueError(f"`activation` is {name!r}; one of {', '.join(ACTIVATIONS[1:])} is needed")
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    shaped((columns,), bias=bias)
    batch = tuple(np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2])))
    if b.ndim == 2:
        folded = (1, math.prod(batch) * rows)
    else:
        folded = (math.prod(batch), rows)
        a, b = _expanded(a, (*batch, rows, inner)), _expanded(b, (*batch, inner, columns))
    if residual is not None:
        broadcastable((*batch, rows, columns), residual=residual)
        residual = _expanded(residual, (*batch, rows, columns)).reshape((*folded, columns))
    out, _ = matmul_operation(
        a.reshape((*folded, inner)),
        b.reshape((folded[0], inner, columns)),
        bias,
        residual,
        None,
        None,
        scale,
        name,
        bool(name) and _is_differentiated(a, b, bias),
        dtype_name(a),
    )
    return out.reshape((*batch, rows, columns))


def _expanded(x: Any, shape: tuple[int, ...]) -> Any:
    return x.expand(shape) if is_tensor(x) else np.broadcast_to(x, shape)


def _is_differentiated(*arrays: Any) -> bool:
    """Whether a backward pass may need what an activation is of."""
    if not is_tensor(arrays[0]) or not torch.is_grad_enabled():
        return False
    return any(x is not None and x.requires_grad for x in arrays)
