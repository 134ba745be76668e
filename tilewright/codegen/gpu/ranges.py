"""Between which bounds the integers of a tile are."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import dtype
from tilewright.ir.core import Op, Value

__all__ = ["IntegerRanges", "constant_of"]

_Range = tuple[int, int]


def constant_of(value: Value) -> int | None:
    """Return the integer that all elements of a tile are, where that is written in the kernel."""
    while isinstance(value, ops.Broadcast):
        value = value.x
    return int(value.value) if isinstance(value, ops.Full) else None


class IntegerRanges:
    """The smallest and the largest number that integers of one function can be, ends included."""

    def __init__(self) -> None:
        self._known: dict[Value, _Range] = {}

    def of(self, value: Value) -> _Range:
        """Return the range of a tile; at most that of its type."""
        if value not in self._known:
            whole = dtype(value.type.element).integer_range
            found = whole
            if isinstance(value, Op) and not value.type.element.is_bool():
                found = self._find(value, whole)
            fits = whole[0] <= found[0] and found[1] <= whole[1]
            self._known[value] = found if fits else whole
        return self._known[value]

    def _find(self, value: Op, whole: _Range) -> _Range:
        match value:
            case ops.Full(value=number):
                return int(number), int(number)
            case ops.Arange(start=start, end=end):
                return start, end - 1
            case ops.And(x=x, y=y):
                highs = [high for low, high in (self.of(x), self.of(y)) if low >= 0]
                return (0, min(highs)) if highs else whole
            case ops.ShiftRight(x=x, y=y):
                low, high = self.of(x)
                count = constant_of(y)
                bits = dtype(x.type.element).primitive_bitwidth
                is_inside = count is not None and 0 <= count < bits
                return (low >> count, high >> count) if count and is_inside else whole
            case ops.Add(x=x, y=y):
                return self.of(x)[0] + self.of(y)[0], self.of(x)[1] + self.of(y)[1]
            case ops.Sub(x=x, y=y):
                return self.of(x)[0] - self.of(y)[1], self.of(x)[1] - self.of(y)[0]
            case ops.Cast(x=x) if dtype(x.type.element).is_int():
                return self.of(x)
            case ops.Join(x=x, y=y):
                return min(self.of(x)[0], self.of(y)[0]), max(self.of(x)[1], self.of(y)[1])
            case ops.Broadcast(x=x) | ops.ExpandDims(x=x) | ops.Permute(x=x):
                return self.of(x)
            case ops.Reshape(x=x) | ops.Hint(x=x):
                return self.of(x)
        return whole
