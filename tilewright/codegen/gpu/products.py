"""What loops and layouts have to know of products; an architecture plans and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tilewright import ops
from tilewright.ir.core import Op, Value
from tilewright.layout import LinearLayout

__all__ = ["ProductPlan", "Products"]


@dataclass(frozen=True)
class ProductPlan:
    """Layouts of the accumulator and of both operands."""

    accumulator: LinearLayout
    a: LinearLayout
    b: LinearLayout

    @property
    def runs_on(self) -> bool:
        """Whether the product runs on while its threads go ahead, and reads shared memory."""
        return False


class Products(Protocol):
    """Writes the products of one function; those that run on are waited for before their results.

    Products that are *deferred* run on when their iteration has ended, and are left to the loop.
    """

    def ordered(self, written: Iterable[Op], deferred: set[ops.Dot]) -> list[Op]:
        """Return the ops of a block, products that run on as early as they may start."""

    def write(self, op: ops.Dot, *, is_deferred: bool) -> None:
        """Write a product, or start one that runs on."""

    def placed(self, op: ops.Dot, value: Value) -> AbstractContextManager[None]:
        """Inside, an operand that does not change is where its product reads it."""

    def await_for(self, op: Op) -> None:
        """Wait for the products that an op reads, through recipes; for all of them if it forks."""

    def await_all(self) -> None:
        """Wait for all products that are not deferred."""

    def await_deferred(self, sums: Sequence[str], kind: str) -> list[str]:
        """Wait for all products, and return the sums of a deferred one, of LLVM type `kind`."""
