"""Products by multiplying and adding, element by element: what no instruction multiplies."""

from __future__ import annotations

from math import prod

from tilewright import ops
from tilewright.codegen.code import Code, dtype, llvm_type
from tilewright.codegen.gpu.products import ProductPlan
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.wider import extended, float_of
from tilewright.ir.core import Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout
from tilewright.layout.blocked import axis_names, blocked

__all__ = ["element_product", "multiply_elements"]


def element_product(op: ops.Dot, warp_size: int, num_warps: int) -> ProductPlan:
    """Return a plan: each thread has a small block, and reads the rows and columns it needs."""
    shape = padded(op.acc.shape)
    k = padded(op.a.shape)[-1]
    rank = len(shape)
    m, n = rank - 2, rank - 1
    threads = warp_size * num_warps
    side = 4 if prod(shape) >= 16 * threads else 2 if prod(shape) >= 4 * threads else 1
    sizes, lanes, warps = ([1] * rank for _ in range(3))
    sizes[m] = min(side, shape[m])
    sizes[n] = min(side, shape[n])
    lanes[n] = min(warp_size, max(1, shape[n] // sizes[n]), 8)
    lanes[m] = warp_size // lanes[n]
    warps[m] = num_warps
    order = tuple(reversed(range(rank)))
    accumulator = blocked(shape, sizes, lanes, warps, order)
    names = axis_names(rank)
    a = _along_k(accumulator, names[n], names[n], k)
    b = _along_k(accumulator, names[m], names[m], k)
    return ProductPlan(accumulator, a.transpose_outputs(names), b.transpose_outputs(names))


def _along_k(accumulator: LinearLayout, axis: str, name: str, k: int) -> LinearLayout:
    """An operand: all of k in the registers of each thread, the other axes as in the result."""
    return LinearLayout.identity(k, "register", name) * accumulator.remove_output(axis)


# -- writing ---------------------------------------------------------------------------------------


def multiply_elements(puller: Puller, op: ops.Dot, plan: ProductPlan) -> list[str]:
    """Sum up along k in the type of the accumulator; return the elements of its registers."""
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
