"""How often a `for` goes round, asked one iteration at a time and without overflow."""

from __future__ import annotations

from tilewright.frontend.frame import BOOL, Frame
from tilewright.frontend.tensor import constant_array
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES
from tilewright.ops import And, Bitcast, Compare, Full, Or, Predicate, Select, Sub

__all__ = ["Trips"]


class Trips:
    """The range of a loop, whose step may have either sign (and runs nothing when 0)."""

    def __init__(self, frame: Frame, start: Value, stop: Value, step: Value) -> None:
        self.frame = frame
        self.start = start
        self.stop = stop
        self.step = step
        known = constant_array(step)
        self.known_step = None if known is None else int(known)

    def any(self) -> Value:
        """Whether there is a first index."""
        is_below = self._compare(Predicate.LT, self.start, self.stop)
        if self.known_step is not None and self.known_step > 0:
            return is_below
        is_above = self._compare(Predicate.GT, self.start, self.stop)
        if self.known_step is not None:
            return is_above if self.known_step else self._value(Full(False, BOOL))
        zero = self._zero()
        up = self._value(And(self._compare(Predicate.GT, self.step, zero), is_below))
        down = self._value(And(self._compare(Predicate.LT, self.step, zero), is_above))
        return self._value(Or(up, down))

    def more(self, index: Value) -> Value:
        """Whether another index follows: the way left is longer than a step.

        Lengths are unsigned, so nothing overflows.
        """
        is_up = self._is_longer(self.stop, index, self.step)
        if self.known_step is not None and self.known_step > 0:
            return is_up
        is_down = self._is_longer(index, self.stop, self._value(Sub(self._zero(), self.step)))
        if self.known_step is not None:
            return is_down
        is_positive = self._compare(Predicate.GT, self.step, self._zero())
        return self._value(Select(is_positive, is_up, is_down))

    def _is_longer(self, end: Value, begin: Value, stride: Value) -> Value:
        unsigned = DTYPES["u64" if stride.type.element is DTYPES["i64"] else "u32"]
        way = self._value(Bitcast(self._value(Sub(end, begin)), unsigned))
        return self._compare(Predicate.GT, way, self._value(Bitcast(stride, unsigned)))

    def _zero(self) -> Value:
        return self._value(Full(0, self.step.type))

    def _compare(self, predicate: Predicate, x: Value, y: Value) -> Value:
        return self._value(Compare(predicate, x, y))

    def _value(self, op: Op) -> Value:
        return self.frame.value(op)
