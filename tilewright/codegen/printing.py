"""The lines that `device_print` writes, for any target that has the formats of C's `printf`."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, llvm_type
from tilewright.ir.types import ElementType

__all__ = ["constant_line", "printed_number", "printed_prefix"]


def printed_prefix(op: ops.Print, number: int, rank: int) -> str:
    """The format of a line up to the value: it takes the program's place and that in the tile."""
    many = f"(operand {number}) " if len(op.values) > 1 else ""
    place = ", ".join(["%d"] * rank)
    return f"pid (%d, %d, %d) idx ({place}){op.prefix.replace('%', '%%')}{many}"


def printed_number(code: Code, op: ops.Print, kind: ElementType, text: str) -> tuple[str, str]:
    """Return the format of an element and what is passed for it: an i64 or a double."""
    type_ = llvm_type(kind)
    bits = kind.primitive_bitwidth
    if op.hex:
        if type_ == "ptr":
            text, bits = code.assign(f"ptrtoint ptr {text} to i64"), 64
        elif type_[0] != "i":
            text = code.assign(f"bitcast {type_} {text} to i{bits}")
        if bits < 64:
            text = code.assign(f"zext i{bits} {text} to i64")
        return f"0x%0{2 * max(1, bits // 8)}llx", f"i64 {text}"
    if kind.is_floating():
        if type_ in {"half", "bfloat"}:
            type_, text = "float", code.assign(f"fpext {type_} {text} to float")
        if type_ != "double":
            text = code.assign(f"fpext {type_} {text} to double")
        return "%f", f"double {text}"
    if type_ == "ptr":
        text, bits = code.assign(f"ptrtoint ptr {text} to i64"), 64
    if bits < 64:
        extend = "sext" if kind.is_int_signed() else "zext"
        text = code.assign(f"{extend} i{bits} {text} to i64")
    return "%lld" if kind.is_int_signed() else "%llu", f"i64 {text}"


def constant_line(code: Code, line: str, space: str = "") -> str:
    """Return the name of a constant that holds a line and the zero behind it."""
    data = line.encode() + b"\0"
    name = f"@line{len(code.definitions)}"
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    code.definitions[name] = f'{name} = private {space}constant [{len(data)} x i8] c"{escaped}"'
    return name
