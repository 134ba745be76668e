"""Functions made inside a kernel: `lambda` and a nested `def`.

They see the names around them as those are when the function is called, as Python's do, and are
read anew into the caller at every call: what they return may be compile-time values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.errors import CompileError, Location
from tilewright.frontend.context import current
from tilewright.frontend.definition import Syntax
from tilewright.frontend.frame import Session
from tilewright.frontend.liveness import names_constexpr
from tilewright.frontend.parameters import Parameter
from tilewright.frontend.semantic import full_of
from tilewright.frontend.source import SourceText
from tilewright.frontend.structure import leaves, rebuild
from tilewright.frontend.tensor import constant_array
from tilewright.ir.core import Block
from tilewright.ir.types import TileType

__all__ = ["NestedFunction", "function_tree", "has_nested", "nested_parameters"]


class _Around:
    """The names around a nested function."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        self.lookup = lookup


class NestedFunction:
    """A function of a kernel's own, ready to be called; `lookup` finds the names around it."""

    def __init__(
        self,
        tree: ast.FunctionDef,
        source: SourceText,
        params: tuple[Parameter, ...],
        lookup: Callable[[str], Any],
        session: Session,
    ) -> None:
        self.name = tree.name
        self.is_strict = False  # nor may a strict function have one
        self.syntax = Syntax(tree)
        self.source = source
        self.params = params
        self.captures = _Around(lookup)
        self.session = session

    def __repr__(self) -> str:
        return f"<function {self.name}>"

    @property
    def arg_names(self) -> list[str]:
        return [p.name for p in self.params]

    @property
    def location(self) -> Location:
        """The place of the function's text."""
        return self.source.locate(self.syntax.tree, self.name, None)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function from one of the language or of Python."""
        return self.session.call(self, args, named, current().location or self.location)

    def element_block(self, types: Sequence[TileType], count: int | None) -> Block:
        """Return the region that computes `count` scalars (None: any number) from scalars."""

        def lookup(name: str) -> Any:
            return _constants_of(name, self.captures.lookup(name))

        tree, session = self.syntax.tree, self.session
        inside = NestedFunction(tree, self.source, self.params, lookup, session)
        return session.element_block(inside, types, count)


def _constants_of(name: str, value: Any) -> Any:
    """Return a value made anew, which must be known at compile time: a region stands alone."""
    new = []
    for leaf in leaves(value):
        array = constant_array(leaf.value)
        if array is None or array.shape:
            raise CompileError(
                f"`{name}` is known only when the kernel runs: a function of elements "
                "reads constants only",
                hint=f"hand `{name}` to the function, or bring it in afterwards",
            )
        new.append(full_of(array.item(), leaf.dtype).value)
    return rebuild(value, iter(new))


def has_nested(values: Mapping[str, Any]) -> bool:
    """Whether there is a nested function among some arguments, or in a tuple of theirs."""
    pending = list(values.values())
    while pending:
        value = pending.pop()
        if isinstance(value, NestedFunction):
            return True
        if isinstance(value, tuple):
            pending += value
    return False


def function_tree(node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    """Return a `def` that does what a `def` or a `lambda` does."""
    if isinstance(node, ast.FunctionDef):
        return node
    body = ast.copy_location(ast.Return(node.body), node.body)
    tree = ast.FunctionDef("lambda", node.args, [body], [])
    return ast.copy_location(tree, node)


def nested_parameters(
    arguments: ast.arguments, value_of: Callable[[ast.expr], Any]
) -> tuple[Parameter, ...]:
    """Return the parameters of a nested function; defaults are evaluated where it is made."""
    if arguments.kwarg is not None:
        raise CompileError(
            f"a function takes **{arguments.kwarg.arg}: parameters must be known by name",
            hint="name each parameter",
        )
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*([None] * without), *arguments.defaults]
    declared = list(zip(positional, defaults, strict=True))
    if arguments.vararg is not None:
        declared.append((arguments.vararg, None))
    declared += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return tuple(
        Parameter(
            num,
            node.arg,
            is_constexpr=node.annotation is not None and names_constexpr(node.annotation),
            is_variadic=node is arguments.vararg,
            is_keyword_only=node in arguments.kwonlyargs,
            has_default=default is not None,
            default=None if default is None else value_of(default),
        )
        for num, (node, default) in enumerate(declared)
    )
