"""Matrix products of microscaled numbers: small formats with a scale for each group along k.

Both operands are worked on as tiles of (..., rows, k); the right one is transposed for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import shapes
from tilewright.frontend.semantic.arithmetic import multiply
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.values import (
    as_dtype,
    as_tensor,
    describe,
    fail,
    full_of,
    to_flag,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Bitcast, Dot, InputPrecision, Join

__all__ = ["ScaledOperand", "dot_scaled"]

FP16, BF16, FP32 = DTYPES["fp16"], DTYPES["bf16"], DTYPES["fp32"]
FP8E4NV, U8, U16 = DTYPES["fp8e4nv"], DTYPES["u8"], DTYPES["u16"]

_E2M1 = "e2m1"
# The element types that operands of a format may have; the first is the format itself.
_FORMATS: dict[str, tuple[DType, ...]] = {
    _E2M1: (U8,),
    "e4m3": (FP8E4NV, U8),
    "e5m2": (DTYPES["fp8e5"], U8),
    "bf16": (BF16, U16),
    "fp16": (FP16, U16),
}


@dataclass(frozen=True)
class ScaledOperand:
    """What a call says of one side; `packs_k` is whether two e2m1 of a byte are neighbours in k."""

    side: str
    values: Any
    scale: Any
    format: Any
    packs_k: Any


def dot_scaled(left: ScaledOperand, right: ScaledOperand, acc: Any, out_dtype: Any) -> Tensor:
    """Return the product of two scaled matrices; both become bf16, or fp16 if one of them is."""
    formats = [_format(operand) for operand in (left, right)]
    computed_in = FP16 if "fp16" in formats else BF16
    a = _rows(left, formats[0], as_tensor(left.values, _what(left)))
    b = _rows(right, formats[1], shapes.transpose(as_tensor(right.values, _what(right))))
    if len(a.shape) != len(b.shape) or a.shape[-1] != b.shape[-1]:
        fail(
            f"dot_scaled: the inner sizes differ: lhs has k = {a.shape[-1]}, rhs {b.shape[-1]}",
            "a byte has two e2m1; lhs_k_pack and rhs_k_pack say whether along k",
        )
    a, b = (_scaled(operand, x, computed_in) for operand, x in ((left, a), (right, b)))
    shape = (*a.shape[:-1], b.shape[-2])
    result = _result_dtype(out_dtype)
    if acc is None:
        total = full_of(0, FP32, shape)
    elif not isinstance(acc, Tensor) or acc.dtype is not result:
        fail(
            f"dot_scaled: the accumulator is {describe(acc)}, the result has {result}",
            f"make it with dtype tl.{result.long_name}, or pass out_dtype",
        )
    else:
        total = convert(acc, FP32)
    product = emit(Dot, a, shapes.transpose(b), total, InputPrecision.IEEE, 0)
    return convert(product, result)


def _what(operand: ScaledOperand) -> str:
    return f"dot_scaled: {operand.side}"


def _format(operand: ScaledOperand) -> str:
    name = unwrap(operand.format)
    if name not in _FORMATS:
        known = ", ".join(map(repr, _FORMATS))
        fail(f"{_what(operand)}_format must be one of {known}, got {name!r}")
    return str(name)


def _result_dtype(out_dtype: Any) -> DType:
    chosen = as_dtype(out_dtype, "dot_scaled: out_dtype")
    if not isinstance(chosen, DType) or chosen not in {FP16, BF16, FP32}:
        fail(f"dot_scaled: products are fp32, fp16 or bf16, not {chosen}")
    return chosen


def _rows(operand: ScaledOperand, name: str, x: Tensor) -> Tensor:
    """Return the elements as numbers, those in the bytes of e2m1 side by side."""
    wanted, *raw = _FORMATS[name]
    what = _what(operand)
    if x.dtype is not wanted and x.dtype not in raw:
        shown = " or ".join(f"tl.{dtype.long_name}" for dtype in _FORMATS[name])
        fail(
            f"{what}: {name} comes as {shown}, got {describe(x)}",
            hint="convert it, or bitcast bytes: x.to(tl.float8e4nv, bitcast=True)",
        )
    packs_k = to_flag(operand.packs_k, f"{what}_k_pack")
    if name != _E2M1:
        if not packs_k:
            fail(f"{what}_k_pack: {name} is not packed, only e2m1 is")
        return x if x.dtype is wanted else emit(Bitcast, x, wanted)
    *outer, rows, inner = x.shape
    codes = emit(Join, x & 15, x >> 4)
    if packs_k:
        return _e2m1(shapes.reshape(codes, (*outer, rows, 2 * inner)))
    rank = len(x.shape)
    interleaved = shapes.permute(codes, (*range(rank - 1), rank, rank - 1))
    return _e2m1(shapes.reshape(interleaved, (*outer, 2 * rows, inner)))


def _e2m1(codes: Tensor) -> Tensor:
    """Return the numbers that codes of 4 bits stand for."""
    wide = convert(codes, U16)
    # As a bf16: the exponent is 126 too small, also that of a subnormal number.
    return multiply(emit(Bitcast, (wide & 7) << 6 | (wide & 8) << 12, BF16), 2.0**126)


def _scaled(operand: ScaledOperand, x: Tensor, computed_in: DType) -> Tensor:
    """Multiply each group of elements along the last axis by its scale, and round once.

    That is in bf16 at once where elements come as such: scales are exact there, too.
    """
    if unwrap(operand.scale) is None:
        return convert(x, computed_in)
    scale = as_tensor(operand.scale, f"{_what(operand)}_scale")
    *outer, rows, size = x.shape
    groups = scale.shape[-1] if scale.shape else 0
    if scale.shape[:-1] != (*outer, rows) or not groups or size % groups:
        fail(
            f"{_what(operand)}_scale is {list(scale.shape)}, for {rows} rows with k = {size}",
            "it has a row for each row of lhs or column of rhs, and a scale for each group of k",
        )
    factor, multiplied_in = _scale(operand, scale), FP32
    if x.dtype is computed_in is BF16:
        multiplied_in = BF16
    factors = shapes.broadcast_to(
        shapes.expand_dims(convert(factor, multiplied_in), -1), (*scale.shape, size // groups)
    )
    product = multiply(convert(x, multiplied_in), shapes.reshape(factors, x.shape))
    return convert(product, computed_in)


def _scale(operand: ScaledOperand, scale: Tensor) -> Tensor:
    if scale.dtype is FP8E4NV:
        return convert(scale, FP32)
    if scale.dtype is not U8:
        fail(
            f"{_what(operand)}_scale: scales are exponents in uint8, or float8e4nv, got "
            f"{describe(scale)}",
            hint="bitcast it: scale.to(tl.uint8, bitcast=True)",
        )
    # The exponent of a bf16. 0 is the subnormal 2^-127 and 255 NaN: both have the bit below set.
    is_edge = convert(scale + 1 < 2, U16)
    return emit(Bitcast, convert(scale, U16) << 7 | is_edge << 6, BF16)
