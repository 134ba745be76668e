"""The facts that `axis_info` collects, and how two of them meet; it says what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.ir.core import Value
from tilewright.ir.types import PointerType

__all__ = [
    "MAX_DIVISIBILITY", "Axes", "Axis", "Facts", "Stride", "common_runs", "lowest_bit", "meet",
    "sizes_of", "unit_of", "unknown",
]  # fmt: skip

MAX_DIVISIBILITY = 1 << 30


@dataclass(frozen=True, slots=True)
class Stride:
    """`factor` times `scalar` (times 1 where there is none)."""

    factor: int
    scalar: Value | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """What is known along one axis; see the module text."""

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1
    stride: Stride | None = None

    def divisibility_at(self, run: int, unit: int = 1) -> int:
        """Return what divides the elements at all multiples of `run`; a step is `unit` numbers."""
        if run % self.contiguity == 0:
            return self.divisibility
        return gcd(self.divisibility, unit * lowest_bit(gcd(run, self.contiguity)))

    def aligned_run(self, limit: int) -> int:
        """Return the largest power of two up to `limit` whose runs begin at its multiples."""
        return min(lowest_bit(self.contiguity), self.divisibility, limit)


Axes = tuple[Axis, ...]


def lowest_bit(number: int) -> int:
    """Return the largest power of two that divides `number` (bounded, as 0 has none)."""
    return min(number & -number, MAX_DIVISIBILITY) if number else MAX_DIVISIBILITY


def common_runs(a: int, b: int, size: int) -> int:
    """Return the length of runs that both are made of; one that fills the axis splits none."""
    if a >= size:
        return b
    return a if b >= size else gcd(a, b)


def meet(a: Axis, b: Axis, size: int, unit: int) -> Axis:
    """Return what holds of both."""
    contiguity = common_runs(a.contiguity, b.contiguity, size)
    return Axis(
        contiguity,
        gcd(a.divisibility_at(contiguity, unit), b.divisibility_at(contiguity, unit)),
        common_runs(a.constancy, b.constancy, size),
        a.stride if a.stride == b.stride else None,
    )


def sizes_of(value: Value) -> tuple[int, ...]:
    """Return the sizes of the axes: a scalar counts as one axis of size 1."""
    return value.shape or (1,)


def unit_of(value: Value) -> int:
    """Return by how much an element further is more: 1, for pointers the bytes of an element."""
    element = value.type.element
    return element.element_ty.itemsize if isinstance(element, PointerType) else 1


class Facts:
    """What the rules read: the axes known so far, and which values are known not to be negative."""

    def __init__(self) -> None:
        self.known: dict[Value, Axes] = {}
        self.non_negative: dict[Value, bool] = {}

    def axes(self, value: Value) -> Axes:
        """Return what is known of a value."""
        found = self.known.get(value)
        if found is None:
            found = unknown(value)
        return found


def unknown(value: Value) -> Axes:
    """Return what is always true."""
    return tuple(Axis(stride=Stride(0) if size == 1 else None) for size in sizes_of(value))
