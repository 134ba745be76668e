"""Comparisons, truth, selection, and the larger or smaller of two."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.casts import convert, to_bool
from tilewright.frontend.semantic.promotion import promote, promote_tensors
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import as_tensor, describe, fail, is_number
from tilewright.frontend.tensor import Tensor, tensor_operator
from tilewright.ir.types import DTYPES, PointerType
from tilewright.ops import And, Compare, Invert, Maximum, Minimum, Or, Predicate, Reshape, Select

__all__ = [
    "PropagateNan", "clamp", "compare", "condition", "logical_and", "logical_not", "logical_or",
    "maximum", "minimum", "where",
]  # fmt: skip

_SYMBOLS = {
    Predicate.EQ: "==",
    Predicate.NE: "!=",
    Predicate.LT: "<",
    Predicate.LE: "<=",
    Predicate.GT: ">",
    Predicate.GE: ">=",
}


class PropagateNan(enum.Enum):
    """Whether NaN wins (`ALL`) or loses (`NONE`) against a number in `tl.maximum` and the like."""

    NONE = 0
    ALL = 0xFFFF


def compare(predicate: Predicate, x: Any, y: Any) -> Tensor:
    """Return the bools of a comparison; a literal takes part in the promotion."""
    return emit(Compare, predicate, *promote_tensors(_SYMBOLS[predicate], x, y))


def _comparison(predicate: Predicate) -> Callable[[Any, Any], Tensor | bool]:
    def operator(x: Any, y: Any) -> Tensor | bool:
        if x is not None and y is not None:
            return compare(predicate, x, y)
        # That a tensor is not None is known at compile time.
        other = describe(y if x is None else x)
        if predicate not in {Predicate.EQ, Predicate.NE}:
            fail(
                f"{_SYMBOLS[predicate]}: None is not comparable with {other}",
                hint="ask `x is None`",
            )
        extension(f"`{_SYMBOLS[predicate]}` of {other} and None", "ask `x is None`")
        return predicate is Predicate.NE

    return operator


for _predicate in Predicate:
    tensor_operator(_predicate.value)(_comparison(_predicate))


def condition(x: Tensor) -> Tensor:
    """Return the scalar bool that `if`, `while` and `x if c else y` branch on."""
    if x.numel != 1:
        fail(
            f"the truth value of a tile of shape {list(x.shape)} is ambiguous",
            "reduce it first, for instance tl.max(x, axis=0), or choose element by element with "
            "tl.where",
        )
    if x.shape:
        x = emit(Reshape, x, ())
    return to_bool(x)


def logical_and(x: Any, y: Any) -> Tensor:
    """Return whether both are true, element by element; both sides are computed."""
    return emit(And, *_truths("and", x, y))


def logical_or(x: Any, y: Any) -> Tensor:
    """Return whether one is true, element by element; both sides are computed."""
    return emit(Or, *_truths("or", x, y))


def logical_not(x: Any) -> Tensor:
    """Return whether `x` is false, element by element."""
    return emit(Invert, to_bool(as_tensor(x, "not")))


def _truths(name: str, x: Any, y: Any) -> tuple[Tensor, ...]:
    tensors = as_tensor(x, name), as_tensor(y, name)
    for tensor in tensors:
        if tensor.dtype is not DTYPES["i1"]:
            extension(f"`{name}` of {describe(tensor)}", f"compare first: (x != 0) {name} (y != 0)")
    return broadcast_tensors(name, *map(to_bool, tensors))


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """Select by a tile of bools; the sides are promoted as operands are, or are pointers."""
    chooser = as_tensor(condition, "where: the condition")
    if chooser.dtype is not DTYPES["i1"]:
        extension(f"where: a condition of {describe(chooser)}", "tl.where(c != 0, x, y)")
        chooser = to_bool(chooser)
    pointers = [t for t in (x, y) if isinstance(t, Tensor) and isinstance(t.dtype, PointerType)]
    if pointers:
        left, right = as_tensor(x, "where"), as_tensor(y, "where")
        if left.dtype != right.dtype:
            fail(
                f"where: cannot choose between {describe(x)} and {describe(y)}",
                hint="convert one: x.to(y.dtype)",
            )
    elif is_number(x) and is_number(y):
        left, right = promote_tensors("where", x, y)
    else:
        left, right = promote("where", x, y)
    return emit(Select, *broadcast_tensors("where", chooser, left, right))


def _propagates(propagate_nan: Any, name: str) -> bool:
    choice = unwrap(propagate_nan)
    if not isinstance(choice, PropagateNan):
        fail(f"{name}: propagate_nan must be tl.PropagateNan.NONE or ALL, got {choice!r}")
    return choice is PropagateNan.ALL


def _widened(name: str, *operands: Any) -> tuple[Tensor, ...]:
    """bf16 is compared, and returned, as fp32."""
    tensors = [as_tensor(x, name) for x in operands]
    bf16, fp32 = DTYPES["bf16"], DTYPES["fp32"]
    return promote_tensors(name, *(convert(t, fp32) if t.dtype is bf16 else t for t in tensors))


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the smaller of two."""
    propagate = _propagates(propagate_nan, "minimum")
    return emit(Minimum, *_widened("minimum", x, y), propagate)


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return the larger of two."""
    propagate = _propagates(propagate_nan, "maximum")
    return emit(Maximum, *_widened("maximum", x, y), propagate)


def clamp(x: Any, low: Any, high: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """Return `x` limited to `low` and `high`."""
    propagate = _propagates(propagate_nan, "clamp")
    x, low, high = _widened("clamp", x, low, high)
    return emit(Minimum, emit(Maximum, x, low, propagate), high, propagate)
