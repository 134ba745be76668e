"""Conversion of element types, by value and by bits."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.values import as_dtype, as_tensor, fail, full_of
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.ops import Bitcast, Cast, Compare, Predicate

__all__ = ["cast", "convert", "to_bool"]

_ROUNDINGS = {"rtne", "rtz"}


def cast(
    x: Any, dtype: Any, fp_downcast_rounding: str | None = None, *, bitcast: bool = False
) -> Tensor:
    """Convert by value, or reinterpret the bits; the rules of `tl.cast`."""
    tensor = as_tensor(x, "cast: the input")
    target = as_dtype(dtype, "cast")
    source = tensor.dtype
    if source == target:
        return tensor
    if fp_downcast_rounding is not None:
        _check_rounding(tensor, target, fp_downcast_rounding)
    if bitcast or isinstance(source, PointerType) or isinstance(target, PointerType):
        return _bitcast(tensor, target)
    for one, other in ((source, target), (target, source)):
        if one.is_int() and other.is_floating() and other.primitive_bitwidth == 8:
            extension(f"a conversion of {source} to {target}", "go through tl.float32")
    return emit(Cast, tensor, target, fp_downcast_rounding or "rtne")


def _check_rounding(x: Tensor, target: DType | PointerType, rounding: str) -> None:
    if rounding not in _ROUNDINGS:
        fail(f"cast: fp_downcast_rounding must be 'rtne' or 'rtz', got {rounding!r}")
    narrows = (
        x.dtype.is_floating()
        and target.is_floating()
        and target.primitive_bitwidth < x.dtype.primitive_bitwidth
    )
    if not narrows:
        fail(
            f"cast: fp_downcast_rounding applies only where a float gets narrower, not from "
            f"{x.dtype} to {target}",
            "leave it out",
        )


def _bitcast(x: Tensor, target: DType | PointerType) -> Tensor:
    if isinstance(x.dtype, PointerType) and target is DTYPES["i1"]:
        return to_bool(emit(Bitcast, x, DTYPES["i64"]))
    if x.dtype.primitive_bitwidth != target.primitive_bitwidth:
        is_pointer = target.is_ptr() or x.dtype.is_ptr()
        hint = "convert to tl.int64 first" if is_pointer else "convert the value: x.to(dtype)"
        fail(
            f"cast: cannot reinterpret {x.value.type} as {target}: "
            f"{x.dtype.primitive_bitwidth} bits against {target.primitive_bitwidth}",
            hint,
        )
    return emit(Bitcast, x, target)


def convert(x: Tensor, dtype: DType) -> Tensor:
    """Convert by value unless the type is already right."""
    return x if x.dtype == dtype else emit(Cast, x, dtype)


def to_bool(x: Tensor) -> Tensor:
    """Return `x != 0` (NaN is true), or `x` itself where it is a bool."""
    if x.dtype is DTYPES["i1"]:
        return x
    if isinstance(x.dtype, PointerType):
        x = emit(Bitcast, x, DTYPES["i64"])
    return emit(Compare, Predicate.NE, x, full_of(0, x.dtype, x.shape))
