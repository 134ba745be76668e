"""Products of fp8 or int8 matrices with scales: of all, of rows and columns, or of blocks."""

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    contiguous,
    descriptor_strides,
    dtype_name,
    empty,
    strides,
)
from tilewright.kernels.checks import array, floating, plain, ranked, same_kind, shaped
from tilewright.kernels.matmul.operator import matmul_operation, oriented
from tilewright.kernels.matmul.product import loaded_tile, matrix_of
from tilewright.kernels.operation import operation

__all__ = ["quantize_rows", "scaled_mm"]

BLOCK = 128  # numbers along the inner axis, and columns, that share a scale
_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
) -> Any:
    """Return (mat_a * scale_a) (mat_b * scale_b) + bias, multiplied as they are.

    Args:
        mat_a: (M, K) of float8_e4m3fn, float8_e5m2 or int8; best with K contiguous.
        mat_b: (K, N) of the same dtype; best with K contiguous, a transposed (N, K).
        scale_a: fp32: of one element, for all; (M, 1), for rows; or (M, K / 128), for blocks.
        scale_b: fp32: of one element, for all; (1, N), for columns; or, where `scale_a` is for
            blocks, (K / 128, N / 128), rounded up.
        bias: (N,), added to each row.
        out_dtype: The dtype of the result, by default bf16.

    Returns:
        An array (M, N). Sums are in fp32, of int8 exact; the tensor cores of Hopper cut off sums of
        fp8 products some 13 binary places behind the largest.

    >>> import numpy as np
    >>> a, one = np.ones((2, 16), np.int8), np.full((1,), 0.5, np.float32)
    >>> scaled_mm(a, a.T, one, one, out_dtype=np.float32)
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    array(mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b)
    floating(scale_a=scale_a, scale_b=scale_b, bias=bias)
    same_kind(mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b, bias=bias)
    ranked(2, 2, mat_a=mat_a, mat_b=mat_b)
    ranked(0, 2, scale_a=scale_a, scale_b=scale_b)
    if dtype_name(mat_a) not in _LARGEST or mat_a.dtype != mat_b.dtype:
        raise TypeError(
            f"`mat_a` is of {mat_a.dtype}, and `mat_b` of {mat_b.dtype}; both of one of "
            f"{', '.join(_LARGEST)} are needed"
        )
    (rows, inner), columns = mat_a.shape, mat_b.shape[1]
    shaped((inner, columns), mat_b=mat_b)
    shaped((columns,), bias=bias)
    dtype = "bfloat16" if out_dtype is None else _name(out_dtype)
    groups = tw.cdiv(inner, BLOCK)
    if scale_a.ndim == 2 and groups > 1 and tuple(scale_a.shape) == (rows, groups):
        shaped((groups, tw.cdiv(columns, BLOCK)), scale_b=scale_b)
        return _block_scaled(mat_a, mat_b, scale_a, scale_b, bias, dtype)
    a_scales, b_scales = scale_a.reshape((-1,)), scale_b.reshape((-1,))
    for name, scales, count in (("scale_a", a_scales, rows), ("scale_b", b_scales, columns)):
        if scales.shape[0] not in {1, count}:
            raise ValueError(f"`{name}` has {scales.shape[0]} scales; 1 or {count} are needed")
    out, _ = matmul_operation(
        mat_a[None], mat_b[None], bias, None, a_scales, b_scales, 1.0, "", False, dtype
    )
    return out[0]


def _name(dtype: Any) -> str:
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


@tw.jit
def block_scaled_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    a_scale_ptr,
    b_scale_ptr,
    bias_ptr,
    strides,
    sizes,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of `BLOCK` columns; scales of steps along the inner axis are applied to their sums."""
    rows, columns, inner = sizes
    a = matrix_of(a_ptr, 1, rows, inner, strides[0], BLOCK_M, BLOCK, A_TRANSPOSED)
    b = matrix_of(b_ptr, 1, inner, columns, strides[1], BLOCK, BLOCK, B_TRANSPOSED)
    first, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK
    row = first + tl.arange(0, BLOCK_M)
    is_row = row < rows
    acc = tl.zeros((BLOCK_M, BLOCK), tl.float32)
    for step in range(tl.cdiv(inner, BLOCK)):
        left = loaded_tile(a, 0, first, step * BLOCK, A_TRANSPOSED)
        right = loaded_tile(b, 0, step * BLOCK, column, B_TRANSPOSED)
        at = row * strides[2][0] + step * strides[2][1]
        row_scales = tl.load(a_scale_ptr + at, mask=is_row, other=0.0)
        scale = tl.load(b_scale_ptr + step * strides[3][0] + tl.program_id(1) * strides[3][1])
        acc += tl.dot(left, right).to(tl.float32) * (row_scales * scale)[:, None]
    place = column + tl.arange(0, BLOCK)
    is_column = place < columns
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + place, mask=is_column, other=0.0).to(tl.float32)[None, :]
    at = row.to(tl.int64)[:, None] * columns + place[None, :]
    mask = is_row[:, None] & is_column[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)


