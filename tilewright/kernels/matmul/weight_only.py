"""Products with weights of four bits, two in a byte, and a scale for each group along a row."""

import functools
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    descriptor_strides,
    dtype_name,
    empty,
    for_descriptors,
    is_tensor,
    itemsize,
    on_cpu,
    strides,
    torch,
)
from tilewright.kernels.checks import array, floating, of_bytes, plain, ranked, same_kind, shaped
from tilewright.kernels.matmul.blocks import steps_for
from tilewright.kernels.matmul.epilogue import Epilogue
from tilewright.kernels.matmul.four_bits import NF4
from tilewright.kernels.matmul.operator import add_parts, matmul_operation, sum_dtype
from tilewright.kernels.matmul.product import Sizes
from tilewright.kernels.matmul.weight_only_kernels import (
    dequantize_kernel,
    quantize_kernel,
    weight_only_kernel,
    weight_only_row_kernel,
)
from tilewright.kernels.operation import operation, under_autocast

__all__ = ["dequantize_weight", "quantize_weight", "quantized_linear"]

KINDS = ("int4", "nf4")
_MOST_ROWS = 64  # of an input that is multiplied by weights as they are
_STAGES = 4
_ROW_COLUMNS, _ROW_UNITS, _ROW_WARPS = 8, 128, 4


def quantize_weight(
    weight: Any, kind: str = "int4", group: int = 128, *, zero_points: bool = False
) -> Any:
    """Return a weight in four bits, its scales, and its zero points if they are asked for.

    A number is the scale of its group times what its code stands for: from 0 to 15, the code - 8,
    the code - the zero point of the group, or one of 16 numbers ("nf4").

    Args:
        weight: (N, K) of fp16, bf16 or fp32; `group` divides K.
        kind: "int4", whole numbers from -8 to 7, or "nf4", 16 numbers as a normal distribution has
            them, for weights of such a one.
        group: How many neighbours in a row share a scale: a power of two from 32 on.
        zero_points: Whether codes of "int4" go from the lowest to the highest number of a group,
            for weights that are not around 0. By default they are symmetric.

    Returns:
        (N, K / 2) of uint8, in an order that tensor cores read: `pack_weight` gives it to codes
        from elsewhere; scales (N, K / group) of the dtype of `weight`; with `zero_points`,
        (N, K / group) of uint8: the codes of 0. In memory both have columns one after another.

    Source: Dettmers et al., "QLoRA", 2023.

    >>> import numpy as np
    >>> packed, scales = quantize_weight(np.ones((4, 256), np.float32))
    >>> packed.shape, scales.shape
    ((4, 128), (4, 2))
    """
    array(weight=weight)
    floating(weight=weight)
    _require(kind, group, has_zero_points=zero_points)
    if weight.ndim != 2 or weight.shape[1] % group:
        raise ValueError(
            f"`weight` has the shape {tuple(weight.shape)}; (N, K) with a K that "
            f"{group} divides is needed"
        )
    packed, scales, zeros = _quantize(weight, kind, group, zero_points)
    return (packed, scales, zeros) if zero_points else (packed, scales)


def dequantize_weight(
    packed: Any, scales: Any, kind: str = "int4", *, zero_points: Any = None
) -> Any:
    """Return the weight (N, K) that `quantize_weight` made smaller, of the dtype of the scales.

    Args:
        packed: (N, K / 2) of uint8.
        scales: (N, K / group) of fp16, bf16 or fp32.
        kind: "int4" or "nf4".
        zero_points: (N, K / group) of uint8, if it was made with them.

    Returns:
        An array (N, K).

    >>> import numpy as np
    >>> dequantize_weight(*quantize_weight(np.full((1, 128), 7.0, np.float32)))[0, :2]
    array([7., 7.], dtype=float32)
    """
    _require_packed(packed, scales)
    same_kind(packed=packed, scales=scales, zero_points=zero_points)
    _require(kind, _group_of(packed, scales), has_zero_points=zero_points is not None)
    _require_zero_points(zero_points, scales)
    return _dequantize(packed, scales, zero_points, kind)


