"""Where the semantic layer builds ops: tensors in, tensors out, the location stamped."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.context import current
from tilewright.frontend.extensions import extension
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Op

__all__ = ["emit", "emit_all"]


def _field(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.value
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(x.value for x in value)
    return value


def emit_all(op: type[Op], *fields: Any, **named: Any) -> tuple[Tensor, ...]:
    """Build an op from its fields and return all its results."""
    context = current()
    built = op(
        *map(_field, fields),
        **{name: _field(value) for name, value in named.items()},
        location=context.location,
    )
    results = tuple(map(Tensor, context.emit(built)))
    if context.is_strict:
        for result in results:
            if any(size & (size - 1) for size in result.shape):
                extension(
                    f"a tile of shape {list(result.shape)}",
                    "round each size up to a power of two, and mask what is too much",
                )
    return results


def emit(op: type[Op], *fields: Any, **named: Any) -> Tensor:
    """Build an op that has one result and return it."""
    (result,) = emit_all(op, *fields, **named)
    return result