def _allocate(a: Any, b: Any, a_scales: Any, b_scales: Any, bias: Any, dtype: str) -> Any:
    return empty((a.shape[0], b.shape[1]), a, dtype)


@operation(
    """block_scaled_mm(Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias,
    str dtype) -> Tensor""",
    allocate=_allocate,
)
def _block_scaled(
    out: Any, a: Any, b: Any, a_scales: Any, b_scales: Any, bias: Any, dtype: str
) -> None:
    if 0 in out.shape:
        return
    (left, is_left_transposed), (right, is_right_transposed) = oriented(a[None]), oriented(b[None])
    (rows, inner), columns = a.shape, b.shape[1]
    block_rows = 64 if rows <= 64 else 128
    block_scaled_kernel[tw.cdiv(rows, block_rows), tw.cdiv(columns, BLOCK)](
        left,
        right,
        out,
        a_scales,
        b_scales,
        None if bias is None else contiguous(bias),
        (
            descriptor_strides(left),
            descriptor_strides(right),
            strides(a_scales),
            strides(b_scales),
        ),
        (rows, columns, inner),
        A_TRANSPOSED=is_left_transposed,
        B_TRANSPOSED=is_right_transposed,
        BLOCK_M=block_rows,
        BLOCK=BLOCK,
        num_warps=4 if block_rows == 64 else 8,
        num_stages=4,
    )


def quantize_rows(input: Any, dtype: str = "float8_e4m3fn", group: int | None = None) -> Any:
    """Return `input` in 8 bits and its scales, one for each row, or for each group along it.

    Args:
        input: (M, K) of fp16, bf16 or fp32; for the columns of a right operand pass its transpose.
        dtype: "float8_e4m3fn", "float8_e5m2" or "int8".
        group: How many numbers share a scale, a power of two that divides K; by default K.

    Returns:
        (M, K) of that dtype, and scales (M, K / group) of fp32: the largest number of each group,
        divided by the largest that the dtype has.

    >>> import numpy as np
    >>> q, scales = quantize_rows(np.array([[1.0, -2.0]], np.float32), "int8")
    >>> q, scales.round(4)
    (array([[  64, -127]], dtype=int8), array([[0.0157]], dtype=float32))
    """
    array(input=input)
    floating(input=input)
    ranked(2, 2, input=input)
    if dtype not in _LARGEST:
        raise ValueError(f"`dtype` is {dtype!r}; one of {', '.join(_LARGEST)} is needed")
    if group is not None:
        plain("an integer", group=group)
    columns = input.shape[1]
    width = columns if group is None else group
    if group is not None and (columns % group or group & (group - 1)):
        raise ValueError(f"`group` is {group}; a power of two that divides {columns} is needed")
    return _quantize(input, dtype, max(width, 1))


@tw.jit
def quantize_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    strides,
    groups,
    width,
    LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Divide a group of numbers by the largest, twice read."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x_ptr += row * strides[0] + group * width * strides[1]
    highest = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at * strides[1], mask=at < width, other=0.0).to(tl.float32)
        highest = tl.maximum(highest, tl.abs(x))
    scale = tl.max(highest, axis=0) / LARGEST
    tl.store(scale_ptr + row * groups + group, scale)
    scale = tl.where(scale == 0.0, 1.0, scale)
    out_ptr += (row * groups + group) * width
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at * strides[1], mask=at < width, other=0.0).to(tl.float32) / scale
        x = tl.clamp(x, -LARGEST, LARGEST)
        if out_ptr.dtype.element_ty == tl.int8:
            x = tl.floor(x + 0.5)
        tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty), mask=at < width)


def _allocate_quantized(x: Any, dtype: str, width: int) -> tuple[Any, Any]:
    rows, columns = x.shape
    return empty((rows, columns), x, dtype), empty((rows, columns // width), x, "float32")


@operation(
    "quantize_rows(Tensor x, str dtype, int width) -> (Tensor, Tensor)",
    allocate=_allocate_quantized,
)
def _quantize(outputs: Any, x: Any, dtype: str, width: int) -> None:
    out, scales = outputs
    if 0 in out.shape:
        return
    quantize_kernel[scales.shape](
        x,
        out,
        scales,
        strides(x),
        scales.shape[1],
        width,
        LARGEST=_LARGEST[dtype],
        BLOCK=min(1024, tw.next_power_of_2(width)),
    )
