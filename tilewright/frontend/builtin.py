"""The mark of the functions that the language offers: they run while a kernel is read."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.ir.types import DType
from tilewright.spelling import unknown_parameters

__all__ = [
    "builtin", "foreign_builtin", "is_builtin", "must_use_result", "offer", "own_function",
]  # fmt: skip

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
        try:
            return cast("Any", function)(*plain, **passed)
        except TypeError as error:
            here = error.__traceback__
            if here is None or here.tb_next is not None:  # it comes from inside
                raise
            raise _mismatch(function, plain, passed, error) from None

    wrapper.__tilewright_builtin__ = True  # type: ignore[attr-defined]
    return cast("Callable[P, R]", wrapper)


_OWN: dict[str, str] = {}


def offer(module: str, names: Iterable[str]) -> None:
    """Remember functions of the language, for messages that name them; the first offer counts."""
    for name in names:
        _OWN.setdefault(name, f"{module}.{name}")


def own_function(name: str) -> str | None:
    """Return how a kernel calls the language's function of a name, or None if there is none."""
    return _OWN.get(name)


def _mismatch(
    function: Callable[..., Any], args: list[Any], named: dict[str, Any], error: TypeError
) -> CompileError:
    """Return the error about arguments that do not fit the parameters of a function."""
    parameters = inspect.signature(function).parameters
    unknown = [name for name in named if name not in parameters]
    if unknown:
        return unknown_parameters(function.__name__, unknown, parameters)
    needed = [p.name for p in list(parameters.values())[len(args) :] if p.default is p.empty]
    missing = ", ".join(f"`{name}`" for name in needed if name not in named)
    hint = f"its parameters are {', '.join(parameters)}"
    example = re.search(rf">>> .*?(\S*\b{function.__name__}\(.*)", function.__doc__ or "")
    if example is not None:
        hint += f"; for instance {example[1]}"
    if missing:
        return CompileError(f"`{function.__name__}` needs a value for {missing}", hint=hint)
    return CompileError(str(error), hint=hint)


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
