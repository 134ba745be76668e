"""Casts to and from narrow floats as integer arithmetic on their bits.

What every target has are the casts between integers, fp32 and fp64, and between fp16 and fp32 (to
nearest even). The others become these and bit operations, exactly as `Cast.evaluate` defines them:
ties, subnormals, saturation and NaN included.

    %y = cast %x : bf16[64]   →   (u + 0x7fff + (u >> 16 & 1)) >> 16 with u the bits of %x in fp32,
                                  or a NaN where %x is one

A cast to narrow floats from fp64 or wide integers goes through fp32 "rounded to odd": a number that
is not exact gets the neighbour whose last bit is 1, and the second rounding is the only one in
effect (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

from functools import partial

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DType
from tilewright.ops.convert import Cast
from tilewright.ops.numerics import is_narrow_float
from tilewright.passes.expression import Expression, choose
from tilewright.passes.narrow_float_bits import from_fp32, to_fp16, to_fp32

__all__ = ["legalize_casts", "legalize_casts_for_gpu"]

_FP8 = frozenset({"fp8e4nv", "fp8e5"})


def legalize_casts(function: Function) -> Function:
    """Replace the casts that some target lacks."""
    return rewrite(function, partial(_legalize, rounded=frozenset({"fp16"})))


def legalize_casts_for_gpu(function: Function, types: frozenset[str] = frozenset()) -> Function:
    """Replace the casts that a GPU lacks.

    All round fp32 to the nearest bf16. A GPU that multiplies the two fp8 `types` of NVIDIA rounds
    to them too, and has an instruction to widen the one that is not the upper byte of fp16.
    """
    rounded = _FP8 & types | {"fp16", "bf16"}
    return rewrite(function, partial(_legalize, rounded=rounded, widened=_FP8 & types - {"fp8e5"}))


def _legalize(
    op: Op, emit: Emit, rounded: frozenset[str], widened: frozenset[str] = frozenset()
) -> Value | None:
    """Replace a cast, unless fp32 is `rounded` or a format `widened` to fp16 by an instruction."""
    if not isinstance(op, Cast):
        return None
    x, to = Expression(op.x, emit), op.to
    if _is_primitive(x.dtype, to, op.rounding, rounded):
        return None
    if x.dtype.short_name in widened:
        if to.short_name == "fp16":
            return None
        x = x.cast("fp16")
        if to.short_name == "fp32":
            return x.cast("fp32").value
    if is_narrow_float(to):
        if x.dtype.is_fp8() and to.short_name == "fp16":
            return to_fp16(x).value
        wide = _to_fp32_rounded_to_odd(x)
        if to.short_name in rounded and op.rounding == "rtne":
            return wide.cast(to.short_name).value
        return from_fp32(wide, to, op.rounding).value
    if is_narrow_float(x.dtype):
        wide = to_fp32(x)
        return wide.value if to.short_name == "fp32" else wide.cast(to.short_name).value
    return _to_fp32_toward_zero(x).value


def _is_primitive(source: DType, to: DType, rounding: str, rounded: frozenset[str]) -> bool:
    if is_narrow_float(source):
        return source.short_name == "fp16" and to.short_name == "fp32"
    if is_narrow_float(to):
        return source.short_name == "fp32" and to.short_name in rounded and rounding == "rtne"
    return (source.short_name, to.short_name, rounding) != ("fp64", "fp32", "rtz")


def _to_fp32_rounded_to_odd(x: Expression) -> Expression:
    """Convert to fp32 so that rounding to a narrow float afterwards is rounding once."""
    dtype = x.dtype
    if is_narrow_float(dtype):
        return to_fp32(x)
    if dtype.short_name == "fp64":
        return _fp64_to_odd_fp32(x)
    if dtype.primitive_bitwidth == 32 and dtype.is_int():
        return _with_sticky_bits(x, exact_bits=24, dropped_bits=8).cast("fp32")
    if dtype.primitive_bitwidth == 64:
        wide = _with_sticky_bits(x, exact_bits=53, dropped_bits=11).cast("fp64")
        return _fp64_to_odd_fp32(wide)
    return x if dtype.short_name == "fp32" else x.cast("fp32")


def _with_sticky_bits(x: Expression, exact_bits: int, dropped_bits: int) -> Expression:
    """Clear the lowest bits of large integers; if one was set, set the bit above them."""
    width, low = x.dtype.primitive_bitwidth, (1 << dropped_bits) - 1
    limit = 1 << exact_bits
    if x.dtype.is_int_signed():
        is_large = x.bitcast(f"u{width}") + limit > 2 * limit
        keep = ~low
    else:
        is_large = x > limit
        keep = (1 << width) - 1 - low
    return choose(is_large, (((x & low) + low) | x) & keep, x)


def _fp64_to_odd_fp32(x: Expression) -> Expression:
    truncated, is_exact = _truncate(x)
    odd = choose(is_exact, truncated, truncated | 1)
    return odd.bitcast("fp32")


def _to_fp32_toward_zero(x: Expression) -> Expression:
    return _truncate(x)[0].bitcast("fp32")


def _truncate(x: Expression) -> tuple[Expression, Expression]:
    """Return the bits of an fp64 number rounded toward zero to fp32, and whether it is exact."""
    nearest = x.cast("fp32")
    back = nearest.cast("fp64")
    is_away = abs(back) > abs(x)
    return nearest.bitcast("i32") - is_away.cast("i32"), back.equals(x)
