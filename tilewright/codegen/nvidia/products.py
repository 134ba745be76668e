"""The products of one function, each by the instructions that its plan says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.element_products import ElementProduct, hold_operand, multiply_elements
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.nvidia.product_plans import WarpgroupProduct, WarpProduct
from tilewright.codegen.nvidia.running import RunningProducts, products_first
from tilewright.codegen.nvidia.warp_products import MatrixMachine, multiply_by_warps
from tilewright.codegen.nvidia.warpgroup import (
    WarpgroupMachine,
    hold_in_shared,
    is_read_from_registers,
    multiply_by_warpgroups,
)
from tilewright.ir.core import Op, Value

__all__ = ["NvidiaProducts"]


class ProductMachine(WarpgroupMachine, MatrixMachine, Protocol):
    """Writes matrix instructions of all kinds."""


class NvidiaProducts:
    """Writes the products of one function: see `Products`, which this is."""

    def __init__(self, puller: Puller, machine: ProductMachine) -> None:
        self.puller, self.placement, self.machine = puller, puller.placement, machine
        self._running = RunningProducts(puller, machine)

    def ordered(self, written: Iterable[Op], deferred: set[ops.Dot]) -> list[Op]:
        def runs(op: ops.Dot) -> bool:
            return self.placement.product(op).runs_on and op not in deferred

        return products_first(tuple(written), self.puller.uses, runs, self.puller.tiles)

    def write(self, op: ops.Dot, *, is_deferred: bool) -> None:
        puller, plan = self.puller, self.placement.product(op)
        match plan:
            case WarpgroupProduct():
                running = None if is_deferred else self._running
                multiply_by_warpgroups(puller, self.machine, op, plan, running=running)
                return
            case WarpProduct():
                sums = multiply_by_warps(puller, self.machine, op, plan)
            case ElementProduct():
                sums = multiply_elements(puller, op, plan)
        level = puller.code.level
        elements = tuple(Element(text, 1, level) for text in sums)
        puller.residents[op] = Resident(plan.accumulator, elements)

    @contextmanager
    def placed(self, op: ops.Dot, value: Value) -> Iterator[None]:
        plan, placement = self.placement.product(op), self.placement
        in_registers = value is op.a and is_read_from_registers(placement, op)
        if plan.runs_on and not in_registers:
            with hold_in_shared(self.puller, placement, self.machine, op, value):
                yield
            return
        if isinstance(plan, ElementProduct):
            with hold_operand(self.puller, op, plan, value):
                yield
            return
        self.puller.pull_all(value, plan.a if value is op.a else plan.b)
        yield

    def await_for(self, op: Op) -> None:
        self._running.await_for(op)

    def await_all(self) -> None:
        self._running.await_all()

    def await_deferred(self, sums: Sequence[str], kind: str) -> list[str]:
        return self.machine.wait_for_products(0, sums, kind)
