"""Functions of plain Python that kernels call while they are compiled."""

from __future__ import annotations

import contextlib
import functools
import inspect
import textwrap
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from tilewright.frontend.constexpr import unwrap

__all__ = ["constexpr_function", "is_constexpr_function"]

P = ParamSpec("P")
R = TypeVar("R")


def constexpr_function(fn: Callable[P, R]) -> Callable[P, R]:
    """Let kernels call a plain Python function while they are compiled.

    Compile-time values arrive unwrapped, and the result is one: of tensors it may ask the type. The
    source is part of what identifies a kernel that calls it. On the host it is the function itself.

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
