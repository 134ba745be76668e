"""Linear algebra over F2, the numbers 0 and 1 with 1 + 1 = 0.

A vector is an integer, one coordinate to a bit: the sum of two vectors is their exclusive or. A
list of vectors is read as the columns of a matrix, and a *mask* names some of them: bit j stands
for column j, so the product of the matrix and a mask is the sum of the columns it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = [
    "Echelon",
    "combination",
    "common_complement",
    "dependencies",
    "independent",
    "intersection",
    "is_power_of_two",
    "log2",
    "span",
]


def is_power_of_two(number: int) -> bool:
    """Return whether `number` is 1, 2, 4, 8, …."""
    return number > 0 and number & (number - 1) == 0


def log2(number: int) -> int:
    """Return k for a number 2^k, and refuse any other."""
    if not is_power_of_two(number):
        raise ValueError(f"{number} is not a power of two")
    return number.bit_length() - 1


class Echelon:
    """Columns, added one after another, in the form that answers questions about their span.

    A pivot is a vector of the span whose highest bit no other pivot has; with it is kept the mask
    of columns that it is the sum of. Only columns independent of the ones before them occur in
    masks, which makes every solution the least one: another solution differs by a dependency, and
    the highest column of a dependency is never an independent one.
    """

    def __init__(self, columns: Iterable[int] = ()) -> None:
        self._pivots: dict[int, tuple[int, int]] = {}
        self._count = 0
        for column in columns:
            self.add(column)

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return len(self._pivots)

    def add(self, column: int) -> bool:
        """Add a column and return whether it was independent of those before it."""
        rest, mask = self._reduce(column, 1 << self._count)
        self._count += 1
        if rest:
            self._pivots[rest.bit_length()] = rest, mask
        return bool(rest)

    def solve(self, vector: int) -> int | None:
        """Return the least mask of columns whose sum is `vector`, or None if there is none."""
        rest, mask = self._reduce(vector, 0)
        return None if rest else mask

    def __contains__(self, vector: int) -> bool:
        return not self._reduce(vector, 0)[0]

    def _reduce(self, vector: int, mask: int) -> tuple[int, int]:
        while vector and (pivot := self._pivots.get(vector.bit_length())) is not None:
            vector ^= pivot[0]
            mask ^= pivot[1]
        return vector, mask


def combination(columns: Sequence[int], mask: int) -> int:
    """Return the sum of the columns that `mask` names."""
    total = 0
    while mask:
        lowest = mask & -mask
        total ^= columns[lowest.bit_length() - 1]
        mask ^= lowest
    return total


def span(columns: Iterable[int]) -> list[int]:
    """Return the sums of columns for all masks, in the order of the masks."""
    sums = [0]
    for column in columns:
        sums += [total ^ column for total in sums]
    return sums


def independent(columns: Iterable[int], given: Iterable[int] = ()) -> list[int]:
    """Return the columns that are no sum of `given` and of the columns before them."""
    seen = Echelon(given)
    return [column for column in columns if seen.add(column)]


def dependencies(columns: Iterable[int]) -> list[int]:
    """Return a basis of the masks whose columns add up to 0."""
    seen = Echelon()
    masks = []
    for position, column in enumerate(columns):
        if (mask := seen.solve(column)) is not None:
            masks.append(mask | 1 << position)
        seen.add(column)
    return masks


def intersection(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return a basis of the vectors that are sums of `a` and sums of `b`.

    Columns that both lists hold come first, in the order of `a`.
    """
    shared = independent(column for column in a if column in b)
    left, right = independent(a), independent(b)
    low = (1 << len(left)) - 1
    sums = [combination(left, mask & low) for mask in dependencies([*left, *right])]
    return shared + independent(sums, shared)


def common_complement(
    a: Sequence[int], b: Sequence[int], size: int, basis: Sequence[int]
) -> list[int]:
    """Return `size` independent vectors whose sums meet neither the span of `a` nor that of `b`.

    Vectors of `basis`, which spans everything, are preferred, the first ones first. A space of
    dimension n has room for n - max(rank a, rank b) vectors: those outside of both spans, and then
    sums of a vector that only a has and one that only b has. Asked for more, it returns vectors
    that do meet them.
    """
    shared = intersection(a, b)
    only_a, only_b = independent(a, shared), independent(b, shared)
    chosen = independent(basis, [*shared, *only_a, *only_b])[:size]
    pairs = [x ^ y for x, y in zip(only_a, only_b, strict=False)]
    chosen += pairs[: size - len(chosen)]
    return chosen + independent(basis, chosen)[: size - len(chosen)]
