"""Functions of the user, or of the language, as regions on scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend.builtin import is_builtin
from tilewright.frontend.context import Tracing, activate, current
from tilewright.frontend.semantic.values import as_tensor, fail
from tilewright.frontend.tensor import Tensor
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Param
from tilewright.ir.types import TileType

__all__ = ["element_block"]

Function = Callable[..., Any]


def _trace_builtin(function: Function, types: Sequence[TileType]) -> Block:
    """Return the region of a function of the language, called on scalars."""
    params = tuple(Param(t) for t in types)
    builder = Builder(Block(params))
    builder.location = current().location
    with activate(Tracing(builder)):
        result = function(*map(Tensor, params))
        results = result if isinstance(result, tuple) else (result,)
        builder.block.yields = tuple(as_tensor(r, "a result").value for r in results)
    return builder.block


def element_block(
    name: str, function: Any, types: Sequence[TileType], count: int | None = None
) -> Block:
    """Return the region in which a function computes `count` scalars from scalars of `types`."""
    if is_builtin(function):
        return _trace_builtin(function, types)
    make_block = getattr(function, "element_block", None)
    if make_block is None:
        fail(
            f"{name}: expected a function of the language, got {function!r}",
            "define it with `def` and decorate it with @jit",
        )
    block: Block = make_block(types, count)
    return block