def quantized_linear(
    input: Any,
    packed: Any,
    scales: Any,
    bias: Any = None,
    *,
    kind: str = "int4",
    zero_points: Any = None,
) -> Any:
    """Return input weightᵀ + bias for a weight of four bits; differentiable by `input`, `bias`.

    Few rows are multiplied by the weight as it is, which is read once; for many it is made whole.

    Args:
        input: (..., K) of fp16, bf16 or fp32.
        packed: (N, K / 2) of uint8, from `quantize_weight`.
        scales: (N, K / group), of the dtype of `input`.
        bias: (N,), of that dtype.
        kind: "int4" or "nf4".
        zero_points: (N, K / group) of uint8, at most 128, if the weight was made with them; with
            them, what an infinite input is part of may be NaN.

    Returns:
        An array (..., N) of the dtype of `input`.

    >>> import numpy as np
    >>> packed, scales = quantize_weight(np.full((2, 128), 7.0, np.float32))
    >>> quantized_linear(np.ones((1, 128), np.float32), packed, scales)
    array([[896., 896.]], dtype=float32)
    """
    input, scales, bias = under_autocast((input, scales, bias), "lower")
    array(input=input)
    floating(input=input, bias=bias)
    ranked(1, None, input=input)
    _require_packed(packed, scales)
    same_kind(input=input, packed=packed, scales=scales, bias=bias, zero_points=zero_points)
    _require(kind, _group_of(packed, scales), has_zero_points=zero_points is not None)
    _require_zero_points(zero_points, scales)
    columns, inner = packed.shape[0], 2 * packed.shape[1]
    if input.shape[-1] != inner:
        raise ValueError(f"`input` has rows of {input.shape[-1]}, and `packed` of {inner} numbers")
    if input.dtype != scales.dtype:
        raise TypeError(f"`input` is of {input.dtype}, and `scales` of {scales.dtype}")
    shaped((columns,), bias=bias)
    rows = input.reshape((-1, inner))
    out = _multiply(rows, packed, scales, zero_points, bias, kind)
    return out.reshape((*input.shape[:-1], columns))


def _require(kind: str, group: int, *, has_zero_points: bool) -> None:
    if kind not in KINDS:
        raise ValueError(f"`kind` is {kind!r}; one of {', '.join(KINDS)} is needed")
    if has_zero_points and kind != "int4":
        raise ValueError(f"`zero_points` are for whole numbers: `kind` is {kind!r}, not 'int4'")
    plain("an integer", group=group)
    if group < 32 or group & (group - 1):
        raise ValueError(f"groups of {group} numbers; a power of two from 32 on is needed")


def _require_packed(packed: Any, scales: Any) -> None:
    array(packed=packed, scales=scales)
    of_bytes(packed=packed)
    floating(scales=scales)
    ranked(2, 2, packed=packed, scales=scales)


def _require_zero_points(zero_points: Any, scales: Any) -> None:
    if zero_points is None:
        return
    shaped(tuple(scales.shape), zero_points=zero_points)
    of_bytes(zero_points=zero_points)


def _group_of(packed: Any, scales: Any) -> int:
    group: int = 2 * packed.shape[1] // max(scales.shape[1], 1)
    return group


@functools.cache
def _codes(device: Any) -> Any:
    """Return the numbers of NF4 where the kernel reads them."""
    numbers = np.array(NF4, np.float32)
    return numbers if device is None else torch.from_numpy(numbers).to(device)


def _codes_for(x: Any, kind: str) -> Any:
    if kind == "int4":
        return None
    return _codes(x.device if is_tensor(x) else None)


