"""`else` of a loop, which runs unless `break` has left it, written without it.

A loop that nothing breaks is followed by what its `else` holds. Any other notes a `break` under a
name of its own:

    for i in r:              unbroken = True
        ...                  for i in r:
        break         ->         ...
    else:                        unbroken = False
        rest                     break
                             if unbroken:
                                 rest
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["without_loop_else"]

_Loop = ast.For | ast.While


def without_loop_else(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Change the tree of a function so that no loop has an `else`, and return it."""
    if any(isinstance(node, _Loop) and node.orelse for node in ast.walk(tree)):
        _WithoutElse().visit(tree)
    return tree


class _WithoutElse(ast.NodeTransformer):
    def __init__(self) -> None:
        self._count = 0

    def visit_For(self, node: _Loop) -> Any:
        self.generic_visit(node)
        if not node.orelse:
            return node
        rest, node.orelse = node.orelse, []
        self._count += 1
        name = f"__unbroken_{self._count}__"
        if not _note_breaks(node.body, name):
            return [node, *rest]
        test = ast.copy_location(ast.Name(name, ast.Load()), rest[0])
        ends = ast.copy_location(ast.If(test, rest, []), rest[0])
        return [_assignment(name, True, node), node, ends]

    visit_While = visit_For  # noqa: N815 - the name of the node


def _note_breaks(block: list[ast.stmt], name: str) -> bool:
    """Put an assignment before each `break` of the loop around; return whether there is one."""
    found = False
    for i in reversed(range(len(block))):
        statement = block[i]
        if isinstance(statement, ast.Break):
            block.insert(i, _assignment(name, False, statement))
            found = True
        elif not isinstance(statement, _Loop | ast.FunctionDef):  # those are left by their own
            for field in ("body", "orelse"):
                found |= _note_breaks(getattr(statement, field, []), name)
    return found


def _assignment(name: str, value: bool, place: ast.stmt) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
    ast.copy_location(made, place)
    return ast.fix_missing_locations(made)
