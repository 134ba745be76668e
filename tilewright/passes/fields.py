"""Another op of the same kind: what passes use where operands change in number."""

from __future__ import annotations

from typing import Any, TypeVar

from tilewright.ir.core import Op

__all__ = ["with_fields"]

_AnyOp = TypeVar("_AnyOp", bound=Op)


def with_fields(op: _AnyOp, **changes: Any) -> _AnyOp:
    """Return a new op with the fields of `op`, except for `changes`."""
    fields = {name: getattr(op, name) for name in op.field_kinds} | changes
    new = type(op)(**fields, location=op.location)
    new.name = op.name
    return new