def _allocate_quantized(
    weight: Any, kind: str, group: int, has_zero_points: bool
) -> tuple[Any, Any, Any]:
    rows, columns = weight.shape
    packed = empty((rows, columns // 2), weight, "uint8")
    groups = columns // group
    zeros = empty((groups if has_zero_points else 0, rows), weight, "uint8")
    return packed, empty((groups, rows), weight).swapaxes(0, 1), zeros.swapaxes(0, 1)


@operation(
    """quantize_weight(Tensor weight, str kind, int group,
    bool has_zero_points) -> (Tensor, Tensor, Tensor)""",
    allocate=_allocate_quantized,
)
def _quantize(outputs: Any, weight: Any, kind: str, group: int, has_zero_points: bool) -> None:
    packed, scales, zeros = outputs
    if 0 in packed.shape:
        return
    quantize_kernel[scales.shape](
        contiguous(weight),
        packed,
        scales,
        zeros if has_zero_points else None,
        KIND=kind,
        GROUP=group,
    )


def _allocate_whole(packed: Any, scales: Any, zero_points: Any, kind: str) -> Any:
    return empty((packed.shape[0], 2 * packed.shape[1]), scales)


@operation(
    "dequantize_weight(Tensor packed, Tensor scales, Tensor? zero_points, str kind) -> Tensor",
    allocate=_allocate_whole,
)
def _dequantize(out: Any, packed: Any, scales: Any, zero_points: Any, kind: str) -> None:
    if 0 in out.shape:
        return
    units = packed.shape[0] * packed.shape[1] // 16
    has_zeros = zero_points is not None
    dequantize_kernel[(tw.cdiv(units, 64),)](
        _words(packed),
        scales,
        zero_points,
        _codes_for(scales, kind),
        out,
        (strides(scales), strides(zero_points) if has_zeros else None),
        units,
        out.shape[1],
        KIND=kind,
        GROUP=_group_of(packed, scales),
        UNITS=64,
    )


def _words(x: Any) -> Any:
    """Return packed numbers, or pairs of numbers of 16 bits, in words, aligned for descriptors."""
    x = for_descriptors(contiguous(x))
    return x.view(torch.int32 if is_tensor(x) else np.int32)


def _allocate(x: Any, packed: Any, scales: Any, zero_points: Any, bias: Any, kind: str) -> Any:
    return empty((x.shape[0], packed.shape[0]), x)


@operation(
    """quantized_linear(Tensor x, Tensor packed, Tensor scales, Tensor? zero_points, Tensor? bias,
    str kind) -> Tensor""",
    allocate=_allocate,
)
def _multiply(
    out: Any, x: Any, packed: Any, scales: Any, zero_points: Any, bias: Any, kind: str
) -> None:
    (rows, inner), columns = x.shape, packed.shape[0]
    if 0 in out.shape:
        return
    if rows > _MOST_ROWS or inner == 0:
        whole = _dequantize(packed, scales, zero_points, kind)
        product, _ = matmul_operation(
            x[None],
            whole.swapaxes(0, 1)[None],
            bias,
            None,
            None,
            None,
            1.0,
            "",
            False,
            dtype_name(x),
        )
        out[...] = product[0]
        return
    if rows == 1 and kind == "int4" and itemsize(x) == 2 and not on_cpu(x):
        _launch_row(x, packed, scales, zero_points, bias, out)
        return
    sums, chunk = _launch_parts(x, packed, scales, zero_points, kind)
    parts = sums.shape[0]
    sizes = Sizes(1, rows, columns, inner, parts, chunk, parts)
    epilogue = Epilogue(bias=None if bias is None else contiguous(bias))
    add_parts(sums, out, sizes, epilogue, 1.0, "")


def _launch_row(x: Any, packed: Any, scales: Any, zero_points: Any, bias: Any, out: Any) -> None:
    """Multiply a row of 16-bit numbers in one launch."""
    columns, inner = packed.shape[0], x.shape[1]
    units = min(tw.next_power_of_2(inner // 32), _ROW_UNITS)
    weight_only_row_kernel[(tw.cdiv(columns, _ROW_COLUMNS),)](
        _words(x),
        _words(packed),
        scales,
        zero_points,
        None if bias is None else contiguous(bias),
        out,
        (strides(scales), None if zero_points is None else strides(zero_points)),
        (columns, inner),
        GROUP=_group_of(packed, scales),
        BLOCK_N=_ROW_COLUMNS,
        UNITS=units,
        num_warps=_ROW_WARPS,
    )


def _launch_parts(x: Any, packed: Any, scales: Any, zero_points: Any, kind: str) -> tuple[Any, int]:
    """Return the sums of parts of the inner axis, and how long a part is."""
    (rows, inner), columns, group = x.shape, packed.shape[0], _group_of(packed, scales)
    is_short = itemsize(x) == 2 and not on_cpu(x)
    block_rows, block_columns = max(16, tw.next_power_of_2(rows)), 128 if is_short else 64
    depth = min(group, 128)
    # The products of a group run beside the unpacking of another, if registers are left for both.
    together = 2 if is_short and kind == "int4" and block_rows <= 16 else 1
    tiles, steps = tw.cdiv(columns, block_columns), inner // depth
    staged = _STAGES * together * depth * (block_columns // 2 + block_rows * itemsize(x))
    # Numbers are made in more registers than codes are looked up in.
    chunk = steps_for(x, tiles, steps, staged, together=4 if kind == "nf4" else 3)
    chunk = tw.cdiv(chunk, together) * together
    parts = tw.cdiv(steps, chunk)
    arrays = [
        *(for_descriptors(x), _words(packed), for_descriptors(scales.swapaxes(0, 1))),
        None if zero_points is None else for_descriptors(zero_points.swapaxes(0, 1)),
    ]
    sums = empty((parts, rows, columns), x, sum_dtype(x))
    weight_only_kernel[tiles, parts](
        *arrays,
        _codes_for(x, kind),
        sums,
        tuple(None if y is None else descriptor_strides(y)[0] for y in arrays),
        (rows, columns, inner),
        chunk,
        KIND="nf4 by prmt" if kind == "nf4" and is_short else kind,
        GROUP=group,
        BLOCK_M=block_rows,
        BLOCK_N=block_columns,
        BLOCK_K=depth,
        TOGETHER=together,
        num_warps=4,
        num_stages=_STAGES,
    )
    return sums, chunk * depth


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, packed, scales, zero_points, bias, ctx.kind = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(packed, scales, zero_points)


def _backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    packed, scales, zero_points = ctx.saved_tensors
    x_gradient = bias_gradient = None
    if ctx.needs_input_grad[0]:
        whole = _dequantize(packed, scales, zero_points, ctx.kind)
        others = (None, None, None, None, 1.0, "", False, dtype_name(gradient))
        product, _ = matmul_operation(gradient[None], whole[None], *others)
        x_gradient = product[0]
    if ctx.needs_input_grad[4]:
        bias_gradient = gradient.sum(0).to(ctx.bias_dtype)
    return x_gradient, None, None, None, bias_gradient, None


_multiply.register_autograd(_backward, setup_context=_setup_context)
