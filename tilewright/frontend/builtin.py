"""The mark of the functions that the language offers: they run while a kernel is read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.ir.types import DType

__all__ = ["builtin", "foreign_builtin", "is_builtin", "must_use_result"]

P = ParamSpec("P")
R = TypeVar("R")

# What functions of other packages hand on to Triton's own, whose compiler passes it to them.
_OF_COMPILER = frozenset({"_semantic", "_generator", "_builder"})
_WRAPPERS = (constexpr, tuple)
# What arrives as a `constexpr` in builtins of other packages.
_CONSTANTS = (bool, int, float, str, type(None), DType)


def builtin(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of the language; its arguments arrive with every `constexpr` unwrapped.

    What Triton's compiler passes to functions so marked is not needed here.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:
        plain = [unwrap(a) if isinstance(a, _WRAPPERS) else a for a in args]
        passed = {name: unwrap(value) for name, value in named.items() if name not in _OF_COMPILER}
        return cast("Any", function)(*plain, **passed)

    wrapper.__tilewright_builtin__ = True  # type: ignore[attr-defined]
    return cast("Callable[P, R]", wrapper)


def must_use_result(x: Any, s: bool | str = True) -> Any:
    """Mark a function that changes nothing: a kernel that drops its result is refused.

    The message may be given, also as `@must_use_result("the message")`.
    """
    if isinstance(x, str):
        return functools.partial(must_use_result, s=x)
    x.must_use_result = s
    return x


def is_builtin(function: object) -> bool:
    """Whether `function` is one of the language's own."""
    return getattr(function, "__tilewright_builtin__", False) is True


def foreign_builtin(function: Any) -> Callable[..., Any] | None:
    """Return what to call in place of a function that is marked as Triton marks its own.

    Other packages write such functions: they run while a kernel is compiled, and get every
    compile-time value as a `constexpr`. None for any other function.
    """
    if not getattr(function, "__triton_builtin__", False):
        return None

    @functools.wraps(function)
    def on_wrapped(*args: Any, **named: Any) -> Any:
        plain = map(_wrapped, args)
        return unwrap(function(*plain, **{name: _wrapped(value) for name, value in named.items()}))

    return on_wrapped


def _wrapped(value: Any) -> Any:
    return constexpr(value) if isinstance(value, _CONSTANTS) else value
