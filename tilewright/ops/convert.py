"""Changing the element type: by value (`Cast`) or by bits (`Bitcast`)."""

from __future__ import annotations

import numpy as np

from tilewright.ir.core import Op, Value, require
from tilewright.ir.types import DTYPES, DType, ElementType, PointerType, TileType
from tilewright.ops.numerics import Array, is_narrow_float, narrow, widen

__all__ = ["Bitcast", "Cast"]


class Cast(Op):
    """Convert by value.

    Float to integer truncates; outside the range of the result it saturates and NaN gives 0. To
    bool: `x != 0` (NaN is true). Narrowing floats round to nearest even (`rtne`) or toward zero
    (`rtz`); to fp8 they saturate. Integers wrap.
    """

    x: Value
    to: DType
    rounding: str = "rtne"

    def infer(self) -> TileType:
        source = self.x.type.element
        require(
            isinstance(source, DType) and isinstance(self.to, DType),
            f"cast: cannot convert {self.x.type} to {self.to} by value",
            hint="pointers are converted with bitcast=True, to and from int64 only",
        )
        require(self.rounding in {"rtne", "rtz"}, f"cast: unknown rounding {self.rounding!r}")
        return self.x.type.with_element(self.to)

    def evaluate(self, x: Array) -> Array:
        source, to = self.x.type.element, self.to
        assert isinstance(source, DType)  # infer has checked it
        x = widen(x, source)
        if to.is_bool():
            return np.asarray(x != 0)
        if is_narrow_float(to):
            return narrow(_to_float(x), to, self.rounding)
        if to.is_floating():
            return _to_wide_float(x, to, self.rounding)
        return _float_to_integer(x, to) if x.dtype.kind == "f" else x.astype(to.numpy)


def _to_float(x: Array) -> Array:
    if x.dtype.kind == "f":
        return x
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)  # exact
    # 64-bit integers: the bits that fp64 cannot hold become a sticky bit, so one rounding is left.
    low = (x & 0x7FF) != 0
    wide = np.asarray(np.abs(x.astype(object)) >= 2**53, np.bool_)
    sticky = (x & ~np.asarray(0x7FF, x.dtype)) | (low.astype(x.dtype) << 11)
    return np.where(wide, sticky, x).astype(np.float64)


def _to_wide_float(x: Array, to: DType, rounding: str) -> Array:
    result = x.astype(to.numpy)
    if rounding == "rtne" or x.dtype != np.float64 or to.numpy != np.float32:
        return result
    away = np.abs(result.astype(np.float64)) > np.abs(x)
    return np.where(away, np.nextafter(result, np.float32(0)), result)


def _float_to_integer(x: Array, to: DType) -> Array:
    low, high = to.integer_range
    # high is not a float: compare with high + 1, which is a power of two.
    safe = np.where(np.isnan(x) | (x <= low - 1) | (x >= high + 1), 0, x)
    result = np.trunc(safe).astype(to.numpy)
    result = np.where(x >= high + 1, np.asarray(high, to.numpy), result)
    return np.where(x <= low - 1, np.asarray(low, to.numpy), result)


class Bitcast(Op):
    """Reinterpret the bits as another type of the same width; pointers are 64 bits wide."""

    x: Value
    to: ElementType

    def infer(self) -> TileType:
        source = self.x.type.element
        require(
            source.primitive_bitwidth == self.to.primitive_bitwidth,
            f"bitcast: {source} has {source.primitive_bitwidth} bits, {self.to} has "
            f"{self.to.primitive_bitwidth}",
            hint="convert the value, x.to(dtype), or cast to a type of the same width",
        )
        mixed = isinstance(source, PointerType) != isinstance(self.to, PointerType)
        integers = {DTYPES["i64"], DTYPES["u64"]}
        require(
            not mixed or source in integers or self.to in integers,
            f"bitcast: a pointer becomes a 64-bit integer or a pointer, not {self.to}",
            hint="cast it to tl.int64",
        )
        return self.x.type.with_element(self.to)

    def evaluate(self, x: Array) -> Array:
        return np.ascontiguousarray(x).reshape(x.shape).view(self.to.numpy)
