"""Numbers as sums of two floats, to about twice the precision (Dekker's arithmetic, with fma)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.passes.expression import Expression, Number

__all__ = ["Pair", "constant_pair", "ordered_sum", "two_product", "two_sum"]


@dataclass(frozen=True)
class Pair:
    """The sum of two numbers, the second at most a few units in the last place of the first."""

    high: Expression
    low: Expression

    @property
    def rounded(self) -> Expression:
        """The sum as one number."""
        return self.high + self.low

    def __mul__(self, other: Pair) -> Pair:
        product = self.high * other.high
        error = self.high.fma(other.high, -product)
        error = self.high.fma(other.low, self.low.fma(other.high, error))
        return ordered_sum(product, error)

    def __truediv__(self, other: Pair) -> Pair:
        quotient = self.high / other.high
        rest = (-quotient).fma(other.high, self.high) + (-quotient).fma(other.low, self.low)
        return Pair(quotient, rest / other.high)


def constant_pair(like: Expression, numbers: tuple[Number, Number]) -> Pair:
    """Return a constant of twice the precision, in the type and shape of `like`."""
    high, low = numbers
    return Pair(like.constant(high), like.constant(low))


def ordered_sum(larger: Expression, smaller: Expression) -> Pair:
    """Return the exact sum of two numbers in order of magnitude (or the first 0)."""
    total = larger + smaller
    return Pair(total, smaller - (total - larger))


def two_sum(x: Expression, y: Expression) -> Pair:
    """Return the exact sum of two numbers."""
    total = x + y
    rounded_y = total - x
    return Pair(total, (x - (total - rounded_y)) + (y - rounded_y))


def two_product(x: Expression, y: Expression) -> Pair:
    """Return the exact product of two numbers, where neither part underflows."""
    product = x * y
    return Pair(product, x.fma(y, -product))
