"""How each op hands on what is known along the axes of its operands (see `axis_info`)."""

from __future__ import annotations

from math import gcd

from tilewright.ir.core import Op, Value
from tilewright.ops import (
    Add,
    And,
    Arange,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Div,
    ExpandDims,
    Full,
    Hint,
    Load,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Or,
    Permute,
    PointerAdd,
    Predicate,
    Rem,
    Reshape,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
)
from tilewright.passes.axis_lattice import (
    MAX_DIVISIBILITY,
    Axes,
    Axis,
    Facts,
    Stride,
    common_runs,
    lowest_bit,
    sizes_of,
    unit_of,
)
from tilewright.passes.constants import is_elementwise
from tilewright.passes.non_negative import is_non_negative

__all__ = ["transfer"]


def transfer(op: Op, facts: Facts) -> Axes | None:
    """Return what is known of the result of `op`, or None for nothing."""
    match op:
        case Arange(start):
            size = op.shape[0]
            return (Axis(size, lowest_bit(start), 1, Stride(1)),)
        case Full(value):
            return tuple(
                Axis(1, lowest_bit(value) if isinstance(value, int) else 1, n, Stride(0))
                for n in sizes_of(op)
            )
        case Broadcast() | ExpandDims() | Permute() | Reshape():
            return _moved(op, facts)
        case Hint(x, kind, values):
            pairs = zip(facts.axes(x), values, sizes_of(x), strict=True)
            return tuple(_promised(axis, kind, n, size) for axis, n, size in pairs)
        case Cast() | Bitcast():
            return _converted(op, facts)
        case Load() if not op.results[0].type.is_scalar:
            return _equal_runs(op, facts)
        case _ if is_elementwise(op):
            return _elementwise(op, facts)
    return None


def _elementwise(op: Op, facts: Facts) -> Axes:
    operands = [facts.axes(v) for v in op.operands]
    constant = _equal_runs(op, facts)
    if op.type.element.is_floating():
        return constant
    columns = zip(zip(*operands, strict=True), constant, sizes_of(op), strict=True)
    return tuple(
        _completed(_combined(op, axes, equal.constancy, size, facts), size)
        for axes, equal, size in columns
    )


def _equal_runs(op: Op, facts: Facts) -> Axes:
    """Equal operands give equal results."""
    axes = []
    operands = [facts.axes(v) for v in op.operands]
    for d, size in enumerate(sizes_of(op)):
        runs = size
        for operand in operands:
            runs = common_runs(runs, operand[d].constancy, size)
        axes.append(_completed(Axis(constancy=runs), size))
    return tuple(axes)


def _completed(axis: Axis, size: int) -> Axis:
    """Add the stride that a run of the size of the axis gives."""
    if axis.stride is not None or max(axis.constancy, axis.contiguity) < size:
        return axis
    stride = Stride(0 if axis.constancy >= size else 1)
    return Axis(axis.contiguity, axis.divisibility, axis.constancy, stride)


