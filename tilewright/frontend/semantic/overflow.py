"""Debug mode's check that int32 does not wrap: the mistake behind offsets beyond 2^31."""

from __future__ import annotations

import numpy as np

from tilewright.frontend.context import current
from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.values import full_of
from tilewright.frontend.tensor import Tensor, constant_array
from tilewright.ir.core import Op
from tilewright.ir.types import DTYPES
from tilewright.ops import Assert, Compare, Predicate

__all__ = ["emit_checked"]

INT32, INT64 = DTYPES["i32"], DTYPES["i64"]

_IN_NUMPY = {"+": np.add, "-": np.subtract, "*": np.multiply}


def emit_checked(name: str, op: type[Op], x: Tensor, y: Tensor, *, checked: bool = True) -> Tensor:
    """Emit a sum, difference or product; where overflow is checked, assert that int32 held it."""
    result = emit(op, x, y)
    if checked and result.dtype is INT32 and current().checks_overflow:
        message = (
            f"int32 overflow in `{name}`; convert an operand with .to(tl.int64) or, where wrapping "
            "is meant, .to(tl.uint32)"
        )
        holds = _is_exact(name, op, x, y, result)
        if holds is not True:
            emit_all(Assert, message, holds, None)
    return result


def _is_exact(name: str, op: type[Op], x: Tensor, y: Tensor, result: Tensor) -> Tensor | bool:
    """Return whether 64 bits give the same; True where that is known already."""
    left, right, narrow = (constant_array(t.value) for t in (x, y, result))
    if left is None or right is None or narrow is None:
        exact = emit(op, convert(x, INT64), convert(y, INT64))
        return emit(Compare, Predicate.EQ, exact, convert(result, INT64))
    wide = _IN_NUMPY[name](left.astype(np.int64), right.astype(np.int64))
    return bool(np.array_equal(wide, narrow)) or full_of(False, DTYPES["i1"])
