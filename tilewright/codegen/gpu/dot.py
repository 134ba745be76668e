"""Products: operands in the registers that the instruction reads, the sum in its accumulator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, Element, dtype, llvm_type
from tilewright.codegen.gpu.fragments import Fragments, instruction_tiles
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.products import ProductShape
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.errors import Unsupported
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout

__all__ = ["MatrixMachine", "multiply"]

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
    prepare = functools.partial(machine.operand_word, plan.element)
    a = Fragments(puller, op.a, plan.a, (_ROWS, plan.depth), prepare)
    b = Fragments(puller, op.b, plan.b, (plan.depth, _COLUMNS), prepare)
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    tiles = instruction_tiles(plan.accumulator, (_ROWS, _COLUMNS))
    with puller.lazily():
        for k in sorted({k for _, k in a.tiles}):
            for (row, column), registers in tiles.items():
                before = [sums[r] for r in registers]
                new = machine.multiply_add(plan.element, a[row, k], b[k, column], before)
                for register, text in zip(registers, new, strict=True):
                    sums[register] = text
    return sums


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