def _combined(op: Op, axes: tuple[Axis, ...], constancy: int, size: int, facts: Facts) -> Axis:
    """Return what is known along one axis of an elementwise op, given its runs of equal values."""
    match op, axes:
        case ((Add() | Sub() | PointerAdd()), (x, y)):
            return _sum(op, x, y, constancy, size)
        case Neg(), (x,):
            return Axis(1, x.divisibility_at(1), constancy, _scaled(x.stride, -1))
        case Mul(_, factor), (x, y):
            product = x.divisibility_at(1) * y.divisibility_at(1)
            stride = _product_stride(x, y, factor, size)
            return Axis(1, min(product, MAX_DIVISIBILITY), constancy, stride)
        case Rem(a, _), (x, y):
            # a mod b with b a multiple of the run: the run stays inside one period
            run = x.aligned_run(y.divisibility_at(1)) if is_non_negative(a, facts) else 1
            run = common_runs(run, y.constancy, size)
            divisibility = gcd(x.divisibility_at(run), y.divisibility_at(1))
            return Axis(run, divisibility, constancy)
        case Div(a, b), (x, y):
            return _quotient(a, b, x, y, constancy, size, facts)
        case ShiftLeft(_, Full(count)), (x, _) if 0 <= count < 31:
            product = x.divisibility_at(1) << int(count)
            return Axis(
                1, min(product, MAX_DIVISIBILITY), constancy, _scaled(x.stride, 1 << int(count))
            )
        case ShiftRight(_, Full(count)), (x, _) if 0 <= count < 31:
            # x >> s rounds down, so an aligned run of 2^s has one quotient
            run = x.aligned_run(1 << int(count))
            return Axis(1, max(1, x.divisibility_at(1) >> int(count)), max(constancy, run))
        case And(_, Full(mask)), (x, y):
            # x & (2^n - 1) is x modulo 2^n
            run = x.aligned_run(lowest_bit(int(mask) + 1))
            return Axis(run, max(x.divisibility_at(run), y.divisibility), constancy)
        case And(), (x, y):
            return Axis(1, max(x.divisibility_at(1), y.divisibility_at(1)), constancy)
        case ((Or() | Xor() | Minimum() | Maximum()), (x, y)):
            return Axis(1, gcd(x.divisibility_at(1), y.divisibility_at(1)), constancy)
        case Compare(), (x, y):
            return Axis(constancy=max(constancy, _compared(op, x, y, size)))
        case Select(), (condition, x, y):
            unit = unit_of(op)
            run = common_runs(x.contiguity, y.contiguity, size)
            run = common_runs(run, condition.constancy, size)
            divisibility = gcd(x.divisibility_at(run, unit), y.divisibility_at(run, unit))
            return Axis(run, divisibility, constancy)
    return Axis(constancy=constancy)


def _sum(op: Op, x: Axis, y: Axis, constancy: int, size: int) -> Axis:
    """Return that of x + y, x - y or &x[y]: runs of one stay where the other is constant."""
    unit = unit_of(op)
    run = common_runs(x.contiguity, y.constancy, size)
    if not isinstance(op, Sub):
        run = max(run, common_runs(x.constancy, y.contiguity, size))
    divisibility = gcd(x.divisibility_at(run, unit), y.divisibility_at(run) * unit)
    sign = -1 if isinstance(op, Sub) else 1
    return Axis(
        run,
        min(divisibility, MAX_DIVISIBILITY),
        constancy,
        _total(x.stride, _scaled(y.stride, sign)),
    )


