"""`KernelFunction`: what `@jit` makes of a Python function, callable inside kernels."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any, cast

from tilewright.errors import CompileError, LaunchError
from tilewright.frontend.context import Tracing, current
from tilewright.frontend.definition import Definition
from tilewright.frontend.eager import call_eagerly
from tilewright.frontend.trace import call_traced, element_block
from tilewright.ir.core import Block
from tilewright.ir.types import TileType

__all__ = ["KernelFunction", "device_function", "not_called"]


class KernelFunction(Definition):
    """A function of the language; calling it works inside a kernel only."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function from within a kernel, in the executor that the kernel runs on."""
        try:
            context = current()
        except CompileError:
            hint = f"launch it with {self.name}[grid](...), or call it from another kernel"
            raise not_called(self.name, hint) from None
        if isinstance(context, Tracing):
            return call_traced(self, args, named)
        return call_eagerly(self, args, named)

    def element_block(self, types: Sequence[TileType], count: int | None) -> Block:
        """Return the region that computes `count` scalars (None: any number) from scalars."""
        return element_block(self, types, count)


def not_called(name: str, hint: str) -> LaunchError:
    """Return the error about a kernel that is called without a grid."""
    return LaunchError(
        f"`{name}` is a kernel: it cannot be called like a Python function", hint=hint
    )


def device_function(fn: object) -> KernelFunction:
    """Mark a function of the standard library that is written in the language itself."""
    return KernelFunction(cast("FunctionType", fn))
