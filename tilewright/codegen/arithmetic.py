"""How each elementwise op becomes LLVM instructions: a rule for each class, for any width.

A rule gets the operands as text, already of one width. What no machine has (exp, bf16 arithmetic,
...) was rewritten before; what may trap (division) is guarded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import ops
from tilewright.codegen.code import (
    Code,
    Element,
    constant_text,
    dtype,
    llvm_type,
    mangled,
    vector,
)
from tilewright.errors import InternalError, Unsupported
from tilewright.ir.core import Op
from tilewright.ir.types import DType, PointerType

__all__ = ["RULES", "Operands", "lower"]


class Operands:
    """The operands of one op at one place: their text, their common width, and where to write."""

    def __init__(self, code: Code, op: Op, texts: list[str], lanes: int, level: int) -> None:
        self.code, self.op, self.texts, self.lanes, self.level = code, op, texts, lanes, level
        self.element = op.operands[0].type.element
        self.scalar = llvm_type(self.element)
        self.type = vector(self.scalar, lanes)

    @property
    def is_float(self) -> bool:
        return self.element.is_floating()

    @property
    def is_signed(self) -> bool:
        return self.element.is_int_signed()

    def binary(self, instruction: str, *texts: str) -> str:
        """Write `instruction type x, y`."""
        x, y = texts or self.texts
        return self.code.assign(f"{instruction} {self.type} {x}, {y}", self.level)

    def intrinsic(self, name: str, *texts: str, extra: str = "") -> str:
        """Call an intrinsic overloaded on the operand type."""
        full = f"llvm.{name}.{mangled(self.scalar, self.lanes)}"
        arguments = ", ".join(f"{self.type} {t}" for t in texts or self.texts)
        return self.code.call(self.type, full, arguments + extra, self.level)

    def compare(self, condition: str, x: str, y: str) -> str:
        instruction = "fcmp" if self.is_float else "icmp"
        return self.code.assign(f"{instruction} {condition} {self.type} {x}, {y}", self.level)

    def select(self, condition: str, x: str, y: str) -> str:
        flags = vector("i1", self.lanes)
        return self.code.assign(
            f"select {flags} {condition}, {self.type} {x}, {self.type} {y}", self.level
        )

    def convert(self, instruction: str, text: str, source: str, target: str) -> str:
        a, b = vector(source, self.lanes), vector(target, self.lanes)
        return self.code.assign(f"{instruction} {a} {text} to {b}", self.level)

    def constant(self, value: float) -> str:
        text = constant_text(value, self.element)
        return text if self.lanes == 1 else f"splat ({self.scalar} {text})"


Rule = Callable[[Operands, Any], str]
RULES: dict[type[Op], Rule] = {}


def rule(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register the lowering of some op classes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, function))
        return function

    return register


def lower(code: Code, op: Op, texts: list[str], lanes: int, level: int) -> str:
    """Write one op and return the name of its result."""
    function = code.rules.get(type(op)) or RULES.get(type(op))
    if function is None:
        raise InternalError(f"no target has a rule for {op.op_name}", location=op.location)
    return function(Operands(code, op, texts, lanes, level), op)


_FLOAT_OR_INTEGER: dict[type[Op], tuple[str, str, str]] = {
    ops.Add: ("fadd", "add", "xor"),
    ops.Sub: ("fsub", "sub", "xor"),
    ops.Mul: ("fmul", "mul", "and"),
}


@rule(*_FLOAT_OR_INTEGER)
def _arithmetic(o: Operands, op: Op) -> str:
    on_floats, on_integers, on_bools = _FLOAT_OR_INTEGER[type(op)]
    if o.is_float:
        return o.binary(on_floats)
    return o.binary(on_bools if o.element.is_bool() else on_integers)


@rule(ops.And)
def _and(o: Operands, op: Op) -> str:
    return o.binary("and")


@rule(ops.Or)
def _or(o: Operands, op: Op) -> str:
    return o.binary("or")


@rule(ops.Xor)
def _xor(o: Operands, op: Op) -> str:
    return o.binary("xor")


@rule(ops.Neg)
def _neg(o: Operands, op: Op) -> str:
    if o.is_float:
        return o.code.assign(f"fneg {o.type} {o.texts[0]}", o.level)
    if o.element.is_bool():
        return o.texts[0]
    return o.binary("sub", o.constant(0), o.texts[0])


@rule(ops.Abs)
def _abs(o: Operands, op: Op) -> str:
    if o.is_float:
        return o.intrinsic("fabs")
    return o.intrinsic("abs", extra=", i1 false") if o.is_signed else o.texts[0]


@rule(ops.Invert)
def _invert(o: Operands, op: Op) -> str:
    ones = "true" if o.element.is_bool() else "-1"
    mask = ones if o.lanes == 1 else f"splat ({o.scalar} {ones})"
    return o.binary("xor", o.texts[0], mask)


def _constant_divisor(op: Op) -> bool:
    """Whether LLVM may multiply by a reciprocal instead: the divisor is known and cannot trap."""
    divisor = op.operands[1]
    while isinstance(divisor, ops.Broadcast):
        divisor = divisor.x
    return isinstance(divisor, ops.Full) and divisor.value not in {0, -1}


def _integer_division(o: Operands, op: Op, kind: str) -> str:
    sign = "s" if o.is_signed else "u"
    if _constant_divisor(op):
        return o.binary(f"{sign}{kind}")
    x, y = o.texts
    zero = o.compare("eq", y, o.constant(0))
    unsafe = zero
    if o.is_signed:
        low = dtype(o.element).integer_range[0]
        at_low, minus_one = o.compare("eq", x, o.constant(low)), o.compare("eq", y, o.constant(-1))
        flags = vector("i1", o.lanes)
        overflow = o.code.assign(f"and {flags} {at_low}, {minus_one}", o.level)
        unsafe = o.code.assign(f"or {flags} {zero}, {overflow}", o.level)
    if o.lanes > 1 and dtype(o.element).primitive_bitwidth <= 32:
        quotient = _quotient_in_fp64(o, x, o.select(unsafe, o.constant(1), y))
    else:
        quotient = o.binary(f"{sign}div", x, o.select(unsafe, o.constant(1), y))
    # With the divisor replaced by 1, MIN / -1 is MIN, and both remainders come out as 0.
    if kind == "div":
        return o.select(zero, o.constant(0), quotient)
    divisor = o.select(unsafe, o.constant(1), y)
    return o.binary("sub", x, o.binary("mul", quotient, divisor))


def _quotient_in_fp64(o: Operands, x: str, y: str) -> str:
    """Up to 32 bits, the truncated fp64 quotient is exact; there is no vector integer division."""
    to, back = ("sitofp", "fptosi") if o.is_signed else ("uitofp", "fptoui")
    a, b = (o.convert(to, text, o.scalar, "double") for text in (x, y))
    wide = vector("double", o.lanes)
    quotient = o.code.assign(f"fdiv {wide} {a}, {b}", o.level)
    return o.convert(back, quotient, "double", o.scalar)


@rule(ops.Div)
def _div(o: Operands, op: Op) -> str:
    if o.is_float:
        return o.binary("fdiv")
    return o.binary("and") if o.element.is_bool() else _integer_division(o, op, "div")


@rule(ops.Rem)
def _rem(o: Operands, op: Op) -> str:
    if o.is_float:
        return o.binary("frem")
    return o.constant(0) if o.element.is_bool() else _integer_division(o, op, "rem")


@rule(ops.ShiftLeft, ops.ShiftRight)
def _shift(o: Operands, op: Op) -> str:
    x, y = o.texts
    bits = dtype(o.element).primitive_bitwidth
    if bits == 1:
        inverted = o.binary("xor", y, o.constant(1))
        return o.binary("and", x, inverted)
    left = isinstance(op, ops.ShiftLeft)
    instruction = "shl" if left else "ashr" if o.is_signed else "lshr"
    count = op.operands[1]
    if isinstance(count, ops.Broadcast):
        count = count.x
    if isinstance(count, ops.Full) and 0 <= count.value < bits:
        return o.binary(instruction)
    inside = o.compare("ult", y, o.constant(bits))
    if instruction == "ashr":  # shifting everything out leaves the sign
        return o.binary(instruction, x, o.select(inside, y, o.constant(bits - 1)))
    shifted = o.binary(instruction, x, o.select(inside, y, o.constant(0)))
    return o.select(inside, shifted, o.constant(0))


@rule(ops.MulHigh)
def _mul_high(o: Operands, op: Op) -> str:
    bits = dtype(o.element).primitive_bitwidth
    wide = f"i{2 * bits}"
    extend = "sext" if o.is_signed else "zext"
    x, y = (o.convert(extend, text, o.scalar, wide) for text in o.texts)
    type_ = vector(wide, o.lanes)
    product = o.code.assign(f"mul {type_} {x}, {y}", o.level)
    count = str(bits) if o.lanes == 1 else f"splat ({wide} {bits})"
    high = o.code.assign(f"lshr {type_} {product}, {count}", o.level)
    return o.convert("trunc", high, wide, o.scalar)


@rule(ops.Minimum, ops.Maximum)
def _extremum(o: Operands, op: ops.Minimum | ops.Maximum) -> str:
    word = "min" if isinstance(op, ops.Minimum) else "max"
    if o.is_float:
        selector = 4 if word == "min" else 5
        if not op.propagate_nan and _has_range_instruction(o):
            return _range(o, selector)
        if not op.propagate_nan and o.lanes == 1 and o.code.features >= _RANGE_FEATURES:
            return _scalar_range(o, selector)
        return o.intrinsic(f"{word}imum" if op.propagate_nan else f"{word}imumnum")
    return o.intrinsic(f"{'s' if o.is_signed else 'u'}{word}")


_RANGE_FEATURES = frozenset({"avx512dq", "avx512vl"})


def _has_range_instruction(o: Operands) -> bool:
    """Whether `vrange` takes these vectors: it is `minimumnum` in one instruction."""
    bits = dtype(o.element).primitive_bitwidth
    wanted = frozenset({"avx512dq"}) if bits * o.lanes == 512 else _RANGE_FEATURES
    return bits >= 32 and bits * o.lanes in {128, 256, 512} and o.code.features >= wanted


def _range(o: Operands, selector: int) -> str:
    return _masked_512(o, "range", f"i32 {selector}, ", *o.texts)


def _scalar_range(o: Operands, selector: int) -> str:
    """Use one lane of the vector instruction.

    LLVM 22 with AVX-512 gets the scalar `maximumnum` wrong where it can tell that one operand, say
    a converted integer, is no NaN: it then returns the NaN of the other.
    """
    lanes = 128 // dtype(o.element).primitive_bitwidth
    whole = vector(o.scalar, lanes)
    wide = [
        o.code.assign(f"insertelement {whole} zeroinitializer, {o.scalar} {t}, i32 0", o.level)
        for t in o.texts
    ]
    result = _range(Operands(o.code, o.op, wide, lanes, o.level), selector)
    return o.code.assign(f"extractelement {whole} {result}, i32 0", o.level)


def _masked_512(o: Operands, name: str, selector: str, x: str, y: str) -> str:
    """Call an AVX-512 intrinsic on all lanes, with the current rounding mode."""
    bits = dtype(o.element).primitive_bitwidth * o.lanes
    suffix = f"{'ps' if o.scalar == 'float' else 'pd'}.{bits}"
    everything = f"i{max(8, o.lanes)} -1"
    rounding = ", i32 4" if bits == 512 else ""
    return o.code.call(
        o.type,
        f"llvm.x86.avx512.mask.{name}.{suffix}",
        f"{o.type} {x}, {o.type} {y}, {selector}{o.type} {x}, {everything}{rounding}",
        o.level,
    )


_FLOAT_CONDITIONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


@rule(ops.Compare)
def _compare(o: Operands, op: ops.Compare) -> str:
    predicate = str(op.predicate)
    if o.is_float:
        return o.compare(_FLOAT_CONDITIONS[predicate], *o.texts)
    if predicate in {"eq", "ne"}:
        return o.compare(predicate, *o.texts)
    return o.compare(("s" if o.is_signed else "u") + predicate, *o.texts)


@rule(ops.Fma)
def _fma(o: Operands, op: Op) -> str:
    return o.intrinsic("fma")


@rule(ops.Select)
def _select(o: Operands, op: ops.Select) -> str:
    condition, x, y = o.texts
    flags, type_ = vector("i1", o.lanes), vector(llvm_type(op.type.element), o.lanes)
    return o.code.assign(f"select {flags} {condition}, {type_} {x}, {type_} {y}", o.level)


_INTRINSICS: dict[type[Op], str] = {
    ops.Sqrt: "sqrt",
    ops.Floor: "floor",
    ops.Ceil: "ceil",
    ops.Trunc: "trunc",
    ops.Rint: "roundeven",
}


@rule(*_INTRINSICS)
def _intrinsic(o: Operands, op: Op) -> str:
    return o.intrinsic(_INTRINSICS[type(op)])


@rule(ops.Ldexp)
def _ldexp(o: Operands, op: Op) -> str:
    """Two factors, each a normal number: 2^n alone may be subnormal or above the largest."""
    if _has_scale_instruction(o):
        return _masked_512(o, "scalef", "", *o.texts)
    mantissa, bits = (23, 32) if o.scalar == "float" else (52, 64)
    integer = f"i{bits}"
    type_ = vector(integer, o.lanes)

    def integers(instruction: str, x: str, y: str | int) -> str:
        number = y if isinstance(y, str) else o.code.splat(Element(str(y), 1, 0), integer, o.lanes)
        return o.code.assign(f"{instruction} {type_} {x}, {number}", o.level)

    # Adding 1.5 * 2^mantissa leaves the whole number in the lowest bits.
    shifted = o.binary("fadd", o.texts[1], o.constant(1.5 * 2.0**mantissa))
    n = o.convert("bitcast", shifted, o.scalar, integer)
    half = integers("ashr", n, 1)
    result = o.texts[0]
    for exponent in (half, integers("sub", n, half)):
        one = ((1 << bits - mantissa - 2) - 1) << mantissa
        power = integers("add", integers("shl", exponent, mantissa), one)
        result = o.binary("fmul", result, o.convert("bitcast", power, integer, o.scalar))
    return result


def _has_scale_instruction(o: Operands) -> bool:
    return "avx512f" in o.code.features and dtype(o.element).primitive_bitwidth * o.lanes == 512


@rule(ops.Cast)
def _cast(o: Operands, op: ops.Cast) -> str:
    source, to = dtype(o.element), op.to
    target = llvm_type(to)
    if to.is_bool():
        return o.compare("une" if o.is_float else "ne", o.texts[0], o.constant(0))
    if source.is_floating():
        if to.is_floating():
            return _float_to_float(o, source, to)
        return _float_to_integer(o, to)
    if to.is_floating():
        return o.convert("sitofp" if o.is_signed else "uitofp", o.texts[0], o.scalar, target)
    if to.primitive_bitwidth == source.primitive_bitwidth:
        return o.texts[0]
    if to.primitive_bitwidth < source.primitive_bitwidth:
        return o.convert("trunc", o.texts[0], o.scalar, target)
    return o.convert("sext" if o.is_signed else "zext", o.texts[0], o.scalar, target)


def _float_to_integer(o: Operands, to: DType) -> str:
    """Saturate, and NaN to 0.

    From fp16 through fp32, since LLVM 22 with AVX512-FP16 makes something else of NaN. To narrow
    integers through i32, for which there are vector instructions.
    """
    text, scalar = o.texts[0], o.scalar
    if scalar == "half":
        text, scalar = o.convert("fpext", text, "half", "float"), "float"
    narrow = to.primitive_bitwidth < 32
    target = "i32" if narrow else llvm_type(to)
    sign = "s" if narrow or to.is_int_signed() else "u"
    name = f"llvm.fpto{sign}i.sat.{mangled(target, o.lanes)}.{mangled(scalar, o.lanes)}"
    type_ = vector(target, o.lanes)
    text = o.code.call(type_, name, f"{vector(scalar, o.lanes)} {text}", o.level)
    if not narrow:
        return text
    for word, bound in zip(("smax", "smin"), to.integer_range, strict=True):
        limit = o.code.splat(Element(str(bound), 1, 0), "i32", o.lanes)
        full = f"llvm.{word}.{mangled('i32', o.lanes)}"
        text = o.code.call(type_, full, f"{type_} {text}, {type_} {limit}", o.level)
    return o.convert("trunc", text, "i32", llvm_type(to))


def _float_to_float(o: Operands, source: DType, to: DType) -> str:
    if source is to:
        return o.texts[0]
    if {source.short_name, to.short_name} - {"fp16", "fp32", "fp64"}:
        raise InternalError(f"a cast from {source} to {to} reached the CPU target")
    if (
        "fp16" in {source.short_name, to.short_name}
        and o.code.is_x86
        and "f16c" not in o.code.features
    ):
        raise Unsupported(
            "fp16 on an x86 processor without the F16C instructions",
            location=o.op.location,
            hint="use bf16 or fp32 there",
        )
    wider = to.primitive_bitwidth > source.primitive_bitwidth
    return o.convert("fpext" if wider else "fptrunc", o.texts[0], o.scalar, llvm_type(to))


@rule(ops.Bitcast)
def _bitcast(o: Operands, op: ops.Bitcast) -> str:
    target = llvm_type(op.to)
    if target == o.scalar:
        return o.texts[0]
    if isinstance(o.element, PointerType):
        return o.convert("ptrtoint", o.texts[0], "ptr", target)
    return o.convert("inttoptr" if target == "ptr" else "bitcast", o.texts[0], o.scalar, target)
