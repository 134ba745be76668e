"""The operator of matrix products: how operands lie in memory, and what is launched for them."""

from typing import Any

import tilewright as tw
from tilewright.kernels.activations import activation_gradient
from tilewright.kernels.arrays import (
    contiguous,
    descriptor_strides,
    dtype_name,
    empty,
    for_descriptors,
    is_tensor,
    on_cpu,
    product_precision,
    strides,
)
from tilewright.kernels.matmul.blocks import chunk_for
from tilewright.kernels.matmul.epilogue import Epilogue
from tilewright.kernels.matmul.product import Sizes, matmul_kernel, sum_parts_kernel
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import MULTIPROCESSORS

__all__ = ["add_parts", "itemsize_of", "matmul_operation", "oriented", "sum_dtype"]

_SUMS = {"float64": "float64", "int8": "int32"}


def itemsize_of(x: Any) -> int:
    """Return the bytes of an element."""
    return int(x.element_size() if is_tensor(x) else x.itemsize)


def sum_dtype(x: Any) -> str:
    """Return the name of the type in which products are summed up."""
    return _SUMS.get(dtype_name(x), "float32")


def oriented(x: Any) -> tuple[Any, bool]:
    """Return matrices, or their transposes, for descriptors, and which of the two."""
    if strides(x)[-1] != 1 and strides(x)[-2] == 1 and x.shape[-1] > 1:
        return for_descriptors(x.swapaxes(-1, -2)), True
    return for_descriptors(x), False


def _sizes(a: Any, b: Any) -> Sizes:
    batch, rows, inner = a.shape
    columns = b.shape[2]
    chunk = chunk_for(a, itemsize_of(a), batch, rows, columns, inner)
    parts = tw.cdiv(inner, chunk)
    return Sizes(batch, rows, columns, inner, parts, chunk, batch * parts)


def _allocate(
    a: Any,
    b: Any,
    bias: Any,
    residual: Any,
    row_scales: Any,
    column_scales: Any,
    scale: float,
    activation: str,
    keeps_linear: bool,
    dtype: str,
) -> tuple[Any, Any]:
    shape = (a.shape[0], a.shape[1], b.shape[2])
    return empty(shape, a, dtype), empty(shape if keeps_linear else (0,), a, dtype)


@operation(
    """matmul(Tensor a, Tensor b, Tensor? bias, Tensor? residual, Tensor? row_scales,
    Tensor? column_scales, float scale, str activation, bool keeps_linear,
    str dtype) -> (Tensor, Tensor)""",
    allocate=_allocate,
)
def matmul_operation(
    outputs: Any,
    a: Any,
    b: Any,
    bias: Any,
    residual: Any,
    row_scales: Any,
    column_scales: Any,
    scale: float,
    activation: str,
    keeps_linear: bool,
    dtype: str,
) -> None:
    """Fill in (batch, rows, inner) times (batch, inner, columns), and what the activation is of."""
    out, linear = outputs
    if 0 in out.shape:
        return
    if a.shape[2] == 0:
        a, b = empty((*a.shape[:2], 8), a), empty((b.shape[0], 8, b.shape[2]), b)
        a[...] = 0
        b[...] = 0
    epilogue = Epilogue(
        bias=None if bias is None else contiguous(bias),
        residual=residual,
        residual_strides=None if residual is None else strides(residual),
        linear=linear if keeps_linear else None,
        row_scales=row_scales,
        row_scale_stride=None if row_scales is None else _scale_stride(row_scales),
        column_scales=column_scales,
        column_scale_stride=None if column_scales is None else _scale_stride(column_scales),
    )
    sizes = _sizes(a, b)
    if sizes.parts == 1:
        _multiply(a, b, out, sizes, epilogue, scale, activation)
        return
    parts = empty((sizes.results, *out.shape[1:]), a, sum_dtype(a))
    _multiply(a, b, parts, sizes, Epilogue(), 1.0, "")
    add_parts(parts, out, sizes, epilogue, scale, activation)


def add_parts(
    parts: Any, out: Any, sizes: Sizes, epilogue: Epilogue, scale: float, activation: str
) -> None:
    """Launch what adds up parts of the inner axis, right behind the launch that writes them."""
    count = tw.next_power_of_2(sizes.parts)
    # Some of the columns for each thread, so that it adds up their parts by itself.
    block = max(min(8192 // count, 512, tw.next_power_of_2(sizes.columns)), 128)
    sum_parts_kernel[sizes.rows, tw.cdiv(sizes.columns, block), sizes.batch](
        parts,
        out,
        sizes,
        epilogue,
        scale,
        ACTIVATION=activation,
        SCALED=scale != 1.0,
        PARTS=count,
        BLOCK=block,
        OVERLAPS=not on_cpu(parts),
        launch_pdl=not on_cpu(parts),
    )


def _scale_stride(scales: Any) -> int:
    return 0 if scales.shape[0] == 1 else strides(scales)[0]


def _multiply(
    a: Any, b: Any, out: Any, sizes: Sizes, epilogue: Epilogue, scale: float, activation: str
) -> None:
    (left, is_left_transposed), (right, is_right_transposed) = oriented(a), oriented(b)
    is_aligned = sizes.columns * itemsize_of(out) % 16 == 0

    def grid(blocks: dict[str, Any]) -> tuple[int]:
        tiles = tw.cdiv(sizes.rows, blocks["BLOCK_M"]) * tw.cdiv(sizes.columns, blocks["BLOCK_N"])
        tiles *= sizes.results
        return (tiles if on_cpu(a) else min(tiles, MULTIPROCESSORS),)

    matmul_kernel[grid](
        left,
        right,
        out,
        (descriptor_strides(left), descriptor_strides(right), strides(out)),
        sizes,
        epilogue,
        scale,
        ACTIVATION=activation,
        SCALED=scale != 1.0,
        PRECISION=product_precision(a),
        A_TRANSPOSED=is_left_transposed,
        B_TRANSPOSED=is_right_transposed,
        BY_DESCRIPTOR=is_aligned and not on_cpu(a),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, bias, _, row_scales, column_scales, ctx.scale, ctx.activation, _, _ = inputs
    ctx.is_scaled = row_scales is not None or column_scales is not None
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(a, b, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, gradient: Any, _: Any) -> tuple[Any, ...]:
    if ctx.is_scaled:
        raise NotImplementedError("products with scales for rows or columns have no derivative")
    a, b, linear = ctx.saved_tensors
    inner = activation_gradient(gradient, linear, ctx.activation) if ctx.activation else gradient
    plain = (None, None, None, None, ctx.scale, "", False)
    needs_a, needs_b, needs_bias, needs_residual, *_ = ctx.needs_input_grad
    a_gradient = b_gradient = bias_gradient = None
    if needs_a:
        a_gradient, _ = matmul_operation(inner, b.mT, *plain, dtype_name(a))
    if needs_b:
        b_gradient, _ = matmul_operation(a.mT, inner, *plain, dtype_name(b))
    if needs_bias:
        bias_gradient = inner.sum((0, 1)).to(ctx.bias_dtype)
    residual_gradient = gradient if needs_residual else None
    return a_gradient, b_gradient, bias_gradient, residual_gradient, *(None,) * 6


matmul_operation.register_autograd(_backward, setup_context=_setup_context)
