"""Syntax that no executor takes, though Python itself could run it; with what to write instead."""

from __future__ import annotations

import ast
from typing import NamedTuple

__all__ = ["DELETE", "LOOP_ELSE", "Refusal", "refused_target"]


class Refusal(NamedTuple):
    """Why something is refused, and a way out."""

    message: str
    hint: str


LOOP_ELSE = Refusal("`else` of a loop is not part of the language", "set a flag before `break`")
DELETE = Refusal("`del` is not part of the language", "leave it out, or bind another name")
_STARRED = Refusal("a starred target is not part of the language", "name every item")
_ELEMENT = Refusal(
    "an element cannot be assigned: values in a kernel do not change",
    "make a new tile with tl.where, or write memory with tl.store(pointer, value)",
)
_ATTRIBUTE = Refusal(
    "an attribute cannot be assigned: values in a kernel do not change",
    "bind a new value to a name",
)


def refused_target(target: ast.expr) -> tuple[ast.expr, Refusal] | None:
    """Return the first part of a target that a kernel cannot bind; None for names and tuples."""
    match target:
        case ast.Name():
            return None
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return next(filter(None, map(refused_target, parts)), None)
        case ast.Starred():
            return target, _STARRED
        case ast.Subscript():
            return target, _ELEMENT
        case _:
            return target, _ATTRIBUTE
