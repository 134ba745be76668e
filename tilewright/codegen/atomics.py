"""Atomic read-modify-write on one element, for every element type.

What the machine has no instruction for (float minimum, 16-bit floats) is a compare-and-swap loop on
the bits.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import ops
from tilewright.codegen.code import Code, dtype, llvm_type
from tilewright.codegen.wider import float_of
from tilewright.ir.types import DType

__all__ = ["Exchange", "write_cas", "write_rmw"]

_ORDERINGS = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_FAILURE_ORDERINGS = {"release": "monotonic", "acq_rel": "acquire"}


def _orderings(sem: str) -> tuple[str, str]:
    success = _ORDERINGS[sem]
    return success, _FAILURE_ORDERINGS.get(success, success)


Exchange = Callable[[str, str, str, str], tuple[str, str]]
"""Writes a compare-and-swap from bits, address, expected and new value: what was found, and whether
it was what was expected."""


def write_rmw(
    code: Code,
    op: ops.AtomicRmw,
    address: str,
    value: str,
    *,
    sem: str = "",
    exchange: Exchange | None = None,
) -> str:
    """Write the update and return the old element.

    `sem` takes the place of the op's own. With `exchange` the update is a loop around that.
    """
    kind = dtype(op.type.element)
    type_ = llvm_type(kind)
    instruction = _instruction(op.kind, kind)
    if instruction is None or exchange is not None:
        own = exchange or _llvm_exchange(code, sem or op.sem)
        return _loop(code, op, kind, own, address, value)
    order = _orderings(sem or op.sem)[0]
    return code.assign(f"atomicrmw {instruction} ptr {address}, {type_} {value} {order}")


def _llvm_exchange(code: Code, sem: str) -> Exchange:
    success, failure = _orderings(sem)

    def exchange(bits: str, address: str, expected: str, new: str) -> tuple[str, str]:
        pair = code.assign(
            f"cmpxchg ptr {address}, {bits} {expected}, {bits} {new} {success} {failure}"
        )
        found = code.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
        return found, code.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 1")

    return exchange


def _instruction(kind: ops.AtomicKind, dtype_: DType) -> str | None:
    """Return LLVM's operation, or None where the loop is needed."""
    if dtype_.is_floating():
        if kind == "xchg":
            return "xchg"
        return "fadd" if kind == "add" and dtype_.primitive_bitwidth >= 32 else None
    if kind in {"max", "min"} and not dtype_.is_int_signed():
        return f"u{kind}"
    return str(kind)


def write_cas(code: Code, op: ops.AtomicCas, address: str, compare: str, value: str) -> str:
    """Write the compare-and-swap and return the old element."""
    kind = dtype(op.type.element)
    type_, bits = llvm_type(kind), f"i{kind.primitive_bitwidth}"
    if type_ != bits:
        compare, value = (
            code.assign(f"bitcast {type_} {text} to {bits}") for text in (compare, value)
        )
    old, _ = _llvm_exchange(code, op.sem)(bits, address, compare, value)
    return old if type_ == bits else code.assign(f"bitcast {bits} {old} to {type_}")


def _loop(
    code: Code, op: ops.AtomicRmw, kind: DType, exchange: Exchange, address: str, value: str
) -> str:
    """Compute on the widened value and swap the bits until nobody came between."""
    type_, bits = llvm_type(kind), f"i{kind.primitive_bitwidth}"
    wide = "double" if kind.short_name == "fp64" else "float"
    operand = float_of(code, value, kind)
    slot, head, done = code.alloca(bits), code.label("retry"), code.label("swapped")
    first = code.assign(f"load atomic {bits}, ptr {address} monotonic, align {kind.itemsize}")
    code.line(f"store {bits} {first}, ptr {slot}")
    code.line(f"br label %{head}")
    code.place(head)
    old = code.assign(f"load {bits}, ptr {slot}")
    element = old if type_ == bits else code.assign(f"bitcast {bits} {old} to {type_}")
    new = value if type_ == bits else code.assign(f"bitcast {type_} {value} to {bits}")
    if op.kind != "xchg":
        x = float_of(code, element, kind)
        result = _updated(code, op, wide, x, operand)
        new = _narrowed(code, kind, result)
    found, swapped = exchange(bits, address, old, new)
    code.line(f"store {bits} {found}, ptr {slot}")
    code.line(f"br i1 {swapped}, label %{done}, label %{head}")
    code.place(done)
    return element


def _updated(code: Code, op: ops.AtomicRmw, wide: str, x: str, operand: str) -> str:
    if op.kind == "add":
        return code.assign(f"fadd {wide} {x}, {operand}")
    name = f"llvm.{op.kind}imumnum.{'f64' if wide == 'double' else 'f32'}"
    return code.call(wide, name, f"{wide} {x}, {wide} {operand}")


def _narrowed(code: Code, kind: DType, text: str) -> str:
    """Return the bits of a result in the element's format, rounded to nearest even."""
    if kind.short_name == "bf16":
        raw = code.assign(f"bitcast float {text} to i32")
        odd = code.assign(f"and i32 {code.assign(f'lshr i32 {raw}, 16')}, 1")
        bias = code.assign(f"add i32 {odd}, 32767")
        rounded = code.assign(f"lshr i32 {code.assign(f'add i32 {raw}, {bias}')}, 16")
        is_nan = code.assign(f"fcmp uno float {text}, {text}")
        quiet = code.assign(f"select i1 {is_nan}, i32 32704, i32 {rounded}")  # 0x7fc0
        return code.assign(f"trunc i32 {quiet} to i16")
    if kind.short_name == "fp16":
        half = code.assign(f"fptrunc float {text} to half")
        return code.assign(f"bitcast half {half} to i16")
    return code.assign(f"bitcast {llvm_type(kind)} {text} to i{kind.primitive_bitwidth}")
