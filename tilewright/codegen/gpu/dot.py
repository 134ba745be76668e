"""Products: by matrix instructions, or by multiplying and adding element by element."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, Element, dtype, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.products import ProductShape
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.warp_products import MatrixMachine, multiply_by_warps
from tilewright.codegen.wider import extended, float_of
from tilewright.ir.core import Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout

__all__ = ["multiply"]


def multiply(puller: Puller, placement: Placement, machine: MatrixMachine, op: ops.Dot) -> None:
    """Write a product; its result lives in the layout of the accumulator."""
    plan = placement.product(op)
    if plan.element:
        sums = multiply_by_warps(puller, machine, op, plan)
    else:
        sums = _by_elements(puller, op, plan)
    level = puller.code.level
    elements = tuple(Element(text, 1, level) for text in sums)
    puller.residents[op] = Resident(plan.accumulator, elements)


# -- multiplying and adding -----------------------------------------------------------------------


def _by_elements(puller: Puller, op: ops.Dot, plan: ProductShape) -> list[str]:
    """Sum up along k in the type of the accumulator."""
    wide = llvm_type(op.acc.type.element)
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    places = [plan.accumulator(register=r).values() for r in range(len(sums))]
    a, b = _WideOperand(puller, op.a, plan.a, wide), _WideOperand(puller, op.b, plan.b, wide)
    with puller.lazily():
        for k in range(op.a.shape[-1]):
            for register, (*batch, row, column) in enumerate(places):
                x, y = a[(*batch, row, k)], b[(*batch, k, column)]
                sums[register] = _multiply_add(puller.code, wide, x, y, sums[register])
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
            text = _widened(self.puller.code, element.text, kind, self.wide)
            self._texts[place] = text
        return self._texts[place]


def _widened(code: Code, text: str, kind: DType, wide: str) -> str:
    if llvm_type(kind) == wide:
        return text
    if kind.is_floating():
        return float_of(code, text, kind)
    return extended(code, text, kind, int(wide[1:]))
