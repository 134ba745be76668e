"""Bit-exact conversion between fp32 and the narrow float formats, in NumPy.

This is the definition of `Cast` for the formats that NumPy and `ml_dtypes` round differently from
the language: narrowing to fp8 saturates (infinity becomes the largest finite value, NaN stays NaN),
and `fp8e4b15` exists only here.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir.types import DTYPES, DType

__all__ = ["Array", "is_narrow_float", "largest_finite", "narrow", "widen", "with_dtype"]

Array = np.ndarray[Any, Any]

_E4B15 = DTYPES["fp8e4b15"]
_FNUZ = {"fp8e4b8", "fp8e5b16"}


def is_narrow_float(dtype: DType) -> bool:
    """Whether arithmetic on the type is done in fp32 and rounded back."""
    return dtype.is_floating() and dtype.primitive_bitwidth < 32


def widen(x: Array, dtype: DType) -> Array:
    """Return the values of a narrow float array as fp32 (exact); other arrays as they are."""
    if not is_narrow_float(dtype):
        return x
    if dtype is not _E4B15:
        return x.astype(np.float32)
    bits = x.astype(np.int32)
    magnitude = np.where(bits & 0x7F == 0x7F, 0x7E, bits & 0x7F)  # no NaN: 0x7f reads as 1.75
    exponent, mantissa = magnitude >> 3, magnitude & 7
    value = np.where(
        exponent == 0, mantissa * 2.0**-17, (8 + mantissa) * np.exp2(exponent - 18.0)
    ).astype(np.float32)
    return np.where(bits & 0x80, -value, value)


def largest_finite(dtype: DType) -> float:
    """Return the largest finite value of a float format."""
    finfo: Any = ml_dtypes.finfo
    return 1.75 if dtype is _E4B15 else float(finfo(dtype.numpy).max)


def narrow(x: Array, dtype: DType, rounding: str = "rtne") -> Array:
    """Round fp32 or fp64 to a narrow float format: `rtne` to nearest even, `rtz` toward zero."""
    if x.dtype == np.float64:
        x = _to_float32_round_to_odd(x)
    x = x.astype(np.float32, copy=False)
    magnitude = np.abs(x)
    # The spacing of the target format at each value, as an exponent of two: the smallest normal
    # exponent is 1 - bias (and fnuz and e4b15 follow the same rule with their own bias).
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, 1 - dtype.exponent_bias)
    quantum = exponent - dtype.mantissa_bits
    scaled = np.ldexp(magnitude.astype(np.float64), -quantum)
    steps = np.rint(scaled) if rounding == "rtne" else np.trunc(scaled)
    rounded = np.ldexp(steps, quantum)
    largest = largest_finite(dtype)
    if dtype.is_fp8():
        rounded = np.minimum(rounded, largest)
    elif rounding == "rtz":
        rounded = np.where(np.isinf(magnitude), rounded, np.minimum(rounded, largest))
    rounded = np.copysign(np.where(np.isnan(x), np.nan, rounded), x)
    if dtype is _E4B15:
        return _encode_e4b15(rounded)
    if dtype.short_name in _FNUZ:
        rounded = np.where(rounded == 0, 0.0, rounded)  # fnuz has no -0: its bits are NaN
    with np.errstate(over="ignore"):
        return np.asarray(rounded, np.float32).astype(dtype.numpy)


def _encode_e4b15(x: Array) -> Array:
    magnitude = np.abs(np.where(np.isnan(x), 0.0, x))
    _, exponent = np.frexp(magnitude)
    biased = np.where(magnitude == 0, 0, np.maximum(exponent - 1 + 15, 0))
    steps = np.ldexp(magnitude, 3 + 15 - np.maximum(biased, 1))
    bits = np.where(biased == 0, steps, (biased << 3) + steps - 8).astype(np.uint8)
    signed = bits | np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), 0x7F, signed).astype(np.uint8)  # NaN has no sign to keep


def _to_float32_round_to_odd(x: Array) -> Array:
    """Round fp64 to fp32 so that a second rounding to a narrower format is still correct."""
    nearest = x.astype(np.float32)
    inexact = (nearest.astype(np.float64) != x) & np.isfinite(x)
    bits = nearest.view(np.int32) - (np.abs(nearest.astype(np.float64)) > np.abs(x))
    return np.where(inexact, bits | 1, nearest.view(np.int32)).astype(np.int32).view(np.float32)


def with_dtype(x: Any, dtype: DType) -> Array:
    """Return `x` as an array of the storage type, rounding fp32 results of narrow arithmetic."""
    array: Array = np.asarray(x)
    if is_narrow_float(dtype) and array.dtype != dtype.numpy:
        return narrow(array, dtype)
    return array.astype(dtype.numpy, copy=False)
