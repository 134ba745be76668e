"""What the user calls the values that an error is about."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.frontend.captures import MISSING
from tilewright.frontend.semantic.values import is_number
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DType, PointerType

__all__ = ["name_culprits"]

_NO_CULPRITS = (Tensor, ModuleType, DType, PointerType, tuple)


def name_culprits(
    error: TilewrightError,
    node: ast.AST,
    value_of: Callable[[str], Any],
    *,
    is_of_python: bool = False,
) -> None:
    """Say in the hint of an error which names in a node have the values that it is about.

    An error of Python's own about an operator does not say: it may be about each operand that is
    neither a number nor of the language. `value_of` returns `MISSING` for names from outside.
    """
    if is_of_python:
        found = [
            _way_out(operand.id, value_of(operand.id))
            for operand in _operands(node)
            if isinstance(operand, ast.Name) and _is_suspect(value_of(operand.id))
        ]
    else:
        names = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        found = [_way_out(n, value_of(n)) for n in names if _is_about(error, value_of(n))]
        found = found or _calls_without_result(error, node)
    error.culprits = ()
    if found:
        error.hint = "; ".join(found)


def _operands(node: ast.AST) -> list[ast.AST]:
    is_operator = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.AugAssign)
    return list(ast.iter_child_nodes(node)) if is_operator else []


def _calls_without_result(error: TilewrightError, node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Call) or all(culprit is not None for culprit in error.culprits):
        return []
    arguments = (*node.args, *(keyword.value for keyword in node.keywords))
    calls = [ast.unparse(argument) for argument in arguments if isinstance(argument, ast.Call)]
    if len(calls) != 1:
        return []
    return [f"`{calls[0]}` returns nothing: write it as a statement of its own"]


def _is_about(error: TilewrightError, value: Any) -> bool:
    return any(
        value is culprit or (_is_suspect(culprit) and type(value) is type(culprit))
        for culprit in error.culprits
    )


def _is_suspect(value: Any) -> bool:
    return not (
        value is MISSING or callable(value) or is_number(value) or isinstance(value, _NO_CULPRITS)
    )


def _way_out(name: str, value: Any) -> str:
    if value is None:
        return f"`{name}` is None: pass a value, or branch on `{name} is None`"
    shown = f"`{name}` is {type(value).__name__} {reprlib.repr(value)}: pass a number"
    try:
        int(value)
    except (TypeError, ValueError, TilewrightError):
        return shown
    return f"{shown}, such as int({name})"
