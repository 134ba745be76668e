"""Syntax that no executor takes, though Python itself could run it; with what to write instead."""

from __future__ import annotations

import ast
from typing import NamedTuple

__all__ = ["DELETE", "YIELD", "Refusal", "refused_target"]


class Refusal(NamedTuple):
    """Why something is refused, and a way out."""

    message: str
    hint: str


DELETE = Refusal("`del` is not part of the language", "leave it out, or bind another name")
YIELD = Refusal("yield is not part of the language", "return a tuple")
_STARRED = Refusal("a starred target is for assignments, to a name", "name every item")
_ATTRIBUTE = Refusal(
    "an attribute cannot be assigned: values in a kernel do not change",
    "bind a new value to a name",
)


def refused_target(
    target: ast.expr, *, takes_rest: bool = False
) -> tuple[ast.expr, Refusal] | None:
    """Return the first part of a target that a kernel cannot bind; None for names and tuples.

    `takes_rest`: `*rest` may stand among the items of a tuple.
    """
    match target:
        case ast.Name():
            return None
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            refused = (refused_target(part, takes_rest=takes_rest) for part in parts)
            return next(filter(None, refused), None)
        case ast.Starred(value=ast.Name()) if takes_rest:
            return None
        case ast.Starred():
            return target, _STARRED
        case ast.Subscript():
            return target, _refused_element(target)
        case _:
            return target, _ATTRIBUTE


def _refused_element(target: ast.Subscript) -> Refusal:
    pointer, offset = ast.unparse(target.value), ast.unparse(target.slice)
    is_offset = not any(isinstance(n, ast.Slice | ast.Tuple) for n in ast.walk(target.slice))
    place = f"{pointer} + {offset}" if is_offset else f"{pointer} + offsets"
    return Refusal(
        "an element cannot be assigned: values in a kernel do not change",
        f"write memory with tl.store({place}, value), or make a new tile with tl.where",
    )
