"""Products that run on while the thread goes ahead, until something needs what they leave.

Products end in the order in which they were started. While one runs, nobody may touch its sums, the
registers that it reads, or what it reads in shared memory. It is waited for together with those
before it: when an op reads its result, and all of them where a block ends or control flow forks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import Span
from tilewright.codegen.gpu.shared_tile import SharedTile
from tilewright.codegen.uses import Uses, defining_op
from tilewright.ir.core import Op, Value
from tilewright.layout import LinearLayout, distinct_registers, register_copies

__all__ = ["PutOperand", "RunningProduct", "RunningProducts", "products_first"]


class WaitingMachine(Protocol):
    """Waits for products."""

    def wait_for_products(self, running: int, sums: Sequence[str], kind: str) -> list[str]:
        """Wait until at most so many groups run on; return the sums as they are then."""


@dataclass
class PutOperand:
    """An operand that was put into shared memory, for so many products that have not ended."""

    value: Value
    span: Span
    readers: int


@dataclass(frozen=True)
class RunningProduct:
    """A product that has been started: the registers of its sums, of type `kind`.

    `held` is what it reads from registers, if anything, and `put` what was put into shared memory.
    """

    op: Op
    layout: LinearLayout
    sums: tuple[str, ...]
    kind: str
    held: Value | None
    put: tuple[PutOperand, ...]


class RunningProducts:
    """The products of one function that have not been waited for, in the order of their start."""

    def __init__(self, puller: Puller, machine: WaitingMachine) -> None:
        self.puller, self.machine = puller, machine
        self._running: list[RunningProduct] = []
        self._put: dict[Value, PutOperand] = {}

    def put(self, value: Value, tile: SharedTile, span: Span, readers: int) -> PutOperand:
        """Let `readers` products find an operand that was put into a held span of shared memory."""
        put = PutOperand(value, span, readers)
        if readers > 1:
            self.puller.tiles[value], self._put[value] = tile, put
        return put

    def find_put(self, value: Value) -> PutOperand | None:
        """Return what was put into shared memory of a value."""
        return self._put.get(value)

    def start(self, product: RunningProduct) -> None:
        """Note a product that has been started."""
        self._running.append(product)

    def await_for(self, op: Op) -> None:
        """Wait for the products that an op reads, through recipes; for all of them if it forks."""
        if not self._running:
            return
        if isinstance(op, ops.For | ops.While | ops.If):
            self.await_all()
            return
        read = _recipe(op, self.puller.uses)
        numbers = (i for i, p in enumerate(self._running) if p.op in read or p.held in read)
        self._await(max(numbers, default=-1) + 1)

    def await_all(self) -> None:
        """Wait for all products."""
        self._await(len(self._running))

    def _await(self, count: int) -> None:
        """Wait for the first products; nobody reads sums but those that went through the wait."""
        ended, self._running = self._running[:count], self._running[count:]
        for kind in dict.fromkeys(product.kind for product in ended):
            alike = [product for product in ended if product.kind == kind]
            places = [distinct_registers(product.layout) for product in alike]
            sums = [p.sums[r] for p, own in zip(alike, places, strict=True) for r in own]
            done = iter(self.machine.wait_for_products(len(self._running), sums, kind))
            for product, own in zip(alike, places, strict=True):
                self._keep(product, dict(zip(own, islice(done, len(own)), strict=True)))
        for product in ended:
            for put in product.put:
                self._end_reading(put)

    def _end_reading(self, put: PutOperand) -> None:
        put.readers -= 1
        if not put.readers:
            self.puller.shared.release(put.span)
            if self._put.pop(put.value, None) is not None:
                del self.puller.tiles[put.value]

    def _keep(self, product: RunningProduct, sums: dict[int, str]) -> None:
        level = self.puller.code.level
        held = (sums[first] for first in register_copies(product.layout))
        elements = tuple(Element(text, 1, level) for text in held)
        self.puller.residents[product.op] = Resident(product.layout, elements)


def _recipe(op: Op, uses: Uses) -> set[Value]:
    """What an op reads, and all that this is computed from by recipes."""
    found: set[Value] = set()
    waiting = list(op.operands)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            inner = defining_op(value)
            waiting += inner.operands if inner is not None and uses.is_virtual(value) else ()
    return found


def products_first(
    written: Sequence[Op], uses: Uses, runs: Callable[[ops.Dot], bool], tiles: Container[Value]
) -> list[Op]:
    """Return the ops of a block, products that run on as early as what they read is there.

    A product that needs nothing of one before it is started right behind that one, and runs while
    the threads work on the first one's result; before that one, if only the next iteration needs
    that. `tiles` are there before the block begins.
    """
    ordered: list[Op] = []
    latest: dict[Op, Op | None] = {}  # of what a product needs, the last to be there
    for op in written:
        place = len(ordered)
        if isinstance(op, ops.Dot) and runs(op):
            read = {defining_op(leaf) for leaf, _ in uses.leaves(tuple(op.operands))}
            needed = (i for i, o in enumerate(ordered) if o in read and o not in tiles)
            last = max(needed, default=-1)
            others = (i for i, o in enumerate(ordered) if i > last and isinstance(o, ops.Dot))
            place = next(others, place - 1) + 1
            while place < len(ordered) and isinstance(ordered[place], ops.Dot):
                place += 1
            latest[op] = ordered[last] if last >= 0 else None
            while uses.users[op] and place > last + 1:
                before = ordered[place - 1]
                if uses.users[before] or latest.get(before, op) is not latest[op]:
                    break
                place -= 1
        ordered.insert(place, op)
    return ordered
