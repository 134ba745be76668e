"""Which names a piece of a kernel assigns, and which are still read after it.

A branch hands back, and a loop carries, only names that are read later: `after` has them for each
statement, `head` for the start of each iteration of a loop. Both may name too much (code in a
branch that is folded away counts), never too little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

__all__ = ["Liveness", "assigned_names", "declares_constexpr", "names_constexpr", "target_names"]

Names = frozenset[str]
NONE: Names = frozenset()
Loop = ast.For | ast.While


def target_names(target: ast.expr) -> list[str]:
    """The names that an assignment to `target` binds."""
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and not _is_load(n)]


def assigned_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Every name that the nodes bind, in order; those of a comprehension do not count."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda):  # what is inside is its own
            if isinstance(node, ast.FunctionDef):
                found[node.name] = None
            visit(node.args)
            return
        if isinstance(node, ast.Name) and not _is_load(node):
            found[node.id] = None
        if isinstance(node, ast.comprehension):
            visit(node.iter)
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in nodes:
        visit(node)
    return list(found)


def declares_constexpr(node: ast.AnnAssign) -> bool:
    """Whether a statement is `name: tl.constexpr` (with a value or without)."""
    return names_constexpr(node.annotation)


def names_constexpr(annotation: ast.expr) -> bool:
    """Whether an annotation is `tl.constexpr`, as an expression or as text."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return str(text).rpartition(".")[2] == "constexpr"


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _reads(node: ast.AST | None) -> Names:
    if node is None:
        return NONE
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_load(n))


class Liveness:
    """The result of the analysis of one function."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.after: dict[ast.stmt, Names] = {}
        self.head: dict[ast.stmt, Names] = {}
        parameters = [a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)]
        self.local_names = frozenset(parameters) | frozenset(assigned_names(tree.body))
        # A nested function may be called anywhere: the names that it reads are always needed.
        nested = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda))
        self._nested = frozenset().union(*(_reads(n) for n in nested if n is not tree))
        self._block(tree.body, self._nested, NONE, NONE)

    def _block(
        self, statements: Sequence[ast.stmt], out: Names, head: Names, leave: Names
    ) -> Names:
        """Return what is read from the start of `statements` on.

        `head` and `leave` are what the loop around reads at its next iteration and after it.
        """
        for statement in reversed(statements):
            self.after[statement] = out
            out = self._statement(statement, out, head, leave) | self._nested
        return out

    def _statement(self, statement: ast.stmt, out: Names, head: Names, leave: Names) -> Names:
        match statement:
            case ast.Assign(targets=targets, value=value):
                bound = {name for target in targets for name in target_names(target)}
                return (out - bound) | _reads(statement)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                return out if value is None else (out - {name}) | _reads(value)
            case ast.AugAssign(target=target):
                return out | set(target_names(target)) | _reads(statement)
            case ast.If(test=test, body=body, orelse=orelse):
                then = self._block(body, out, head, leave)
                return then | self._block(orelse, out, head, leave) | _reads(test)
            case ast.For() | ast.While():
                return self._loop(statement, out)
            case ast.Return(value=value):
                return _reads(value)
            case ast.Break():
                return leave
            case ast.Continue():
                return head
        return out | _reads(statement)

    def _loop(self, loop: Loop, out: Names) -> Names:
        if isinstance(loop, ast.For):
            bound, read, before = set(target_names(loop.target)), NONE, _reads(loop.iter)
        else:
            bound, read, before = set(), _reads(loop.test), NONE
        head = out | read
        for _ in range(2):  # the second round sees what the first found at the head
            head |= self._block(loop.body, head, head, out) - bound
        self.head[loop] = head
        return head | before
