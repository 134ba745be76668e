"""Dropout that keeps no mask: the backward pass draws the same random numbers again."""

import math
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    contiguous,
    empty_in_layout_of,
    empty_like,
    is_contiguous,
)
from tilewright.kernels.checks import array, floating, seed_array, share
from tilewright.kernels.elementwise import element_block, element_configs
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator

__all__ = ["dropout"]


def dropout(input: Any, p: float = 0.5, training: bool = True, *, seed: Any = None) -> Any:
    """Return `input`, each element 0 at the rate `p`, or divided by 1 - p; differentiable.

    Which elements are 0 depends on the seed and on their place alone: the same on every device.
    Nothing but the seed is kept for the backward pass.

    Args:
        input: Array of fp16, bf16, fp32 or fp64, of any shape and strides.
        p: The rate, from 0 to 1.
        training: Where false, the result is `input` itself.
        seed: An integer, or an array of one int64 on the device of `input`; by default a random
            one, of PyTorch's generator for that device or NumPy's.

    Returns:
        An array of the shape, dtype and layout of `input`.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011 (Philox).

    >>> import numpy as np
    >>> dropout(np.ones(8), 0.5, seed=1)
    array([0., 0., 2., 2., 2., 0., 2., 2.])
    """
    array(input=input)
    share(p=p)
    return _dropout(input, seed_array(input, seed), float(p)) if training else input


@tw.autotune(element_configs, key=["columns"], default=element_block)
@tw.jit
def dropout_kernel(
    x_ptr, seed_ptr, out_ptr, columns, p, scale_high, scale_low, BLOCK: tl.constexpr
):
    """Four elements for each counter of the generator; the scale is a sum, which fp64 needs."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    block = tl.program_id(0).to(tl.int64)
    counter = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    r0, r1, r2, r3 = tl.rand4x(tl.load(seed_ptr), counter)
    random = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (BLOCK,))
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + at, mask).to(DTYPE)
    scale = tl.cast(scale_high, DTYPE) + tl.cast(scale_low, DTYPE)
    tl.store(out_ptr + at, tl.where(random >= p, x * scale, 0.0), mask, cache_modifier=".cs")


def _allocate(x: Any, seed: Any, p: float) -> Any:
    floating(input=x)
    return empty_in_layout_of(x)


@operation("dropout(Tensor input, Tensor seed, float p) -> Tensor", allocate=_allocate)
def _dropout(out: Any, x: Any, seed: Any, p: float) -> None:
    columns = math.prod(x.shape)
    if columns == 0:
        return
    scale = 1 / (1 - p) if p < 1 else 0.0
    high = float(np.float32(scale))

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (tw.cdiv(columns, meta["BLOCK"]),)

    # Elements are numbered in row-major order, whatever the layout: else a gradient of another
    # layout than the input's would have zeros at other elements.
    lined = out if is_contiguous(out) else empty_like(x)
    dropout_kernel[grid](contiguous(x), seed, lined, columns, p, high, scale - high)
    if lined is not out:
        out[...] = lined


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, seed, ctx.p = inputs
    ctx.save_for_backward(seed)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    return _dropout(dy, *ctx.saved_tensors, ctx.p), None, None


_dropout.register_autograd(_backward, setup_context=_setup_context)
