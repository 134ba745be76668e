"""The numeric instructions of PTX, each as ops on the values of its operands."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import elementwise, math
from tilewright.ops.elementwise import Compare, Predicate
from tilewright.ops.ptx.text import Instruction, Literal
from tilewright.ops.ptx.values import Values, dtype_of, unknown, width_of

__all__ = ["INSTRUCTIONS"]

Rule = Callable[[Values, Instruction], Value]
INSTRUCTIONS: dict[str, Rule] = {}

_DIRECTED = ("rz", "rm", "rp", "rna", "rs")
_LOWEST = {"f32": 2.0**-126, "f64": 2.0**-1022}


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """Enter what an instruction computes."""

    def enter(function: Rule) -> Rule:
        for opcode in opcodes:
            INSTRUCTIONS[opcode] = function
        return function

    return enter


def operands(values: Values, instruction: Instruction, count: int, kind: str = "") -> list[Value]:
    """Return the sources of an instruction."""
    sources = instruction.operands[1:]
    if len(sources) != count:
        raise unknown(instruction, f"{len(sources)} sources")
    return [values.read(x, kind or instruction.kind, instruction) for x in sources]


def flushed(values: Values, x: Value, instruction: Instruction) -> Value:
    """Return a number, 0 instead of a subnormal one where the instruction says so."""
    if not instruction.has("ftz") or x.type.element is not DTYPES["fp32"]:
        return x
    magnitude = values.add(elementwise.Abs(x))
    least = values.number(_LOWEST["f32"], DTYPES["fp32"])
    is_small = values.add(Compare(Predicate.LT, magnitude, least))
    sign = values.masked(values.bits_of(x), 1 << 31)
    return values.chosen(is_small, values.reinterpreted(sign, DTYPES["fp32"]), x)


def _in_lanes(values: Values, instruction: Instruction, compute: Callable[..., Value]) -> Value:
    """Compute on numbers, or on both halves of pairs of them."""
    kind, sources = instruction.kind, instruction.operands[1:]
    lane = kind.removesuffix("x2")
    if lane == kind:
        read = [values.read(x, kind, instruction) for x in sources]
        return compute(*(flushed(values, x, instruction) for x in read))
    element = dtype_of(lane)
    if element is None:
        raise unknown(instruction, f"the type .{kind}")
    whole = [values.resized(values.bits(x, instruction), 2 * width_of(lane)) for x in sources]
    halves = [values.split(x, 2) for x in whole]
    results = [
        compute(*(values.reinterpreted(half[i], element) for half in halves)) for i in range(2)
    ]
    return values.joined([values.bits_of(x) for x in results])


def _finished(values: Values, instruction: Instruction, result: Value) -> Value:
    """Return a result as `.sat`, `.relu` and `.ftz` leave it."""
    element = result.type.element
    assert isinstance(element, DType)
    if instruction.has("sat") and element.is_floating():
        zero, one = values.number(0.0, element), values.number(1.0, element)
        result = values.add(elementwise.Maximum(result, zero))  # NaN becomes 0
        result = values.add(elementwise.Minimum(result, one))
    elif instruction.has("sat"):
        raise unknown(instruction, ".sat of integers")
    if instruction.has("relu"):
        result = values.add(elementwise.Maximum(result, values.number(0.0, element), True))
    return flushed(values, result, instruction)


def _is_float(kind: str) -> bool:
    element = dtype_of(kind.removesuffix("x2"))
    return element is not None and element.is_floating()


def _nearest_only(instruction: Instruction) -> None:
    for mode in _DIRECTED:
        if instruction.has(mode):
            raise unknown(instruction, f"the rounding .{mode}")


_ARITHMETIC: dict[str, type[Op]] = {
    "add": elementwise.Add,
    "sub": elementwise.Sub,
    "div": elementwise.Div,
    "rem": elementwise.Rem,
}


@rule("add", "sub", "rem")
def _arithmetic(values: Values, instruction: Instruction) -> Value:
    _nearest_only(instruction)
    if instruction.has("cc"):
        raise unknown(instruction, "the carry")

    def compute(x: Value, y: Value) -> Value:
        return _finished(values, instruction, values.add(_ARITHMETIC[instruction.opcode](x, y)))

    return _in_lanes(values, instruction, compute)


@rule("div")
def _divide(values: Values, instruction: Instruction) -> Value:
    _nearest_only(instruction)
    return _in_lanes(
        values,
        instruction,
        lambda x, y: _finished(values, instruction, values.add(elementwise.Div(x, y, exact=True))),
    )


@rule("mul")
def _multiply(values: Values, instruction: Instruction) -> Value:
    _nearest_only(instruction)
    if not _is_float(instruction.kind):
        return _integer_product(values, instruction, operands(values, instruction, 2))
    return _in_lanes(
        values,
        instruction,
        lambda x, y: _finished(
            values, instruction, values.add(elementwise.Mul(x, y, is_rounded=True))
        ),
    )


def _integer_product(values: Values, instruction: Instruction, factors: list[Value]) -> Value:
    x, y = factors
    if instruction.has("hi"):
        return values.add(elementwise.MulHigh(x, y))
    if instruction.has("wide"):
        bits = 2 * width_of(instruction.kind)
        wide = DTYPES[f"{'i' if instruction.kind.startswith('s') else 'u'}{bits}"]
        x, y = (values.converted(v, wide) for v in (x, y))
    return values.add(elementwise.Mul(x, y))


@rule("fma", "mad")
def _multiply_add(values: Values, instruction: Instruction) -> Value:
    _nearest_only(instruction)
    if _is_float(instruction.kind):
        return _in_lanes(
            values,
            instruction,
            lambda x, y, z: _finished(values, instruction, values.add(elementwise.Fma(x, y, z))),
        )
    x, y = (values.read(v, instruction.kind, instruction) for v in instruction.operands[1:3])
    product = _integer_product(values, instruction, [x, y])
    kind = instruction.kind
    if instruction.has("wide"):
        kind = f"{kind[0]}{2 * width_of(kind)}"
    addend = values.read(instruction.operands[3], kind, instruction)
    return values.add(elementwise.Add(product, addend))


@rule("min", "max")
def _extreme(values: Values, instruction: Instruction) -> Value:
    made = elementwise.Minimum if instruction.opcode == "min" else elementwise.Maximum
    if instruction.has("xorsign") or len(instruction.operands) != 3:
        raise unknown(instruction)
    keeps_nan = instruction.has("NaN")
    return _in_lanes(
        values,
        instruction,
        lambda x, y: _finished(values, instruction, values.add(made(x, y, keeps_nan))),
    )


@rule("abs", "neg")
def _sign(values: Values, instruction: Instruction) -> Value:
    made: type[Op] = elementwise.Abs if instruction.opcode == "abs" else elementwise.Neg
    return _in_lanes(values, instruction, lambda x: values.add(made(x)))


_FUNCTIONS: dict[str, Callable[[Value], Op]] = {
    "ex2": math.Exp2,
    "lg2": math.Log2,
    "sin": math.Sin,
    "cos": math.Cos,
    "tanh": math.Tanh,
    "sqrt": math.Sqrt,
    "rsqrt": math.Rsqrt,
}


@rule(*_FUNCTIONS, "rcp")
def _function(values: Values, instruction: Instruction) -> Value:
    _nearest_only(instruction)

    def compute(x: Value) -> Value:
        if instruction.opcode == "rcp":
            element = x.type.element
            assert isinstance(element, DType)
            made: Op = elementwise.Div(values.number(1.0, element), x, exact=True)
        else:
            made = _FUNCTIONS[instruction.opcode](x)
        return _finished(values, instruction, values.add(made))

    return _in_lanes(values, instruction, compute)


_LOGIC: dict[str, type[Op]] = {
    "and": elementwise.And,
    "or": elementwise.Or,
    "xor": elementwise.Xor,
    "not": elementwise.Invert,
}


@rule(*_LOGIC)
def _logic(values: Values, instruction: Instruction) -> Value:
    count = len(instruction.operands) - 1
    return values.add(_LOGIC[instruction.opcode](*operands(values, instruction, count)))


@rule("shl", "shr")
def _shift(values: Values, instruction: Instruction) -> Value:
    x = values.read(instruction.operands[1], instruction.kind, instruction)
    amount = values.read(instruction.operands[2], "u32", instruction)
    element = x.type.element
    assert isinstance(element, DType)
    width = element.primitive_bitwidth
    # What is too far shifts all out; narrower types could not hold the count.
    limit = values.number(width, DTYPES["u32"])
    count = values.converted(values.add(elementwise.Minimum(amount, limit)), element)
    made = elementwise.ShiftLeft if instruction.opcode == "shl" else elementwise.ShiftRight
    return values.add(made(x, count))


@rule("shf")
def _funnel_shift(values: Values, instruction: Instruction) -> Value:
    low, high, amount = operands(values, instruction, 3, "b32")
    wide = DTYPES["u64"]
    whole = values.joined([low, high])
    if instruction.has("wrap"):
        count = values.masked(amount, 31)
    else:
        count = values.add(elementwise.Minimum(amount, values.number(32, DTYPES["u32"])))
    count = values.converted(count, wide)
    if instruction.has("l"):
        return values.split(values.add(elementwise.ShiftLeft(whole, count)), 2)[1]
    return values.split(values.add(elementwise.ShiftRight(whole, count)), 2)[0]


@rule("prmt")
def _permute_bytes(values: Values, instruction: Instruction) -> Value:
    if instruction.modifiers[1:]:
        raise unknown(instruction, f"the mode .{instruction.modifiers[1]}")
    x, y, selector = operands(values, instruction, 3, "b32")
    given = instruction.operands[3]
    if isinstance(given, Literal):
        return _bytes_by_constant(values, [x, y], int(given.value))
    whole, word = values.joined([x, y]), DTYPES["u32"]
    chosen = []
    for place in range(4):
        shift = values.number(4 * place, word)
        nibble = values.masked(values.add(elementwise.ShiftRight(selector, shift)), 15)
        byte = values.masked(nibble, 7)
        bits = values.add(elementwise.ShiftLeft(byte, values.number(3, word)))
        moved = values.add(elementwise.ShiftRight(whole, values.converted(bits, DTYPES["u64"])))
        found = values.converted(moved, DTYPES["u8"])
        copies = values.add(Compare(Predicate.GT, nibble, values.number(7, word)))
        chosen.append(values.chosen(copies, _sign_of_byte(values, found), found))
    return values.joined(chosen)


def _bytes_by_constant(values: Values, words: list[Value], selector: int) -> Value:
    parts = [byte for word in words for byte in values.split(word, 4)]
    chosen = []
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = parts[nibble & 7]
        chosen.append(_sign_of_byte(values, byte) if nibble & 8 else byte)
    return values.joined(chosen)


def _sign_of_byte(values: Values, byte: Value) -> Value:
    """Return the highest bit of a byte in all of its bits."""
    signed = values.reinterpreted(byte, DTYPES["i8"])
    spread = values.add(elementwise.ShiftRight(signed, values.number(7, DTYPES["i8"])))
    return values.bits_of(spread)


@rule("lop3")
def _any_logic(values: Values, instruction: Instruction) -> Value:
    table = instruction.operands[4] if len(instruction.operands) == 5 else None
    if not isinstance(table, Literal):
        raise unknown(instruction)
    sources = [values.read(x, "b32", instruction) for x in instruction.operands[1:4]]
    inverted = [values.add(elementwise.Invert(x)) for x in sources]
    result = values.number(0, DTYPES["u32"])
    for row in range(8):
        if int(table.value) >> row & 1:
            x, y, z = (sources[i] if row >> (2 - i) & 1 else inverted[i] for i in range(3))
            both = values.add(elementwise.And(values.add(elementwise.And(x, y)), z))
            result = values.add(elementwise.Or(result, both))
    return result


@rule("bfe")
def _extract(values: Values, instruction: Instruction) -> Value:
    position, length = instruction.operands[2:]
    if not (isinstance(position, Literal) and isinstance(length, Literal)):
        raise unknown(instruction, "places that are no constants")
    x = values.read(instruction.operands[1], instruction.kind, instruction)
    element, width = x.type.element, width_of(instruction.kind)
    assert isinstance(element, DType)
    first, count = int(position.value), int(length.value)
    if not count or first + count > width:
        raise unknown(instruction, "a field that is not inside")
    up = values.number(width - first - count, element)
    down = values.number(width - count, element)
    moved = values.add(elementwise.ShiftLeft(x, up))
    return values.add(elementwise.ShiftRight(moved, down))


_COMPARISONS = {
    "eq": Predicate.EQ, "ne": Predicate.NE, "lt": Predicate.LT, "le": Predicate.LE,
    "gt": Predicate.GT, "ge": Predicate.GE, "lo": Predicate.LT, "ls": Predicate.LE,
    "hi": Predicate.GT, "hs": Predicate.GE,
}  # fmt: skip


@rule("setp")
def _compare(values: Values, instruction: Instruction) -> Value:
    name = instruction.modifiers[0]
    x, y = operands(values, instruction, 2)
    x, y = (flushed(values, v, instruction) for v in (x, y))
    unordered = name.removesuffix("u")
    if name in _COMPARISONS:
        found = values.add(Compare(_COMPARISONS[name], x, y))
        if name == "ne" and _is_float(instruction.kind):  # false for NaN, as the others
            numbers = [values.add(Compare(Predicate.EQ, v, v)) for v in (x, y)]
            found = values.add(elementwise.And(found, values.add(elementwise.And(*numbers))))
        return found
    if unordered in _COMPARISONS and unordered != name:
        found = values.add(Compare(_COMPARISONS[unordered], x, y))
        nans = [values.add(Compare(Predicate.NE, v, v)) for v in (x, y)]
        return values.add(elementwise.Or(found, values.add(elementwise.Or(*nans))))
    raise unknown(instruction, f"the comparison .{name}")


@rule("selp")
def _select(values: Values, instruction: Instruction) -> Value:
    x, y = (values.read(v, instruction.kind, instruction) for v in instruction.operands[1:3])
    return values.chosen(values.read(instruction.operands[3], "pred", instruction), x, y)


@rule("mov")
def _move(values: Values, instruction: Instruction) -> Value:
    source = instruction.operands[1]
    if isinstance(source, Literal):
        return values.read(source, instruction.kind, instruction)
    return values.resized(values.bits(source, instruction), width_of(instruction.kind))
