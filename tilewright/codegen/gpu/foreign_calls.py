"""Calls of functions of other libraries: one for each element that a thread holds."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Element, dtype, llvm_type
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.layout import distinct_registers

__all__ = ["write_call"]


def write_call(puller: Puller, placement: Placement, op: ops.ForeignCall) -> None:
    """Write the calls; the result lives in registers."""
    layout = placement.of_elements(op) if op.shape else None
    computed: dict[int, Element] = {}
    for register in (0,) if layout is None else distinct_registers(layout):
        passed = []
        for value in op.args:
            element = (
                puller.scalar(value) if layout is None else puller.pull(value, layout, register)
            )
            passed.append(f"{llvm_type(dtype(value.type.element))} {element.text}")
        text = puller.code.call(llvm_type(op.element), op.symbol, ", ".join(passed))
        computed[register] = Element(text, 1, puller.code.level)
    if layout is None:
        puller.scalars[op] = computed[0]
    else:
        puller.residents[op] = Resident.of(layout, computed)