def _quotient(
    a: Value, b: Value, x: Axis, y: Axis, constancy: int, size: int, facts: Facts
) -> Axis:
    """Return that of a / b: a run aligned to multiples of b has one quotient."""
    if is_non_negative(a, facts):
        run = common_runs(x.aligned_run(y.divisibility_at(1)), y.constancy, size)
        constancy = max(constancy, run)
    divisibility = 1
    match b:  # c 2^n / 2^m = c 2^(n-m)
        case Full(divisor) if divisor == lowest_bit(int(divisor)):
            divisibility = max(1, x.divisibility_at(1) // int(divisor))
    return Axis(1, divisibility, constancy)


def _compared(op: Compare, x: Axis, y: Axis, size: int) -> int:
    """Return how long x < n, or x >= n, stays: a run aligned to 2^k where 2^k divides n."""
    predicate = Predicate(op.predicate)
    if predicate in {Predicate.GT, Predicate.LE}:  # n > x is x < n
        x, y = y, x
    elif predicate in {Predicate.EQ, Predicate.NE}:
        return 1
    return common_runs(x.aligned_run(y.divisibility_at(1)), y.constancy, size)


def _promised(axis: Axis, kind: str, n: int, size: int) -> Axis:
    n = min(n, size) if kind != "multiple_of" else n
    if kind == "multiple_of":
        divisibility = max(axis.divisibility, lowest_bit(n))
        return Axis(axis.contiguity, divisibility, axis.constancy, axis.stride)
    if kind == "max_contiguous" and n > axis.contiguity:
        return _completed(Axis(n, axis.divisibility_at(n), axis.constancy, axis.stride), size)
    if kind == "max_constancy" and n > axis.constancy:
        return _completed(Axis(axis.contiguity, axis.divisibility, n, axis.stride), size)
    return axis


def _converted(op: Op, facts: Facts) -> Axes:
    x = op.operands[0]
    axes = facts.axes(x)
    source, to = x.type.element, op.type.element
    is_number = not (source.is_bool() or to.is_bool() or source.is_floating() or to.is_floating())
    if not is_number:
        return _equal_runs(op, facts)
    if unit_of(x) == unit_of(op):
        return axes
    unit = unit_of(x)
    pairs = zip(axes, sizes_of(op), strict=True)
    return tuple(
        _completed(Axis(1, axis.divisibility_at(1, unit), axis.constancy), n) for axis, n in pairs
    )


def _moved(op: Op, facts: Facts) -> Axes:
    x = op.operands[0]
    axes, unit = facts.axes(x), unit_of(x)
    everywhere = max(axis.divisibility_at(1, unit) for axis in axes)
    match op:
        case Permute(_, order):
            return tuple(axes[i] for i in order)
        case ExpandDims(_, axis) if not x.type.is_scalar:
            return (*axes[:axis], Axis(1, everywhere, 1, Stride(0)), *axes[axis:])
        case Broadcast(_, shape):
            old = sizes_of(x) if x.shape else (1,) * len(shape)
            axes = axes if x.shape else axes * len(shape)
            return tuple(
                axis if size == n else Axis(1, axis.divisibility, n, Stride(0))
                for axis, size, n in zip(axes, old, shape, strict=True)
            )
    return _reshaped(axes, sizes_of(x), sizes_of(op), everywhere, unit)


def _reshaped(
    axes: Axes, old: tuple[int, ...], new: tuple[int, ...], everywhere: int, unit: int
) -> Axes:
    one = Axis(1, everywhere, 1, Stride(0))
    long = [axis for axis, n in zip(axes, old, strict=True) if n > 1]
    if [n for n in old if n > 1] == [n for n in new if n > 1]:  # only axes of size 1 come and go
        remaining = iter(long)
        return tuple(next(remaining) if n > 1 else one for n in new)
    if all(axis.constancy >= n for axis, n in zip(axes, old, strict=True)):
        return tuple(Axis(1, everywhere, n, Stride(0)) for n in new)
    # Along the last axis, runs that divide the old and the new size stay.
    last, size = axes[-1], new[-1]
    run = gcd(min(last.contiguity, old[-1]), old[-1], size)
    equal = gcd(min(last.constancy, old[-1]), old[-1], size)
    stride = last.stride if old[-1] % size == 0 else None
    moved = Axis(run, last.divisibility_at(run, unit), equal, stride)
    others = (one if n == 1 else Axis(1, everywhere) for n in new[:-1])
    return (*others, _completed(moved, size))


def _scaled(stride: Stride | None, factor: int) -> Stride | None:
    return None if stride is None else Stride(stride.factor * factor, stride.scalar)


def _total(a: Stride | None, b: Stride | None) -> Stride | None:
    if a is None or b is None:
        return None
    if a.factor == 0 or b.factor == 0:
        return b if a.factor == 0 else a
    return Stride(a.factor + b.factor, a.scalar) if a.scalar is b.scalar else None


def _product_stride(x: Axis, y: Axis, factor: Value, size: int) -> Stride | None:
    """The stride of x times a factor that is the same along the axis."""
    if x.stride is None or y.constancy < size or x.stride.factor == 0:
        return x.stride if x.stride is not None and y.constancy >= size else None
    match factor:
        case Full(c):
            return _scaled(x.stride, int(c))
        case Broadcast(scalar) if scalar.type.is_scalar and x.stride.scalar is None:
            return Stride(x.stride.factor, scalar)
    return None
