"""`cvt`: conversions between the types of PTX, pairs of narrow floats included."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import elementwise, math
from tilewright.ops.elementwise import Compare, Predicate
from tilewright.ops.ptx.instructions import flushed
from tilewright.ops.ptx.text import Instruction, Operand
from tilewright.ops.ptx.values import Values, dtype_of, unknown

__all__ = ["convert"]

_TO_WHOLE = {"rni": math.Rint, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}
_HALF = ("f16", "bf16", "e4m3", "e5m2", "e2m1")


def convert(values: Values, instruction: Instruction) -> Value:
    """Return what `cvt` makes of its sources."""
    to, source = instruction.modifiers[-2:]
    if instruction.has("pack", "relu", "scaled", "rm", "rna"):
        raise unknown(instruction)
    if to == "ue8m0x2" and source == "f32" and instruction.has("rz", "rp"):
        sources = instruction.operands[:0:-1]
        return values.joined([_exponent(values, instruction, x) for x in sources])
    if instruction.has("rp"):
        raise unknown(instruction)
    if to.endswith("x2"):
        return _pair(values, instruction, to.removesuffix("x2"), source)
    target = dtype_of(to)
    if target is None or instruction.has("rs"):
        raise unknown(instruction)
    x = values.read(instruction.operands[1], source, instruction)
    return _number(values, instruction, flushed(values, x, instruction), target)


def _number(values: Values, instruction: Instruction, x: Value, to: DType) -> Value:
    source = x.type.element
    assert isinstance(source, DType)
    if source.is_floating():
        for name, made in _TO_WHOLE.items():
            if instruction.has(name):
                x = values.add(made(x))
        if instruction.has("sat") and to.is_floating():
            zero, one = values.number(0.0, source), values.number(1.0, source)
            x = values.add(elementwise.Minimum(values.add(elementwise.Maximum(x, zero)), one))
        if instruction.has("satfinite") and to.primitive_bitwidth > 8:
            raise unknown(instruction, ".satfinite to this type")
    elif instruction.has("sat"):
        x = _clamped(values, x, source, to)
    if not to.is_floating():
        return _sized(values, x, to)
    rounding = "rtz" if instruction.has("rz") else "rtne"
    if source.is_floating() and to.primitive_bitwidth >= source.primitive_bitwidth:
        rounding = "rtne"
    return flushed(values, values.converted(x, to, rounding), instruction)


def _clamped(values: Values, x: Value, source: DType, to: DType) -> Value:
    (low, high), (least, most) = to.integer_range, source.integer_range
    x = values.add(elementwise.Maximum(x, values.number(max(low, least), source)))
    return values.add(elementwise.Minimum(x, values.number(min(high, most), source)))


def _sized(values: Values, x: Value, to: DType) -> Value:
    """Return an integer, of at least 32 bits: a destination may be wider, and is filled up."""
    result = values.converted(x, to)
    if to.primitive_bitwidth < 32:
        result = values.converted(result, DTYPES["i32" if to.is_int_signed() else "u32"])
    return result


def _pair(values: Values, instruction: Instruction, lane: str, source: str) -> Value:
    """Return two narrow floats, of which the first source is the upper one."""
    if lane not in _HALF:
        raise unknown(instruction)
    sources = instruction.operands[1:]
    if source.endswith("x2"):
        return _widened(values, instruction, lane, source.removesuffix("x2"))
    numbers = [values.read(x, source, instruction) for x in sources[:2]]
    numbers = [flushed(values, x, instruction) for x in numbers]
    if instruction.has("rs"):
        numbers = _randomly_raised(values, instruction, numbers, lane)
    if lane == "e2m1":
        low, high = (_e2m1(values, x) for x in reversed(numbers))
        shifted = values.add(elementwise.ShiftLeft(high, values.number(4, DTYPES["u8"])))
        return values.add(elementwise.Or(low, shifted))
    element = dtype_of(lane)
    assert element is not None
    if instruction.has("satfinite") and element.primitive_bitwidth > 8:
        raise unknown(instruction, ".satfinite to this type")
    rounding = "rtz" if instruction.has("rz", "rs") else "rtne"
    halves = [values.converted(x, element, rounding) for x in reversed(numbers)]
    return values.joined([_without_sign_of_nan(values, x) for x in halves])


def _exponent(values: Values, instruction: Instruction, operand: Operand) -> Value:
    """Return the code of the power of two next to a magnitude, below it or above (`.rp`).

    Codes are biased exponents of fp32; 0 is 2^-127, half of the least normal number.
    """
    word = DTYPES["u32"]
    x = values.read(operand, "f32", instruction)
    magnitude = values.masked(values.bits_of(x), 0x7FFFFFFF)
    up = values.number(0x7FFFFF if instruction.has("rp") else 0, word)
    raised = values.add(elementwise.Add(magnitude, up))
    code = values.add(elementwise.ShiftRight(raised, values.number(23, word)))
    is_least = values.add(Compare(Predicate.LE, magnitude, values.number(0x400000, word)))
    code = values.chosen(is_least, values.number(0, word), code)
    if instruction.has("satfinite"):
        code = values.add(elementwise.Minimum(code, values.number(254, word)))
    is_number = values.add(Compare(Predicate.EQ, x, x))
    code = values.chosen(is_number, code, values.number(255, word))
    return values.converted(code, DTYPES["u8"])


def _widened(values: Values, instruction: Instruction, lane: str, source: str) -> Value:
    """Return two fp8 numbers as two of 16 bits."""
    target, narrow = dtype_of(lane), dtype_of(source)
    if lane not in {"f16", "bf16"} or source not in {"e4m3", "e5m2"}:
        raise unknown(instruction)
    assert target is not None
    assert narrow is not None
    both = values.split(values.read(instruction.operands[1], "b16", instruction), 2)
    parts = [values.converted(values.reinterpreted(x, narrow), target) for x in both]
    return values.joined([values.bits_of(x) for x in parts])


def _without_sign_of_nan(values: Values, x: Value) -> Value:
    """Return the bits of a number; NaN is the one that the hardware gives."""
    element = x.type.element
    assert isinstance(element, DType)
    bits = values.bits_of(x)
    unsigned = bits.type.element
    assert isinstance(unsigned, DType)
    ones = (1 << element.primitive_bitwidth - 1) - 1
    is_nan = values.add(Compare(Predicate.NE, x, x))
    return values.chosen(is_nan, values.number(ones, unsigned), bits)


def _randomly_raised(
    values: Values, instruction: Instruction, numbers: list[Value], lane: str
) -> list[Value]:
    """Add random bits below the last one that is kept, so that cutting off rounds by chance.

    Of the 32 bits that the instruction is given, the lower half is for the lower number.
    """
    if lane not in {"f16", "bf16"} or len(instruction.operands) != 4:
        raise unknown(instruction, "this rounding")
    dropped = 13 if lane == "f16" else 16
    random = values.split(values.read(instruction.operands[3], "b32", instruction), 2)
    raised = []
    for x, bits in zip(numbers, reversed(random), strict=True):
        word = DTYPES["u32"]
        amount = values.masked(values.converted(bits, word), (1 << dropped) - 1)
        whole = values.bits_of(x)
        exponent = values.masked(whole, 0x7F800000)
        is_finite = values.add(Compare(Predicate.NE, exponent, values.number(0x7F800000, word)))
        total = values.add(elementwise.Add(whole, amount))
        chosen = values.chosen(is_finite, total, whole)
        raised.append(values.reinterpreted(chosen, DTYPES["fp32"]))
    return raised


# Numbers halfway between neighbours, and whether a tie goes up, to the even code.
_E2M1_STEPS = (
    (0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True),
    (5.0, False),
)  # fmt: skip


def _e2m1(values: Values, x: Value) -> Value:
    """Return the code of 4 bits nearest to a number; NaN is the largest one."""
    byte, element = DTYPES["u8"], x.type.element
    assert isinstance(element, DType)
    magnitude = values.add(elementwise.Abs(x))
    code = values.number(0, byte)
    for middle, ties_up in _E2M1_STEPS:
        limit = values.number(middle, element)
        # A NaN is not below, whatever the limit.
        predicate = Predicate.LT if ties_up else Predicate.LE
        is_below = values.add(Compare(predicate, magnitude, limit))
        step = values.chosen(is_below, values.number(0, byte), values.number(1, byte))
        code = values.add(elementwise.Add(code, step))
    is_number = values.add(Compare(Predicate.EQ, x, x))
    bits = values.bits_of(x)
    sign = values.add(elementwise.ShiftRight(bits, values.number(28, DTYPES["u32"])))
    sign = values.converted(values.masked(sign, 8), byte)
    sign = values.chosen(is_number, sign, values.number(0, byte))
    return values.add(elementwise.Or(code, sign))
