"""Floating point as PTX defines it: formats, rounding modes, fused operations.

Values narrower than 32 bits are bit patterns (unsigned arrays). Whatever is not exact in one step
is computed in float64 rounded to odd, after which any rounding to a narrower format is the rounding
of the exact value (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.program import EmulatorError

__all__ = [
    "FORMATS",
    "Array",
    "Format",
    "add_to_odd",
    "canonical",
    "decode",
    "encode",
    "flush",
    "fma32",
    "fma64",
    "tf32",
    "two_product",
    "two_sum",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary float format. `e4m3` has no infinities and one NaN of each sign."""

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    nan: int
    has_infinity: bool = True

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def largest(self) -> int:
        """The bits of the largest finite value."""
        return self.infinity - 1 if self.has_infinity else self.nan - 1

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.bits // 8}")


FORMATS = {
    format.name: format
    for format in (
        Format("f32", 32, 8, 23, 0x7FFFFFFF),
        Format("f16", 16, 5, 10, 0x7FFF),
        Format("bf16", 16, 8, 7, 0x7FFF),
        Format("tf32", 32, 8, 10, 0x7FC00000),
        Format("e4m3", 8, 4, 3, 0x7F, has_infinity=False),
        Format("e5m2", 8, 5, 2, 0x7F),
    )
}


def decode(bits: Array, name: str) -> Array:
    """Return the values of bit patterns: f32 (f64 for `f64`)."""
    match name:
        case "f32":
            return bits.view(np.float32)
        case "f64":
            return bits.view(np.float64)
        case "bf16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        case "f16":
            return np.asarray(bits.view(np.float16), np.float32)
        case "e4m3":
            return np.asarray(bits.view(ml_dtypes.float8_e4m3fn), np.float32)
        case "e5m2":
            return np.asarray(bits.view(ml_dtypes.float8_e5m2), np.float32)
        case "tf32":
            return tf32(bits.view(np.float32))
    raise EmulatorError(f"`.{name}` is no float format that is modelled")


