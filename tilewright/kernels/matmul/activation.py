"""The derivative of the activation that a product ends with."""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty_like
from tilewright.kernels.matmul.epilogue import activation_gradient
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["activation_gradients"]

_BLOCK = 1024


@tw.jit
def activation_gradient_kernel(
    linear_ptr, gradient_ptr, out_ptr, count, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    """Multiply gradients by the derivative of an activation."""
    DTYPE: tl.constexpr = accumulator(linear_ptr.dtype.element_ty)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(linear_ptr + at, mask=mask, other=0.0).to(DTYPE)
    gradient = tl.load(gradient_ptr + at, mask=mask, other=0.0).to(DTYPE)
    tl.store(out_ptr + at, gradient * activation_gradient(x, ACTIVATION), mask=mask)


def _allocate(linear: Any, gradient: Any, activation: str) -> Any:
    return empty_like(gradient)


@operation(
    "matmul_activation_gradient(Tensor linear, Tensor gradient, str activation) -> Tensor",
    allocate=_allocate,
)
def activation_gradients(out: Any, linear: Any, gradient: Any, activation: str) -> None:
    """Fill in the gradients of what an activation is of."""
    count = out.numel() if hasattr(out, "numel") else out.size
    if count == 0:
        return
    grid = (tw.cdiv(count, _BLOCK),)
    activation_gradient_kernel[grid](
        linear, contiguous(gradient), out, count, ACTIVATION=activation, BLOCK=_BLOCK
    )
