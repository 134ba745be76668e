"""Products: operands in the registers that the instruction reads, the sum in its accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, Element, dtype, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.products import ProductShape
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.words import to_words
from tilewright.errors import Unsupported
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout, register_copies

__all__ = ["MatrixMachine", "multiply"]

_WORD_BITS = 32
_ROWS, _COLUMNS = 16, 8  # of the accumulator of one instruction


class MatrixMachine(Protocol):
    """Writes matrix instructions."""

    def operand_word(self, element: str, word: str) -> str:
        """Return a word of an operand as the instruction takes it."""

    def multiply_add(
        self, element: str, a: Sequence[str], b: Sequence[str], sums: Sequence[str]
    ) -> list[str]:
        """Return sums + a b for one instruction's fragments; `a` and `b` are words."""


def multiply(puller: Puller, placement: Placement, machine: MatrixMachine, op: ops.Dot) -> None:
    """Write a product; its result lives in the layout of the accumulator."""
    plan = placement.product(op)
    if plan.element:
        sums = _by_matrices(puller, machine, op, plan)
    else:
        sums = _by_elements(puller, op, plan)
    level = puller.code.level
    elements = tuple(Element(text, 1, level) for text in sums)
    puller.residents[op] = Resident(plan.accumulator, elements)


# -- matrix instructions --------------------------------------------------------------------------


def _by_matrices(
    puller: Puller, machine: MatrixMachine, op: ops.Dot, plan: ProductShape
) -> list[str]:
    """All tiles of the accumulator for a step along k, before the next step."""
    a = _Operand(puller, machine, op.a, plan.a, plan, (_ROWS, plan.depth))
    b = _Operand(puller, machine, op.b, plan.b, plan, (plan.depth, _COLUMNS))
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    tiles = _tiles(plan.accumulator, (_ROWS, _COLUMNS))
    with puller.lazily():
        for k in sorted({k for _, k in a.tiles}):
            for (row, column), registers in tiles.items():
                before = [sums[r] for r in registers]
                new = machine.multiply_add(plan.element, a[row, k], b[k, column], before)
                for register, text in zip(registers, new, strict=True):
                    sums[register] = text
    return sums


def _tiles(layout: LinearLayout, tile: tuple[int, int]) -> dict[tuple[int, int], list[int]]:
    """The registers of each tile of one instruction, in the order of the layout."""
    tiles: dict[tuple[int, int], list[int]] = {}
    for register, first in enumerate(register_copies(layout)):
        if register == first:
            row, column = layout(register=register).values()
            corner = row // tile[0] * tile[0], column // tile[1] * tile[1]
            tiles.setdefault(corner, []).append(register)
    return tiles


class _Operand:
    """The words of an operand for each instruction, written when they are first asked for."""

    def __init__(
        self,
        puller: Puller,
        machine: MatrixMachine,
        value: Value,
        layout: LinearLayout,
        plan: ProductShape,
        tile: tuple[int, int],
    ) -> None:
        self.puller, self.machine, self.value = puller, machine, value
        self.layout, self.plan = layout, plan
        self.tiles = _tiles(layout, tile)
        self._words: dict[tuple[int, int], list[str]] = {}

    def __getitem__(self, corner: tuple[int, int]) -> list[str]:
        if corner not in self._words:
            self._words[corner] = self._pack(self.tiles[corner])
        return self._words[corner]

    def _pack(self, registers: list[int]) -> list[str]:
        kind = self.value.type.element
        texts = [self.puller.pull(self.value, self.layout, r).text for r in registers]
        packed = max(1, _WORD_BITS // kind.primitive_bitwidth)
        words = []
        for first in range(0, len(texts), packed):
            (word,) = to_words(self.puller.code, texts[first : first + packed], kind, _WORD_BITS)
            words.append(self.machine.operand_word(self.plan.element, word))
        return words


# -- multiplying and adding -----------------------------------------------------------------------


def _by_elements(puller: Puller, op: ops.Dot, plan: ProductShape) -> list[str]:
    """Sum up along k in the type of the accumulator, in fp32 at least."""
    code, kind = puller.code, dtype(op.acc.type.element)
    wide = "float" if kind.name == "fp16" else llvm_type(kind)
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    if kind.name == "fp16":
        sums = [code.assign(f"fpext half {text} to float") for text in sums]
    places = [plan.accumulator(register=r).values() for r in range(len(sums))]
    a, b = _WideOperand(puller, op.a, plan.a, wide), _WideOperand(puller, op.b, plan.b, wide)
    with puller.lazily():
        for k in range(op.a.shape[-1]):
            for register, (*batch, row, column) in enumerate(places):
                x, y = a[(*batch, row, k)], b[(*batch, k, column)]
                sums[register] = _multiply_add(code, wide, x, y, sums[register])
    if kind.name == "fp16":
        return [code.assign(f"fptrunc float {text} to half") for text in sums]
    return sums


def _multiply_add(code: Code, kind: str, x: str, y: str, total: str) -> str:
    if kind in {"float", "double"}:
        suffix = "f32" if kind == "float" else "f64"
        return code.call(kind, f"llvm.fma.{suffix}", f"{kind} {x}, {kind} {y}, {kind} {total}")
    product = code.assign(f"mul {kind} {x}, {y}")
    return code.assign(f"add {kind} {product}, {total}")


class _WideOperand:
    """The elements of an operand by the part of their coordinates that comes from registers."""

    def __init__(self, puller: Puller, value: Value, layout: LinearLayout, wide: str) -> None:
        self.puller, self.value, self.layout, self.wide = puller, value, layout, wide
        registers = range(layout.input_size("register"))
        places = [tuple(layout(register=register).values()) for register in registers]
        self._registers = dict(zip(reversed(places), reversed(registers), strict=True))
        self._texts: dict[tuple[int, ...], str] = {}

    def __getitem__(self, place: tuple[int, ...]) -> str:
        if place not in self._texts:
            element = self.puller.pull(self.value, self.layout, self._registers[place])
            kind = dtype(self.value.type.element)
            text = _widened(self.puller.code, element.text, kind, self.wide, self.value)
            self._texts[place] = text
        return self._texts[place]


def _widened(code: Code, text: str, kind: DType, wide: str, value: Value) -> str:
    source = llvm_type(kind)
    if source == wide:
        return text
    if kind.name == "bf16":
        upper = code.assign(f"shl i32 {code.assign(f'zext i16 {text} to i32')}, 16")
        return code.assign(f"bitcast i32 {upper} to float")
    if kind.name == "fp16":
        return code.assign(f"fpext half {text} to {wide}")
    if kind.is_floating():
        location = value.location if isinstance(value, Op) else None
        raise Unsupported(
            f"a product of {kind} on this GPU",
            location=location,
            hint="convert the operands to fp16 before the product",
        )
    extend = "sext" if kind.is_int_signed() else "zext"
    return code.assign(f"{extend} {source} {text} to {wide}")
