"""Atomic read-modify-write on one element, for every element type.

What the machine has no instruction for (float minimum, 16-bit floats) is a compare-and-swap loop on
the bits.
"""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, dtype, llvm_type
from tilewright.ir.types import DType

__all__ = ["write_cas", "write_rmw"]

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


def write_rmw(code: Code, op: ops.AtomicRmw, address: str, value: str, *, sem: str = "") -> str:
    """Write the update and return the old element; `sem` takes the place of the op's own."""
    sem = sem or op.sem
    kind = dtype(op.type.element)
    type_ = llvm_type(kind)
    instruction = _instruction(op.kind, kind)
    if instruction is None:
        return _loop(code, op, kind, sem, address, value)
    order = _orderings(sem)[0]
    return code.assign(f"atomicrmw {instruction} ptr {address}, {type_} {value} {order}")


def _instruction(kind: ops.AtomicKind, dtype_: DType) -> str | None:
    """Return LLVM's operation, or None where the loop is needed."""
    if dtype_.is_floating():
        if kind == "xchg":
            return "xchg"
        return "fadd" if kind == "add" and dtype_.primitive_bitwidth >= 32 else None
    if kind in {"max", "min"} and not dtype_.is_int_signed():
        return f"u{kind}"
    return str(kind)


def write_cas(
    code: Code, op: ops.AtomicCas, address: str, compare: str, value: str, *, sem: str = ""
) -> str:
    """Write the compare-and-swap and return the old element; `sem` as in `write_rmw`."""
    kind = dtype(op.type.element)
    type_, bits = llvm_type(kind), f"i{kind.primitive_bitwidth}"
    if type_ != bits:
        compare, value = (
            code.assign(f"bitcast {type_} {text} to {bits}") for text in (compare, value)
        )
    success, failure = _orderings(sem or op.sem)
    pair = code.assign(
        f"cmpxchg ptr {address}, {bits} {compare}, {bits} {value} {success} {failure}"
    )
    old = code.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    return old if type_ == bits else code.assign(f"bitcast {bits} {old} to {type_}")


def _loop(code: Code, op: ops.AtomicRmw, kind: DType, sem: str, address: str, value: str) -> str:
    """Compute on the widened value and swap the bits until nobody came between."""
    type_, bits = llvm_type(kind), f"i{kind.primitive_bitwidth}"
    wide = "double" if kind.name == "fp64" else "float"
    operand = _widened(code, kind, value)
    slot, head, done = code.alloca(bits), code.label("retry"), code.label("swapped")
    first = code.assign(f"load atomic {bits}, ptr {address} monotonic, align {kind.itemsize}")
    code.line(f"store {bits} {first}, ptr {slot}")
    code.line(f"br label %{head}")
    code.place(head)
    old = code.assign(f"load {bits}, ptr {slot}")
    element = old if type_ == bits else code.assign(f"bitcast {bits} {old} to {type_}")
    x = _widened(code, kind, element)
    if op.kind == "add":
        result = code.assign(f"fadd {wide} {x}, {operand}")
    else:
        name = f"llvm.{op.kind}imumnum.{'f64' if wide == 'double' else 'f32'}"
        result = code.call(wide, name, f"{wide} {x}, {wide} {operand}")
    new = _narrowed(code, kind, result)
    success, failure = _orderings(sem)
    pair = code.assign(f"cmpxchg ptr {address}, {bits} {old}, {bits} {new} {success} {failure}")
    code.line(f"store {bits} {code.assign(f'extractvalue {{ {bits}, i1 }} {pair}, 0')}, ptr {slot}")
    swapped = code.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    code.line(f"br i1 {swapped}, label %{done}, label %{head}")
    code.place(done)
    return element


def _widened(code: Code, kind: DType, text: str) -> str:
    if kind.name == "bf16":
        extended = code.assign(f"zext i16 {text} to i32")
        return code.assign(f"bitcast i32 {code.assign(f'shl i32 {extended}, 16')} to float")
    return code.assign(f"fpext half {text} to float") if kind.name == "fp16" else text


def _narrowed(code: Code, kind: DType, text: str) -> str:
    """Return the bits of a result in the element's format, rounded to nearest even."""
    if kind.name == "bf16":
        raw = code.assign(f"bitcast float {text} to i32")
        odd = code.assign(f"and i32 {code.assign(f'lshr i32 {raw}, 16')}, 1")
        bias = code.assign(f"add i32 {odd}, 32767")
        rounded = code.assign(f"lshr i32 {code.assign(f'add i32 {raw}, {bias}')}, 16")
        is_nan = code.assign(f"fcmp uno float {text}, {text}")
        quiet = code.assign(f"select i1 {is_nan}, i32 32704, i32 {rounded}")  # 0x7fc0
        return code.assign(f"trunc i32 {quiet} to i16")
    if kind.name == "fp16":
        half = code.assign(f"fptrunc float {text} to half")
        return code.assign(f"bitcast half {half} to i16")
    return code.assign(f"bitcast {llvm_type(kind)} {text} to i{kind.primitive_bitwidth}")
