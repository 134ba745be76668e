"""What this language has and Triton has not: a strict kernel may not use it.

What the syntax shows is found in the text, by `refuse_syntax`; what depends on types is said by the
functions that allow it, with `extension`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tilewright.errors import CompileError
from tilewright.frontend.context import current
from tilewright.frontend.liveness import Liveness, assigned_names, target_names

__all__ = ["extension", "refuse_syntax"]

_Found = tuple[ast.AST, str, str]


def extension(what: str, instead: str) -> None:
    """Raise `CompileError` where the function that is being read is strict."""
    if current().is_strict:
        raise CompileError(f"{what}: Triton has not this, and the kernel is strict", hint=instead)


def refuse_syntax(
    tree: ast.FunctionDef, liveness: Liveness, fail: Callable[[ast.AST, CompileError], CompileError]
) -> None:
    """Raise what `fail` makes of an error at a node, for the first extension in the text."""
    found = sorted(
        [*_extensions(tree), *_names_after_loops(tree, liveness)], key=lambda item: _place(item[0])
    )
    for node, what, instead in found[:1]:
        message = f"{what}: Triton has not this, and the kernel is strict"
        raise fail(node, CompileError(message, hint=instead))


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _extensions(tree: ast.FunctionDef) -> Iterator[_Found]:
    if tree.args.kwonlyargs:
        yield tree.args.kwonlyargs[0], "a keyword-only parameter", "remove the `*` before it"
    for statement in tree.body:
        yield from _within(statement, in_loop=False)


def _within(node: ast.AST, *, in_loop: bool) -> Iterator[_Found]:
    """The extensions in a piece of syntax; what is inside nested functions is not looked at."""
    if in_loop and isinstance(node, ast.Return):
        yield node, "`return` in a loop", "set a flag in the loop, and return after it"
    reported = _REPORTED.get(type(node))
    found = None if reported is None else reported(node)
    if found is not None:
        yield node, *found
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return
    inner = in_loop or isinstance(node, ast.For | ast.While)
    for child in ast.iter_child_nodes(node):
        yield from _within(child, in_loop=inner)


def _names_after_loops(tree: ast.FunctionDef, liveness: Liveness) -> Iterator[_Found]:
    """The loops whose index, or a name that they bind first, is read after them."""
    parameters = {node.arg for node in ast.walk(tree.args) if isinstance(node, ast.arg)}
    for loop, read_later in liveness.after.items():
        if not isinstance(loop, ast.For | ast.While) or _called(loop) == "static_range":
            continue
        index = target_names(loop.target) if isinstance(loop, ast.For) else []
        before = parameters | {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and _place(node) < _place(loop)
        }
        for name in assigned_names([loop]):
            if name not in read_later:
                continue
            if name in index:
                instead = "assign it to another name, bound before the loop, in the body"
                yield loop, f"the index `{name}` read after its loop", instead
            elif name not in before:
                instead = f"assign `{name}` before the loop"
                yield loop, f"`{name}`, first bound in a loop, read after it", instead


def _called(loop: ast.For | ast.While) -> str:
    """The function in the header of a `for`, without the module that it is from."""
    if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)):
        return ""
    return ast.unparse(loop.iter.func).rpartition(".")[2]


_Reported = tuple[str, str] | None


def _jump(node: ast.AST) -> _Reported:
    name = type(node).__name__.lower()
    instead = "guard what follows with an `if`, or a mask"
    if name == "break":
        instead = "use `while` with a condition that says when to stop"
    return f"`{name}`", instead


_ELSE = ("`else` of a loop", "set a flag before `break`, and ask it after the loop")


def _for(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.For)
    if node.orelse:
        return _ELSE
    if _called(node) in {"range", "static_range"}:
        return None
    return "a loop over anything but a range", "for i in tl.static_range(len(items)): items[i]"


def _while(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.While)
    if node.orelse:
        return _ELSE
    if not isinstance(node.test, ast.Constant):
        return None
    return "a loop whose condition is a constant", "write the condition to go on"


def _compare(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.Compare)
    if len(node.ops) > 1:
        return "a chain of comparisons", "(a < b) & (b < c)"
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        return "`in`", "compare with ==, and join with `or`"
    return None


def _assign(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.Assign)
    if any(isinstance(inner, ast.Starred) for target in node.targets for inner in ast.walk(target)):
        return "a starred target", "take the items apart: items[0], items[1:]"
    return None if len(node.targets) == 1 else ("several targets", "one assignment for each name")


def _function(_: ast.AST) -> _Reported:
    return "a function inside a kernel", "define it outside, with @tilewright.jit"


def _comprehension(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.ListComp | ast.GeneratorExp)
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        return None
    what = "a comprehension with a condition, or with several loops, or in parentheses"
    return what, "[f(x) for x in items], over the items that are wanted"


def _formatted(node: ast.AST) -> _Reported:
    assert isinstance(node, ast.FormattedValue)
    if node.format_spec is None and node.conversion == -1:
        return None
    return "a format in an f-string", "make the text outside, and pass it as tl.constexpr"


_REPORTED: dict[type[ast.AST], Callable[[ast.AST], _Reported]] = {
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.For: _for,
    ast.While: _while,
    ast.Compare: _compare,
    ast.Assign: _assign,
    ast.FunctionDef: _function,
    ast.Lambda: _function,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.FormattedValue: _formatted,
}
