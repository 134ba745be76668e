"""Prints, assertions, and promises to the compiler."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit_all
from tilewright.frontend.semantic import comparison, diagnostics
from tilewright.frontend.semantic.values import as_tensor
from tilewright.frontend.tensor import Tensor
from tilewright.ops import Barrier, Predicate

__all__ = [
    "assume", "debug_barrier", "device_assert", "device_print", "expect_zero", "max_constancy",
    "max_contiguous", "multiple_of", "static_assert", "static_print",
]  # fmt: skip


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print each element of `args` when the kernel runs, with its program and its place.

    `prefix` is a string. Floats are shown with 6 decimals; with `hex`, the bits of each element
    are.

    >>> tl.device_print("x", tl.arange(0, 2))
    pid (0, 0, 0) idx (0) x: 0
    pid (0, 0, 0) idx (1) x: 1
    """
    diagnostics.device_print(prefix, args, hexadecimal=hex)


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the launch where `cond` is false and `mask`, if any, is true.

    `cond` and `mask` are scalars or tiles that broadcast against each other. The launch raises
    `LaunchError` with `msg` and the line. Compiled kernels check it with `@jit(debug=True)`,
    `kernel[grid](..., debug=True)` or `TILEWRIGHT_DEVICE_DEBUG=1` only, eager mode always.

    >>> tl.device_assert(tl.arange(0, 4) < 3, "too far", mask=tl.arange(0, 4) < 3)
    """
    diagnostics.device_assert(cond, msg, mask)


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print compile-time values, and the types of others, while the kernel is compiled.

    `sep`, `end`, `file` and `flush` are those of Python's `print`.
    """
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
    """Make the writes above visible to all lanes of the program below.

    Within a program a load sees the stores above it anyway; kernels written for GPUs may say so.
    """
    emit_all(Barrier)


@builtin
def assume(cond: Any) -> None:
    """Promise the compiler that the scalar `cond` holds.

    What a kernel computes where it does not is undefined when compiled; eager mode raises
    `LaunchError`.

    >>> tl.assume(tl.num_programs(0) > 0)
    """
    diagnostics.assume(cond)


@builtin
def expect_zero(x: Any, mask: Any) -> Any:
    """Return `x`, of which the elements where `mask` is true are expected to be 0.

    That they are is checked in eager mode and in kernels compiled for debugging.

    >>> tl.expect_zero(tl.arange(0, 3), tl.arange(0, 3) < 1)
    tensor([0, 1, 2], i32[3])
    """
    tensor, where = as_tensor(x, "expect_zero"), as_tensor(mask, "expect_zero: the mask")
    is_zero = comparison.compare(Predicate.EQ, tensor, 0)
    message = "expect_zero: a number is not 0 where the mask is true"
    diagnostics.device_assert(is_zero, message, where)
    return x


@builtin
def multiple_of(input: Any, values: Any) -> Tensor:
    """Promise that each run of numbers along an axis begins at a multiple of `values`.

    `values` is an int, or one for each axis. Returns `input`; the promise belongs to what is
    returned.

    >>> tl.multiple_of(tl.arange(0, 4) * 16, 16)
    tensor([ 0, 16, 32, 48], i32[4])
    """
    return diagnostics.hint("multiple_of", input, values)


@builtin
def max_contiguous(input: Any, values: Any) -> Tensor:
    """Promise that along each axis, runs of `values` numbers are consecutive.

    `values` is an int, or one for each axis. Returns `input`; the promise belongs to what is
    returned.
    """
    return diagnostics.hint("max_contiguous", input, values)


@builtin
def max_constancy(input: Any, values: Any) -> Tensor:
    """Promise that along each axis, runs of `values` numbers are equal.

    `values` is an int, or one for each axis. Returns `input`; the promise belongs to what is
    returned.
    """
    return diagnostics.hint("max_constancy", input, values)
