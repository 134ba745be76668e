"""What hosts and, on compile-time values, kernels may call: plain Python."""

from __future__ import annotations

import contextlib
import functools
import inspect
import textwrap
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import tilewright.language as tl
from tilewright.frontend.constexpr import unwrap

__all__ = [
    "cdiv",
    "constexpr_function",
    "is_constexpr_function",
    "next_power_of_2",
    "set_allocator",
]

P = ParamSpec("P")
R = TypeVar("R")


def constexpr_function(fn: Callable[P, R]) -> Callable[P, R]:
    """Let kernels call a plain Python function while they are compiled.

    Its arguments are compile-time values and arrive unwrapped, its result is one. The source is
    part of what identifies a kernel that calls it. On the host it is the function itself.

    >>> @constexpr_function
    ... def half(n):
    ...     return n // 2
    >>> half(8)
    4
    """

    @functools.wraps(fn)
    def on_constants(*args: P.args, **kwargs: P.kwargs) -> R:
        plain: Any = fn
        result: R = plain(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})
        return result

    # What generators of kernels ask for, to write the function into a file of their own.
    marked = cast("Any", on_constants)
    marked.fn = fn
    with contextlib.suppress(OSError):  # typed at a prompt
        text = textwrap.dedent(inspect.getsource(marked.fn))
        marked.src = text[text.index("def ") :]
    _constexpr_functions.add(on_constants)
    return on_constants


_constexpr_functions: weakref.WeakSet[Any] = weakref.WeakSet()


def is_constexpr_function(value: object) -> bool:
    """Whether `constexpr_function` has made a function."""
    return isinstance(value, FunctionType) and value in _constexpr_functions


def cdiv(x: Any, y: Any) -> Any:
    """Return `x / y` rounded up, also for negative numbers; in a kernel also of tiles.

    >>> cdiv(1000, 256), cdiv(-36, 5)
    (4, -7)
    """
    if type(x) is int and type(y) is int:
        return -(-x // y)
    return tl.cdiv(x, y)


def next_power_of_2(n: Any) -> int:
    """Return the smallest power of two that is at least `n`; 0 for 0 and below.

    >>> next_power_of_2(1000), next_power_of_2(1024), next_power_of_2(0)
    (1024, 1024, 0)
    """
    number = int(n)
    return 1 << (number - 1).bit_length() if number > 0 else 0


def set_allocator(allocator: Callable[[int, int, int | None], Any]) -> None:
    """Accept what Triton's descriptors get memory from; here they need none, so it is not called.

    >>> set_allocator(lambda size, alignment, stream: bytearray(size))
    """
    if not callable(allocator):
        raise TypeError(f"set_allocator takes a function, not {type(allocator).__name__}")
