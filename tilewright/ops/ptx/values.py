"""The registers of a piece of assembly as tiles of bits, and ops on them."""

from __future__ import annotations

from tilewright.errors import Unsupported
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.convert import Bitcast, Cast
from tilewright.ops.elementwise import And, Compare, Or, Predicate, Select, ShiftLeft, ShiftRight
from tilewright.ops.ptx.text import Instruction, Literal, Name, Operand, Vector
from tilewright.ops.shape import Full

__all__ = ["Values", "dtype_of", "unknown", "width_of"]

_PREDICATE = DTYPES["i1"]
_FLOATS = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "e4m3": "fp8e4nv", "e5m2": "fp8e5",
}  # fmt: skip


def unknown(instruction: Instruction, what: str = "") -> Unsupported:
    """Return the error for what there is on NVIDIA GPUs alone."""
    return Unsupported(
        f"inline_asm_elementwise: `{instruction.text}`: {what or 'this instruction'} is there on "
        "NVIDIA GPUs only",
        hint="write the function with tl's own operations for other targets",
    )


def width_of(kind: str) -> int:
    """Return the bits of a type, of both halves where there are two."""
    if kind == "pred":
        return 1
    lanes = 2 if kind.endswith("x2") else 1
    if kind.startswith("e"):  # e4m3, e5m2
        return 8 * lanes
    digits = kind.removesuffix("x2").lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) * lanes if digits.isdigit() else 0


def dtype_of(kind: str) -> DType | None:
    """Return the element type of one type of PTX, None for one that is not known."""
    if kind == "pred":
        return _PREDICATE
    if kind in _FLOATS:
        return DTYPES[_FLOATS[kind]]
    sign = {"b": "u", "u": "u", "s": "i"}.get(kind[:1], "")
    return DTYPES.get(f"{sign}{kind[1:]}") if sign else None


class Values:
    """Registers by name, each a tile of its bits, and the ops that are written."""

    def __init__(self, ops: list[Op], shape: tuple[int, ...]) -> None:
        self._ops, self.shape = ops, shape
        self.names: dict[str, Value] = {}
        self.widths: dict[str, int] = {}  # of the registers that the constraints name

    def add(self, op: Op) -> Value:
        """Write an op and return its result."""
        self._ops.append(op)
        return op.results[0]

    def number(self, value: float, element: DType) -> Value:
        """Return a number in every lane."""
        return self.add(Full(value, TileType(element, self.shape)))

    def bits_of(self, value: Value) -> Value:
        """Return a value as an unsigned integer (a predicate as it is)."""
        element = value.type.element
        assert isinstance(element, DType)
        if element is _PREDICATE:
            return value
        return self.reinterpreted(value, DTYPES[f"u{element.primitive_bitwidth}"])

    def reinterpreted(self, value: Value, element: DType) -> Value:
        """Return the bits of a value as another type of the same width."""
        return value if value.type.element is element else self.add(Bitcast(value, element))

    def converted(self, value: Value, element: DType, rounding: str = "rtne") -> Value:
        """Return a value in another type."""
        if value.type.element is element:
            return value
        return self.add(Cast(value, element, rounding))

    def resized(self, value: Value, width: int) -> Value:
        """Return bits cut off, or with zeros in front."""
        bits = self.bits_of(value)
        return self.converted(bits, _PREDICATE if width == 1 else DTYPES[f"u{width}"])

    def read(self, operand: Operand, kind: str, instruction: Instruction) -> Value:
        """Return what an operand is as a type of PTX."""
        element = dtype_of(kind)
        if element is None:
            raise unknown(instruction, f"the type .{kind}")
        if isinstance(operand, Literal):
            if operand.is_bits:
                bits = self.number(operand.value, DTYPES[f"u{width_of(kind)}"])
                return self.reinterpreted(bits, element)
            return self._literal(operand.value, element)
        return self.reinterpreted(
            self.resized(self.bits(operand, instruction), width_of(kind)), element
        )

    def _literal(self, value: float, element: DType) -> Value:
        if element.is_floating() or element is _PREDICATE:
            return self.number(value, element)
        wrapped = int(value) % (1 << element.primitive_bitwidth)
        unsigned = self.number(wrapped, DTYPES[f"u{element.primitive_bitwidth}"])
        return self.reinterpreted(unsigned, element)

    def bits(self, operand: Operand, instruction: Instruction) -> Value:
        """Return the bits of a register, or of several together."""
        if isinstance(operand, Vector):
            return self.joined([self.bits(item, instruction) for item in operand.items])
        if isinstance(operand, Name) and operand.text in self.names:
            return self.names[operand.text]
        if isinstance(operand, Name) and operand.text.startswith("%"):
            raise unknown(instruction, f"the register {operand.text}")
        if isinstance(operand, Name):
            raise Unsupported(
                f"inline_asm_elementwise: `{instruction.text}` reads {operand.text}, which nothing "
                "has written",
                hint="write to it before it is read, or pass it as an argument: $1",
            )
        raise unknown(instruction, "a number there")

    def write(self, operand: Operand, value: Value, instruction: Instruction) -> None:
        """Let a register hold a value, where the guard of the instruction holds."""
        if isinstance(operand, Vector):
            parts = self.split(self.bits_of(value), len(operand.items))
            for item, part in zip(operand.items, parts, strict=True):
                self.write(item, part, instruction)
            return
        if not isinstance(operand, Name):
            raise unknown(instruction, "a result that is no register")
        if operand.text == "_":
            return
        bits = self.bits_of(value)
        if operand.text in self.widths:
            bits = self.resized(bits, self.widths[operand.text])
        if instruction.guard is not None and operand.text in self.names:
            before = self.resized(self.names[operand.text], width_of_value(bits))
            bits = self.add(Select(self.holds(instruction), bits, before))
        self.names[operand.text] = bits

    def holds(self, instruction: Instruction) -> Value:
        """Return whether the guard of an instruction holds."""
        assert instruction.guard is not None
        name, negated = instruction.guard
        flag = self.read(name, "pred", instruction)
        if not negated:
            return flag
        return self.add(Compare(Predicate.EQ, flag, self.number(0, _PREDICATE)))

    def joined(self, parts: list[Value]) -> Value:
        """Return bits side by side, the first lowest."""
        each = width_of_value(parts[0])
        whole = DTYPES[f"u{each * len(parts)}"]
        result = self.converted(parts[0], whole)
        for number, part in enumerate(parts[1:], 1):
            shift = self.number(number * each, whole)
            moved = self.add(ShiftLeft(self.converted(part, whole), shift))
            result = self.add(Or(result, moved))
        return result

    def split(self, bits: Value, count: int) -> list[Value]:
        """Return bits in `count` equal parts, the lowest first."""
        width = width_of_value(bits)
        each, whole = width // count, DTYPES[f"u{width}"]
        moved = [bits] + [
            self.add(ShiftRight(bits, self.number(number * each, whole)))
            for number in range(1, count)
        ]
        return [self.converted(part, DTYPES[f"u{each}"]) for part in moved]

    def masked(self, bits: Value, mask: int) -> Value:
        """Return some of the bits, the others 0."""
        element = bits.type.element
        assert isinstance(element, DType)
        return self.add(And(bits, self.number(mask, element)))

    def chosen(self, flag: Value, x: Value, y: Value) -> Value:
        """Return `x` where a flag is set, else `y`."""
        return self.add(Select(flag, x, y))


def width_of_value(bits: Value) -> int:
    """Return the bits of a register."""
    element = bits.type.element
    assert isinstance(element, DType)
    return element.primitive_bitwidth
