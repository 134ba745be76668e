"""Finding out, once for a nest, that its masks leave nothing out.

Most masks guard the end of an array (`offsets < n`) and are full for all programs but the last.
Such a mask is monotone along each axis, so it is full if it holds in one corner of the tile: a
scalar test before the loops, which then run without masks.
"""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.cpu.pull import Coordinate, Index, Puller
from tilewright.ir.core import Value
from tilewright.ops.elementwise import Predicate

__all__ = ["fullness", "has_test"]

_INCREASING_HOLDS_LAST = {Predicate.LT, Predicate.LE}


def fullness(puller: Puller, masks: list[Value]) -> Element | None:
    """Write the test that all `masks` are full and return it; None where no such test is known."""
    if not all(has_test(puller, mask) for mask in masks):
        return None
    terms = dict.fromkeys(term for mask in masks for term in _terms(mask) or ())
    tests = [test for term in terms for test in _tests(puller, term)]
    total = Element("true", 1, 0)
    for test in tests:
        level = max(total.level, test.level)
        total = Element(puller.code.assign(f"and i1 {total.text}, {test.text}", level), 1, level)
    return total


def has_test(puller: Puller, mask: Value) -> bool:
    """Whether a test is known that a mask is full."""
    terms = _terms(mask)
    return terms is not None and all(_is_testable(puller, term) for term in terms)


def _terms(mask: Value) -> list[Value] | None:
    """Split a conjunction into its terms; None where it is something else."""
    match mask:
        case ops.And(x, y):
            left, right = _terms(x), _terms(y)
            return None if left is None or right is None else left + right
        case ops.Broadcast(x=x) | ops.ExpandDims(x=x) | ops.Hint(x=x):
            return _terms(x)
        case ops.Full(value=True):
            return []
        case ops.Compare():
            return [mask]
    return None if mask.shape else [mask]


def _is_testable(puller: Puller, term: Value) -> bool:
    if not term.shape:
        return True
    if not isinstance(term, ops.Compare) or term.x.type.element.is_floating():
        return False
    return term.predicate in {Predicate.LT, Predicate.LE, Predicate.GT, Predicate.GE} and (
        _is_increasing(puller, term.x) and _is_uniform(puller, term.y)
    )


def _is_increasing(puller: Puller, value: Value) -> bool:
    strides = [axis.stride for axis in puller.facts.axes(value)]
    return all(s is not None and s.scalar is None and s.factor >= 0 for s in strides)


def _is_uniform(puller: Puller, value: Value) -> bool:
    return all(puller.facts.constancy(value, axis) >= size for axis, size in enumerate(value.shape))


def _tests(puller: Puller, term: Value) -> list[Element]:
    """The term in the corner that decides, and that the numbers do not wrap on the way there."""
    if not term.shape or not isinstance(term, ops.Compare):
        return [puller.scalar(term)]
    first: Index = tuple(Coordinate("0") for _ in term.shape)
    last: Index = tuple(Coordinate(str(n - 1)) for n in term.shape)
    decisive = last if term.predicate in _INCREASING_HOLDS_LAST else first
    low, high = puller.pull(term.x, first), puller.pull(term.x, last)
    kind = term.x.type.element
    sign = "s" if kind.is_int_signed() else "u"
    level = max(low.level, high.level)
    bits = f"i{kind.primitive_bitwidth}"
    ordered = puller.code.assign(f"icmp {sign}le {bits} {low.text}, {high.text}", level)
    return [puller.pull(term, decisive), Element(ordered, 1, level)]
