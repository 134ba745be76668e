"""Narrow floats from and to fp32 by their bits: what `ops.numerics.widen` and `narrow` define.

fp8 widens by way of fp16, whose exponent field is as wide or wider and whose conversion to fp32 is
an instruction everywhere. Narrowing treats two ranges: normal results are rounded by an integer
addition to the bits (a carry out of the mantissa raises the exponent, as it should), subnormal ones
by adding a number whose last place is their spacing.
"""

from __future__ import annotations

from math import inf, nan

from tilewright.ir.types import DType
from tilewright.ops.numerics import largest_finite
from tilewright.passes.exponent import with_sign_of
from tilewright.passes.expression import Expression, choose

__all__ = ["from_fp32", "to_fp16", "to_fp32"]

FP32_MANTISSA_BITS, FP32_BIAS = 23, 127
# What a NaN becomes: with its sign; in the formats "fnuz" the code that -0 has elsewhere; in the
# one format without NaN the code that no number becomes.
NAN_CODE = {"fp16": 0x7E00, "fp8e4nv": 0x7F, "fp8e5": 0x7E}
ONE_NAN = {"fp8e4b8": 0x80, "fp8e5b16": 0x80}
E4B15_NAN_CODE = 0x7F


def to_fp32(x: Expression) -> Expression:
    """Widen a narrow float; exact."""
    match x.dtype.short_name:
        case "bf16":
            return (x.bitcast("u16").cast("u32") << 16).bitcast("fp32")
        case "fp8e4nv":
            return _e4nv_to_fp32(x)
        case "fp8e4b8":
            return _with_one_nan(x, _e4_as_fp16(x).cast("fp32") * 2.0**7)
        case "fp8e5b16":
            return _e5b16_to_fp32(x)
    return to_fp16(x).cast("fp32")


def to_fp16(x: Expression) -> Expression:
    """Widen a float of at most 16 bits, except bf16, to fp16; exact."""
    match x.dtype.short_name:
        case "fp16":
            return x
        case "fp8e5":  # the upper byte of fp16
            return (x.bitcast("u8").cast("u16") << 8).bitcast("fp16")
        case "fp8e4b15":  # no NaN: 0x7f reads as 0x7e
            code = x.bitcast("u8")
            is_top = (code & 0x7F).equals(0x7F)
            return _e4_as_fp16(choose(is_top, code ^ 1, code))
    return to_fp32(x).cast("fp16")


def _e4_as_fp16(x: Expression) -> Expression:
    """Read four bits of exponent and three of mantissa as fp16, that is, with a bias of 15."""
    # Extended by the sign and shifted, the upper two bits are both the sign; the second is dropped.
    return ((x.bitcast("i8").cast("i16") << 7) & ~0x407F).bitcast("fp16")


def _e4nv_to_fp32(x: Expression) -> Expression:
    wide = _e4_as_fp16(x).cast("fp32") * 2.0**8
    return choose(abs(wide).equals(480.0), with_sign_of(wide.constant(nan), wide), wide)


def _e5b16_to_fp32(x: Expression) -> Expression:
    # The largest exponent is that of a number, so fp16 does not do: placed in the fields of fp32.
    fields = (x.bitcast("i8").cast("i32") << 21) & ~0x701FFFFF
    return _with_one_nan(x, fields.bitcast("fp32") * 2.0 ** (FP32_BIAS - 16))


def _with_one_nan(x: Expression, wide: Expression) -> Expression:
    """Return `wide`, but a negative NaN where `x` has the code that -0 has elsewhere."""
    bits = choose(x.bitcast("u8").equals(0x80), 0xFFC00000, wide.bitcast("u32"))
    return bits.bitcast("fp32")


def from_fp32(x: Expression, to: DType, rounding: str) -> Expression:
    """Round fp32 to a narrow float."""
    if to.short_name == "bf16":
        return _to_bf16(x, rounding)
    if to.short_name == "fp16" and rounding == "rtne":
        return x.cast("fp16")
    bits = x.bitcast("u32")
    magnitude = (bits & 0x7FFFFFFF).bitcast("fp32")
    bounded = magnitude.at_most(largest_finite(to))
    code = choose(
        bounded < 2.0 ** (1 - to.exponent_bias),
        _subnormal_code(bounded, to, rounding),
        _normal_code(bounded.bitcast("u32"), to, rounding),
    )
    if not to.is_fp8():  # rounding toward zero keeps infinity
        code = choose(magnitude.equals(inf), 0x7C00, code)
    width = to.primitive_bitwidth
    code = _with_sign_and_nan(x, code, (bits >> (32 - width)) & (1 << width - 1), to)
    return code.cast(f"u{width}").bitcast(to.short_name)


def _to_bf16(x: Expression, rounding: str) -> Expression:
    bits = x.bitcast("u32")
    upper = bits >> 16
    rounded = upper if rounding == "rtz" else (bits + 0x7FFF + (upper & 1)) >> 16
    code = choose(x.differs(x), (upper | 0x7FC0) & 0xFFC0, rounded)
    return code.cast("u16").bitcast("bf16")


def _normal_code(bits: Expression, to: DType, rounding: str) -> Expression:
    """Move the fields of a positive fp32 number into place, rounding what is cut off."""
    shift = FP32_MANTISSA_BITS - to.mantissa_bits
    # Both additions at once: half a unit less one, and the difference of the biases.
    offset = -((FP32_BIAS - to.exponent_bias) << FP32_MANTISSA_BITS)
    if rounding == "rtz":
        return (bits + offset % (1 << 32)) >> shift
    half = 1 << shift - 1
    is_odd = (bits >> shift) & 1
    return (bits + (offset + half - 1) % (1 << 32) + is_odd) >> shift


def _subnormal_code(x: Expression, to: DType, rounding: str) -> Expression:
    """Return how many units of the smallest subnormal an x >= 0 below the smallest normal has."""
    unit = 1 - to.exponent_bias - to.mantissa_bits
    magic = 2.0 ** (unit + FP32_MANTISSA_BITS)
    total = x + magic
    units = total.bitcast("u32") - ((unit + FP32_MANTISSA_BITS + FP32_BIAS) << FP32_MANTISSA_BITS)
    return units if rounding == "rtne" else units - (total - magic > x).cast("u32")


def _with_sign_and_nan(x: Expression, code: Expression, sign: Expression, to: DType) -> Expression:
    is_nan = x.differs(x)
    if to.short_name in NAN_CODE:
        return choose(is_nan, NAN_CODE[to.short_name], code) | sign
    if to.short_name in ONE_NAN:  # and no -0
        return choose(is_nan, ONE_NAN[to.short_name], choose(code.equals(0), 0, code | sign))
    return choose(is_nan, E4B15_NAN_CODE, code | sign)
