"""A kernel that is not compiled for debugging checks no `device_assert`.

    assert {message="..."} %c       →

Runs before the pipeline, and only where the launch does not ask for the checks, so it is not in the
list. What a condition is computed from is left to `remove_dead`.
"""

from __future__ import annotations

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ops import Assert
from tilewright.passes.inline_calls import inline_calls

__all__ = ["remove_assertions"]


def remove_assertions(function: Function) -> Function:
    """Leave out every assertion, those of called functions too: calls are inlined on the way."""
    return rewrite(inline_calls(function), _drop)


def _drop(op: Op, emit: Emit) -> tuple[Value, ...] | None:
    return () if isinstance(op, Assert) else None
