"""Prints, assertions, and promises to the compiler."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit_all
from tilewright.frontend.semantic import diagnostics
from tilewright.frontend.tensor import Tensor
from tilewright.ops import Barrier

__all__ = [
    "assume", "debug_barrier", "device_assert", "device_print", "max_constancy",
    "max_contiguous", "multiple_of", "static_assert", "static_print",
]  # fmt: skip


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print each element of `args` when the kernel runs, with its program and its place."""
    diagnostics.device_print(prefix, args, hexadecimal=hex)


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the launch with `msg` where `cond` is false and `mask`, if any, true (in debug mode)."""
    diagnostics.device_assert(cond, msg, mask)


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print compile-time values, and the types of others, while the kernel is compiled."""
    print(*values, sep=sep, end=end, file=file, flush=flush)


@builtin
def static_assert(cond: Any, msg: str = "") -> None:
    """Raise `CompileTimeAssertionFailure` with `msg` unless the compile-time `cond` holds.

    Autotuning passes over the configurations for which it does not. Raises `CompileError` where
    `cond` is known only when the kernel runs.
    """
    diagnostics.static_assert(cond, msg)


@builtin
def debug_barrier() -> None:
    """Make the writes above visible to all lanes of the program below."""
    emit_all(Barrier)


@builtin
def assume(cond: Any) -> None:
    """Promise the compiler that the scalar `cond` holds; eager mode checks it."""
    diagnostics.assume(cond)


@builtin
def multiple_of(input: Any, values: Any) -> Tensor:
    """Promise that the first number of each run along an axis is a multiple of `values`."""
    return diagnostics.hint("multiple_of", input, values)


@builtin
def max_contiguous(input: Any, values: Any) -> Tensor:
    """Promise that along each axis, runs of `values` numbers are consecutive."""
    return diagnostics.hint("max_contiguous", input, values)


@builtin
def max_constancy(input: Any, values: Any) -> Tensor:
    """Promise that along each axis, runs of `values` numbers are equal."""
    return diagnostics.hint("max_constancy", input, values)
