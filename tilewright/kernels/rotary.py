"""Rotary position embedding, forward and backward."""

import math
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, empty_like, strides
from tilewright.kernels.checks import floating, same_kind, shaped
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import accumulator, row_blocks, row_configs, row_warps

__all__ = ["rotary_embedding"]


def rotary_embedding(input: Any, cos: Any, sin: Any, interleaved: bool = False) -> Any:
    """Return `input`, pairs of its last dimension turned by angles of each place; differentiable.

    The pair (a, b) becomes (a cos - b sin, b cos + a sin). Elements behind the pairs stay.

    Args:
        input: Queries or keys of shape (..., places, size), of fp16, bf16, fp32 or fp64 and any
            strides. Computed in fp32 (fp64).
        cos: The cosines of angles, of shape (places, pairs), with 2 * pairs <= size.
        sin: The sines, of the same shape. Neither gets a gradient.
        interleaved: Whether a pair is two neighbours; by default it is an element of the first half
            of the 2 * pairs elements and the one at its place in the second half.

    Returns:
        An array of the shape and dtype of `input`.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

    >>> import numpy as np
    >>> x = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> rotary_embedding(x, np.zeros((1, 2)), np.ones((1, 2)))
    array([[-3., -4.,  1.,  2.]])
    """
    return _rotary(input, cos, sin, interleaved, False)


@tw.autotune(row_configs, key=["rows", "size"], default=row_warps)
@tw.jit
def rotary_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    rows,
    heads,
    places,
    size,
    pairs,
    x_batch_stride,
    x_head_stride,
    x_place_stride,
    x_stride,
    INTERLEAVED: tl.constexpr,
    INVERSE: tl.constexpr,
    HAS_REST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    REST: tl.constexpr,
):
    """Turn the pairs of `ROWS` rows, backwards if `INVERSE`; `BLOCK` holds those of a row twice."""
    DTYPE: tl.constexpr = accumulator(x_ptr.dtype.element_ty)
    HALF: tl.constexpr = BLOCK // 2
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = (row < rows)[:, None]
    place = row % places
    head = row // places % heads
    batch = (row // (places * heads)).to(tl.int64)
    x_row = batch * x_batch_stride + head.to(tl.int64) * x_head_stride
    x_row = (x_ptr + x_row + place.to(tl.int64) * x_place_stride)[:, None]
    out_row = out_ptr + row.to(tl.int64)[:, None] * size
    pair = tl.arange(0, HALF)[None, :]
    mask = is_row & (pair < pairs)
    angle = place[:, None] * pairs + pair
    cos = tl.load(cos_ptr + angle, mask, 0.0).to(DTYPE)
    sin = tl.load(sin_ptr + angle, mask, 0.0).to(DTYPE)
    if INVERSE:
        sin = -sin
    if INTERLEAVED:
        column = tl.arange(0, BLOCK)[None, :]
        both = is_row & (column < 2 * pairs)
        x = tl.load(x_row + column * x_stride, both, 0.0).to(DTYPE)
        a, b = tl.split(tl.reshape(x, (ROWS, HALF, 2)))
        turned = tl.reshape(tl.join(a * cos - b * sin, b * cos + a * sin), (ROWS, BLOCK))
        tl.store(out_row + column, turned, both)
    else:
        a = tl.load(x_row + pair * x_stride, mask, 0.0).to(DTYPE)
        b = tl.load(x_row + (pairs + pair) * x_stride, mask, 0.0).to(DTYPE)
        tl.store(out_row + pair, a * cos - b * sin, mask)
        tl.store(out_row + pairs + pair, b * cos + a * sin, mask)
    if HAS_REST:
        column = 2 * pairs + tl.arange(0, REST)[None, :]
        mask = is_row & (column < size)
        tl.store(out_row + column, tl.load(x_row + column * x_stride, mask), mask)


def _about_full_width(x: Any, cos: Any, interleaved: bool) -> str:
    """Return what to do about tables that have each angle twice; "" if they do not look so."""
    if x.ndim < 1 or cos.ndim < 2 or cos.shape[-1] != x.shape[-1]:
        return ""
    half = "::2" if interleaved else f":{x.shape[-1] // 2}"
    batch = "0, " * (cos.ndim - 2)
    places = ":" if batch else "..."
    return f"; of tables that have each angle twice, pass one half: `cos[{batch}{places}, {half}]`"


def _allocate(x: Any, cos: Any, sin: Any, interleaved: bool, inverse: bool) -> Any:
    floating(input=x, cos=cos, sin=sin)
    same_kind(input=x, cos=cos, sin=sin)
    if x.ndim < 2 or cos.ndim != 2 or 2 * cos.shape[1] > x.shape[-1]:
        raise ValueError(
            f"`input` has the shape {tuple(x.shape)}, and `cos` {tuple(cos.shape)}; needed are"
            " (..., places, size) and (places, pairs), with 2 * pairs <= size"
            + _about_full_width(x, cos, interleaved)
        )
    shaped((x.shape[-2], cos.shape[1]), cos=cos, sin=sin)
    return empty_like(x)


@operation(
    "rotary_embedding(Tensor input, Tensor cos, Tensor sin, bool interleaved, bool inverse)"
    " -> Tensor",
    allocate=_allocate,
)
def _rotary(out: Any, x: Any, cos: Any, sin: Any, interleaved: bool, inverse: bool) -> None:
    *outer, places, size = x.shape
    pairs = cos.shape[1]
    rows = math.prod(outer) * places
    if rows * size == 0:
        return
    heads = outer[-1] if outer else 1
    x = x.reshape((math.prod(outer[:-1]), heads, places, size))
    per_program, block = row_blocks(x, rows, max(2 * pairs, 2))
    rotary_kernel[(tw.cdiv(rows, per_program),)](
        x,
        contiguous(cos),
        contiguous(sin),
        out,
        rows,
        heads,
        places,
        size,
        pairs,
        *strides(x),
        INTERLEAVED=interleaved,
        INVERSE=inverse,
        HAS_REST=size > 2 * pairs,
        ROWS=per_program,
        BLOCK=block,
        REST=tw.next_power_of_2(max(size - 2 * pairs, 1)),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, cos, sin, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    # The transpose of a rotation turns back.
    return _rotary(dy, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse), None, None, None, None


_rotary.register_autograd(_backward, setup_context=_setup_context)
