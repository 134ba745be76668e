"""Single elements as wider ones of the same value."""

from __future__ import annotations

from tilewright.codegen.code import Code, llvm_type
from tilewright.ir.types import DType

__all__ = ["extended", "float_of"]


def extended(code: Code, text: str, kind: DType, bits: int, level: int | None = None) -> str:
    """Return an integer with at least `bits` bits, by its sign."""
    if kind.primitive_bitwidth >= bits:
        return text
    extend = "sext" if kind.is_int_signed() else "zext"
    return code.assign(f"{extend} {llvm_type(kind)} {text} to i{bits}", level)


def float_of(code: Code, text: str, kind: DType) -> str:
    """Return a bf16 or an fp16 as fp32, and other floats as they are."""
    if kind.short_name == "bf16":
        word = code.assign(f"zext i16 {text} to i32")
        return code.assign(f"bitcast i32 {code.assign(f'shl i32 {word}, 16')} to float")
    return code.assign(f"fpext half {text} to float") if kind.short_name == "fp16" else text
