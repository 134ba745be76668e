"""The order of the elements of a tile, as the places that they are sorted from."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.arithmetic import bit_xor
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.comparison import where
from tilewright.frontend.semantic.shapes import (
    broadcast_to,
    gather,
    move_axis_last,
    normalized_axis,
    permute,
)
from tilewright.frontend.semantic.values import describe, fail, full_of, to_flag
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Arange, Bitcast, Sort

__all__ = ["argsort"]

_INT32, _UINT32, _UINT64 = DTYPES["i32"], DTYPES["u32"], DTYPES["u64"]


def argsort(x: Tensor, dim: Any = None, *, descending: Any = False) -> Tensor:
    """Return the int32 places that a stable sort along `dim` (the last axis) takes elements from.

    A key in the upper half of 64 bits and its place in the lower one are sorted as one number;
    keys of 64 bits are sorted by their lower half, then by their upper half.
    """
    extension("argsort", "sort the elements and their places packed into one int64")
    rank = len(x.shape)
    if not rank or not isinstance(x.dtype, DType):
        fail(
            f"argsort: expected a tile of numbers, got {describe(x)}",
            hint="pass a tile: tl.load of a block of pointers",
        )
    axis = normalized_axis(-1 if dim is None else dim, rank, "argsort")
    moved, inverse = move_axis_last(x, axis)
    key = _key(moved, x.dtype)
    if to_flag(descending, "argsort: descending"):
        key = ~key
    if key.dtype is _UINT32:
        return permute(_places(key), inverse)
    first = _places(convert(key, _UINT32))
    upper = convert(gather(key >> 32, first, rank - 1), _UINT32)
    return permute(gather(first, _places(upper), rank - 1), inverse)


def _places(key: Tensor) -> Tensor:
    """Return the places of uint32 keys in rising order."""
    places = broadcast_to(convert(emit(Arange, 0, key.shape[-1]), _UINT64), key.shape)
    ordered = emit(Sort, (convert(key, _UINT64) << 32) | places)
    return convert(convert(ordered, _UINT32), _INT32)


def _key(x: Tensor, dtype: DType) -> Tensor:
    """Return uint32 or uint64 numbers in the order of `x`: zeros are equal, NaN is the largest."""
    width = max(32, dtype.primitive_bitwidth)
    unsigned, signed = DTYPES[f"u{width}"], DTYPES[f"i{width}"]
    if dtype.is_int_unsigned():
        return convert(x, unsigned)
    sign = 1 << (width - 1)
    if dtype.is_int():
        return bit_xor(emit(Bitcast, convert(x, signed), unsigned), sign)
    number = convert(x, DTYPES[f"fp{width}"])
    number = where(number == 0, full_of(0.0, number.dtype), number)
    bits = emit(Bitcast, number, unsigned)
    key = where(bits >= sign, ~bits, bits ^ sign)
    return where(number != number, full_of(2**width - 1, unsigned), key)  # noqa: PLR0124 - NaN
