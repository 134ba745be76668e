"""What is known of the elements of a tile along each of its axes: an analysis, it rewrites nothing.

For a value and an axis of `size` elements (a scalar counts as one axis of size 1):

- `contiguity` c: elements stand in runs of c that begin at the multiples of c (the last may be
  shorter); inside a run each is one more than the one before. For pointers: one element further.
- `divisibility`: a power of two that divides the first element of each run, at every place along
  the other axes. For pointers: of the address, in bytes.
- `constancy` k: as contiguity, for runs of equal elements.
- `stride`: the difference of neighbours, if it is the same everywhere: a number, or a number times
  a scalar of the function. For pointers: in elements.

Larger is better, and 1, 1, 1, None is always true. Where control flow joins, lengths of runs meet
in their greatest common divisor, strides in None unless they agree. Values carried by a loop start
from their initial values and meet what the body yields until nothing changes.

Numbers are those that the type holds, so a sum that wraps is still contiguous modulo 2^width.
Widening then (in `Cast` or `PointerAdd`) is taken not to split a run: the lanes on the two sides
would lie 2^width elements apart in memory. Sums and products of non-negative numbers are taken not
to become negative, divisors not to be 0.
"""

from __future__ import annotations

from tilewright.ir.core import Block, Function, Op, Value
from tilewright.ops import And, Assume, Compare, For, Full, If, While
from tilewright.passes.axis_lattice import (
    Axes,
    Axis,
    Facts,
    Stride,
    meet,
    sizes_of,
    unit_of,
    unknown,
)
from tilewright.passes.axis_rules import transfer
from tilewright.passes.non_negative import is_non_negative

__all__ = ["Axis", "AxisInfo", "Stride", "analyze_axes"]

_MAX_ROUNDS = 8


class AxisInfo:
    """The result of `analyze_axes`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def axes(self, value: Value) -> Axes:
        """Return what is known along each axis of `value`."""
        return self._facts.axes(value)

    def contiguity(self, value: Value, axis: int = -1) -> int:
        """Return the length of runs of consecutive elements."""
        return self.axes(value)[axis].contiguity

    def divisibility(self, value: Value, axis: int = -1) -> int:
        """Return the power of two that divides the first element of each run."""
        return self.axes(value)[axis].divisibility

    def constancy(self, value: Value, axis: int = -1) -> int:
        """Return the length of runs of equal elements."""
        return self.axes(value)[axis].constancy

    def is_non_negative(self, value: Value) -> bool:
        """Return whether no element is below 0."""
        return is_non_negative(value, self._facts)

    def stride(self, value: Value, axis: int = -1) -> Stride | None:
        """Return the difference of neighbours, where it is one and the same."""
        return self.axes(value)[axis].stride


def analyze_axes(function: Function) -> AxisInfo:
    """Return what is known of every value of `function`."""
    analysis = _Analysis()
    analysis.params(function)
    analysis.promises(function.body)
    analysis.block(function.body)
    return AxisInfo(analysis.facts)


class _Analysis:
    def __init__(self) -> None:
        self.facts = Facts()

    def params(self, function: Function) -> None:
        for param in function.params:
            divisibility = param.divisible_by & -param.divisible_by
            self.facts.known[param] = (Axis(1, divisibility, 1, Stride(0)),)

    def promises(self, body: Block) -> None:
        """Note what `assume` says outside of branches and loops, where it is said for good."""
        waiting = [op.condition for op in body.ops if isinstance(op, Assume)]
        while waiting:
            match waiting.pop():
                case And(x, y):
                    waiting += x, y
                case Compare("ge" | "gt", x, Full(c)) if c >= 0:
                    self.facts.non_negative[x] = True

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case For():
                self.index(op)
                self.loop(op, [op.body.params[1:]])
            case While():
                self.loop(op, [op.condition.params, op.body.params])
            case If(_, then, orelse):
                self.block(then)
                self.block(orelse)
                for result, a, b in zip(op.results, then.yields, orelse.yields, strict=True):
                    self.facts.known[result] = self.joined(self.facts.axes(a), b)
            case _ if len(op.results) == 1 and (axes := transfer(op, self.facts)) is not None:
                self.facts.known[op.results[0]] = axes

    def index(self, loop: For) -> None:
        start, step = self.facts.axes(loop.start)[0], self.facts.axes(loop.step)[0]
        divisibility = min(start.divisibility, step.divisibility)
        index = loop.body.params[0]
        self.facts.known[index] = (Axis(1, divisibility, 1, Stride(0)),)
        match loop.step:
            case Full(step_size) if step_size > 0:
                self.facts.non_negative[index] = is_non_negative(loop.start, self.facts)

    def loop(self, loop: For | While, params: list[tuple[Value, ...]]) -> None:
        """Let the carried values meet what the body yields until nothing changes."""
        carried = [self.facts.axes(v) for v in loop.inits]
        for _ in range(_MAX_ROUNDS):
            self.iterate(loop, params, carried)
            pairs = zip(carried, loop.body.yields, strict=True)
            met = [self.joined(axes, value) for axes, value in pairs]
            if met == carried:
                break
            carried = met
        else:
            carried = [unknown(v) for v in loop.inits]
            self.iterate(loop, params, carried)
        self.facts.known.update(zip(loop.results, carried, strict=True))

    def iterate(
        self, loop: For | While, params: list[tuple[Value, ...]], carried: list[Axes]
    ) -> None:
        for names in params:
            self.facts.known.update(zip(names, carried, strict=True))
        for region in loop.regions:
            self.block(region)

    def joined(self, axes: Axes, value: Value) -> Axes:
        """Return what holds of `axes` and of `value`."""
        columns = zip(axes, self.facts.axes(value), sizes_of(value), strict=True)
        return tuple(meet(a, b, size, unit_of(value)) for a, b, size in columns)