def tf32(values: Array) -> Array:
    """Return what a tf32 input of a matrix product is: the low 13 bits are not read."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def encode(values: Array, name: str, mode: str = "rn", *, saturate: bool = False) -> Array:
    """Round float64 (or float32) values to a format; return the bit patterns.

    Modes: rn (ties to even), rna (ties away), rz, rm, rp. `saturate` gives the largest finite
    value in place of what is too large. NaN becomes the format's canonical NaN.
    """
    if mode == "rn" and not saturate:
        if name == "f32":
            words = values.astype(np.float32).view(np.uint32)
            return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), words)
        if name == "f16":
            halves = values.astype(np.float16).view(np.uint16)
            return np.where(np.isnan(values), np.uint16(0x7FFF), halves)
        if name == "bf16" and values.dtype == np.float32:
            return _bf16_from_f32(values)
    return _encode(np.asarray(values, np.float64), FORMATS[name], mode, saturate=saturate)


def _bf16_from_f32(values: Array) -> Array:
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    halves = (rounded >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), halves)


def _encode(values: Array, format: Format, mode: str, *, saturate: bool) -> Array:
    wide = np.ascontiguousarray(values).view(np.uint64)
    negative = (wide >> np.uint64(63)).astype(bool)
    exponent = ((wide >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64) - 1023
    mantissa = (wide & np.uint64((1 << 52) - 1)).astype(np.int64)
    mantissa |= np.where(exponent > -1023, np.int64(1 << 52), np.int64(0))
    lowest = 1 - format.bias
    below = np.maximum(lowest - exponent, 0)
    shift = np.minimum(52 - format.mantissa_bits + below, 62)
    kept, rest = mantissa >> shift, mantissa & ((np.int64(1) << shift) - 1)
    half = np.int64(1) << (shift - 1)
    match mode:
        case "rz":
            up: Array = np.zeros(values.shape, bool)
        case "rm":
            up = (rest > 0) & negative
        case "rp":
            up = (rest > 0) & ~negative
        case "rna":
            up = rest >= half
        case _:
            up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    magnitude = (np.maximum(exponent - lowest, 0) << format.mantissa_bits) + kept + up
    to_largest = {
        "rz": np.ones(values.shape, bool),
        "rm": ~negative,
        "rp": negative,
    }.get(mode, np.zeros(values.shape, bool))
    too_large = magnitude > format.largest
    beyond = format.infinity if format.has_infinity else format.nan
    is_infinite = np.isinf(values)
    top = np.where(to_largest & ~is_infinite | saturate, format.largest, beyond)
    magnitude = np.where(too_large | is_infinite, top, magnitude)
    sign_bit = format.bits - 1
    if format.name == "tf32":
        magnitude, sign_bit = magnitude << 13, 31
    bits = magnitude | (negative.astype(np.int64) << sign_bit)
    return np.where(np.isnan(values), format.nan, bits).astype(format.storage)


def add_to_odd(x: Array, y: Array) -> Array:
    """Return the float64 sum rounded to odd: inexact sums have an odd last bit."""
    total = np.asarray(x + y)
    shadow = total - x
    error = (x - (total - shadow)) + (y - shadow)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & ((bits & 1) == 0) & ~np.isnan(error)
    if not inexact.any():
        return total
    step = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma32(x: Array, y: Array, z: Array) -> Array:
    """Return `x * y + z` of float32 arrays, rounded once."""
    product = np.asarray(np.multiply(x, y, dtype=np.float64))  # exact: 48 bits
    addend = np.asarray(z, np.float64)
    total = np.asarray(product + addend)
    halfway = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    if halfway.any() or ((np.abs(total) < 2.0**-125) & (total != 0)).any():
        total = add_to_odd(product, addend)
    result: Array = total.astype(np.float32)
    return result


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return a float64 product and its rounding error (Veltkamp and Dekker)."""

    def split(value: Array) -> tuple[Array, Array]:
        scaled = value * 134217729.0
        high = scaled - (scaled - value)
        return high, value - high

    product = np.asarray(x * y)
    (x_high, x_low), (y_high, y_low) = split(np.asarray(x)), split(np.asarray(y))
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, np.where(np.isfinite(error), error, 0.0)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """Return a float64 sum and its rounding error (Knuth)."""
    total = np.asarray(x + y)
    shadow = total - x
    error = (x - (total - shadow)) + (y - shadow)
    return total, np.where(np.isfinite(error), error, 0.0)


def fma64(x: Array, y: Array, z: Array) -> Array:
    """Return `x * y + z` of float64 arrays, rounded once."""
    x, y, z = np.broadcast_arrays(x, y, z)
    product, product_error = two_product(x, y)
    low, low_error = two_sum(np.asarray(z), product_error)
    high, high_error = two_sum(product, low)
    result = high + add_to_odd(high_error, low_error)
    # An infinite sum and the sign of a zero are those of ordinary arithmetic.
    result = np.where(np.isfinite(result) & (result != 0), result, product + z)
    # The errors are exact unless they underflow, or something on the way to them overflows.
    sizes = np.abs([x, y, z, product])
    extreme = (sizes > 2.0**990).any(axis=0) | ((sizes[3] < 2.0**-900) & (x != 0) & (y != 0))
    for place in np.argwhere(extreme & np.isfinite([x, y, z]).all(axis=0)):
        index = tuple(place)
        result[index] = _exact_fma(*(float(operand[index]) for operand in (x, y, z)))
    return result


def _exact_fma(x: float, y: float, z: float) -> float:
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if not total:  # the sign of zero is that of an ordinary sum
        return x * y + z
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def flush(values: Array) -> Array:
    """Replace subnormal float32 values by zeros of their sign (`.ftz`)."""
    tiny = np.abs(values) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), values), values)


def canonical(values: Array) -> Array:
    """Replace each NaN of a float32 array by the one that the hardware makes."""
    bits = np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))
    return bits.view(np.float32)
