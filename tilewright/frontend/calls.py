"""Calls: of the language, of other kernels, of Python's own, and of Python at compile time."""
# ruff: noqa: N802 - visitors are named for the nodes they visit

from __future__ import annotations

import ast
from types import MethodType
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.builtin import foreign_builtin, is_builtin, own_function
from tilewright.frontend.constexpr_function import is_constexpr_function
from tilewright.frontend.definition import Definition
from tilewright.frontend.expressions import Expressions
from tilewright.frontend.nested import NestedFunction
from tilewright.frontend.pythonic import python_function
from tilewright.frontend.structure import has_tensor

__all__ = ["Calls"]

_TAKES_TENSORS: frozenset[Any] = frozenset({abs, callable, getattr, hasattr, pow, repr, str, type})
_INSTEAD = {
    "breakpoint": (
        "breakpoint() works only where a kernel runs as Python",
        "set TILEWRIGHT_INTERPRET=1, or launch with kernel.debug[grid](...)",
    ),
    "locals": ("locals() is not part of the language", ""),
    "globals": ("globals() is not part of the language", ""),
    "eval": ("eval() is not part of the language", ""),
    "exec": ("exec() is not part of the language", ""),
    "input": ("input() is not part of the language", ""),
    "open": ("open() is not part of the language", ""),
    "super": ("super() is not part of the language", ""),
}


class Calls(Expressions):
    """What happens at `f(...)`."""

    def visit_Call(self, node: ast.Call) -> Any:
        _, result = self.call(node)
        return result

    def call(self, node: ast.Call) -> tuple[Any, Any]:
        """Return the function that is called, and the result."""
        function = self.expression(node.func)
        arguments = list(self.items(node.args))
        named = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise CompileError("**arguments are not part of the language", hint="name each one")
            named[keyword.arg] = self.expression(keyword.value)
        return function, self._result(node, function, arguments, named)

    def _result(
        self, node: ast.Call, function: Any, arguments: list[Any], named: dict[str, Any]
    ) -> Any:
        if isinstance(function, MethodType):
            method: Any = function.__func__
            if isinstance(method, Definition):  # of an aggregate
                function, arguments = method, [function.__self__, *arguments]
        if isinstance(function, Definition | NestedFunction):
            return self.session.call(function, arguments, named, self.place(node))
        replaced = python_function(function) or foreign_builtin(function)
        if replaced is not None:
            return replaced(*arguments, **named)
        if not callable(function):
            raise CompileError(
                f"{function!r} is not a function",
                hint="give the value another name than the function's, or index it by `[...]`",
            )
        return _of_python(function, arguments, named)


def _of_python(function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Call a function of plain Python, which runs now."""
    name = getattr(function, "__name__", type(function).__name__)
    if name in _INSTEAD and getattr(function, "__module__", None) in {"builtins", "io", "_io"}:
        message, hint = _INSTEAD[name]
        raise CompileError(message, hint=hint)
    if has_tensor((*arguments, *named.values())) and not _takes_tensors(function):
        raise CompileError(
            f"`{name}` is not a kernel function, and it is given a value that is known only "
            "when the kernel runs",
            hint=_way_out(function, name),
        )
    result = function(*arguments, **named)
    if is_constexpr_function(function) and has_tensor((result,)):
        raise CompileError(
            f"`{name}` runs at compile time, and its result is known only when the kernel runs",
            hint=f"decorate `{name}` with @tilewright.jit",
        )
    return tuple(result) if isinstance(result, list) else result


_ARRAY_LIBRARIES = {"numpy", "torch", "math", "jax", "cupy", "scipy", "cmath"}


def _way_out(function: Any, name: str) -> str:
    """Say what to call instead of a function that computes on the host."""
    module = (getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
    if module in _ARRAY_LIBRARIES:
        own = own_function(name)
        if own is None:
            return f"write it with functions of tl: they have no `{name}`"
        return f"use the language's own function, {own}"
    return f"decorate `{name}` with @tilewright.jit"


def _takes_tensors(function: Any) -> bool:
    """Whether a function that is no kernel may be given tensors."""
    if is_builtin(function) or has_tensor(getattr(function, "__self__", None)):
        return True
    if is_constexpr_function(function):  # it may ask for their types
        return True
    if isinstance(function, type):  # named tuples and other bundles of values
        return True
    module = getattr(function, "__module__", None) or ""
    return function in _TAKES_TENSORS or module.partition(".")[0] == "tilewright"
