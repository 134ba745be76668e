"""Rules on ops that only move elements. Repetition moves outwards: work is done before it."""

from __future__ import annotations

from tilewright.ir.core import Op, Result, Value
from tilewright.ops import Broadcast, ExpandDims, Full, Hint, Join, Permute, Reshape, Split
from tilewright.passes.constants import is_elementwise
from tilewright.passes.rules import Make

__all__ = ["before_broadcast", "broadcast", "expand_dims", "hint", "join", "permute", "reshape"]


def broadcast(op: Op, make: Make) -> Value | None:
    """Simplify a repetition."""
    match op:
        case Broadcast(x) if x.type == op.type:
            return x
        case Broadcast(Full(c)):  # a repeated constant is a constant
            return make(Full(c, op.type))
        case Broadcast(Broadcast(x), shape):  # repeat(repeat(x)) → repeat(x)
            return make(Broadcast(x, shape))
    return None


def expand_dims(op: Op, make: Make) -> Value | None:
    """Simplify the insertion of an axis."""
    match op:
        case ExpandDims(Full(c)):
            return make(Full(c, op.type))
        case ExpandDims(x) if x.type.is_scalar:  # a scalar becomes a tile by repetition only
            return make(Broadcast(x, op.shape))
        case ExpandDims(Broadcast(x)) if x.type.is_scalar:
            return make(Broadcast(x, op.shape))
        case ExpandDims(Broadcast(x), axis):  # expand(repeat(x)) → repeat(expand(x))
            return make(Broadcast(make(ExpandDims(x, axis)), op.shape))
    return None


def permute(op: Op, make: Make) -> Value | None:
    """Simplify a transposition."""
    match op:
        case Permute(Full(c)):
            return make(Full(c, op.type))
        case Permute(Permute(x, inner), outer):  # permute(permute(x, p), q) → permute(x, p ∘ q)
            return make(Permute(x, tuple(inner[i] for i in outer)))
        case Permute(Broadcast(x)) if x.type.is_scalar:
            return make(Broadcast(x, op.shape))
        case Permute(Broadcast(x), order):  # permute(repeat(x)) → repeat(permute(x))
            return make(Broadcast(make(Permute(x, order)), op.shape))
        case Permute(x, order) if order == tuple(range(len(order))):
            return x
        case Permute(x, order):
            long = [i for i in order if x.shape[i] > 1]
            if long == sorted(long):  # only axes of size 1 move: the elements keep their order
                return make(Reshape(x, op.shape))
    return None


def reshape(op: Op, make: Make) -> Value | None:
    """Simplify a change of shape."""
    match op:
        case Reshape(x, shape) if x.shape == shape:
            return x
        case Reshape(Full(c)):
            return make(Full(c, op.type))
        case Reshape(Reshape(x) | ExpandDims(x), shape):  # reshape(reshape(x)) → reshape(x)
            return make(Reshape(x, shape))
        case Reshape(x, shape) if x.type.is_scalar:
            return make(Broadcast(x, shape))
        case Reshape(Broadcast(x), ()) if x.type.is_scalar:
            return x
        case Reshape(Broadcast(x), shape) if x.type.is_scalar:
            return make(Broadcast(x, shape))
        case Reshape(x, shape):
            for axis, size in enumerate(shape):
                if size == 1 and shape[:axis] + shape[axis + 1 :] == x.shape:
                    return make(ExpandDims(x, axis))  # one more axis of size 1
    return None


def hint(op: Op, make: Make) -> Value | None:
    """Simplify a promise."""
    match op:
        case Hint(Full() as constant):  # nothing is unknown about it
            return constant
        case Hint(x, _, values) if set(values) == {1}:  # promises nothing
            return x
        case Hint(Hint(x, kind, a) as inner, also, b) if kind == also:
            pairs = list(zip(a, b, strict=True))
            if all(m % n == 0 for m, n in pairs):  # the inner promise says more
                return inner
            if all(n % m == 0 for m, n in pairs):  # the outer promise says more
                return make(Hint(x, kind, b))
    return None


def join(op: Op, make: Make) -> Value | None:
    """Simplify a joining."""
    match op:
        case Join(Result(op=Split(x) as first, index=0), Result(op=second, index=1)):
            return x if first is second else None  # join(split(x)) → x
    return None


def before_broadcast(op: Op, make: Make) -> Value | None:
    """f(repeat(x), repeat(y)) → repeat(f(x, y)) for elementwise f, as far as the shapes allow."""
    operands = op.operands
    if not op.shape or not all(isinstance(v, Broadcast | Full) for v in operands):
        return None
    if not is_elementwise(op):
        return None
    sources = [v.x.shape for v in operands if isinstance(v, Broadcast) and v.x.shape]
    shape = tuple(map(max, zip(*sources, strict=True))) if sources else ()
    if shape == op.shape:
        return None

    def shrunk(value: Value) -> Value:
        match value:
            case Broadcast(x):
                return x if x.shape == shape else make(Broadcast(x, shape))
            case Full(c):
                return make(Full(c, value.type.with_shape(shape)))
        return value

    return make(Broadcast(make(op.rebuild(shrunk)), op.shape))
