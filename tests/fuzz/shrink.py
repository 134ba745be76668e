"""Makes the text of a failing kernel smaller, as long as it fails."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

__all__ = ["shrink"]

Path = list[tuple[str, int | None]]


def shrink(source: str, still_fails: Callable[[str], bool], *, attempts: int = 400) -> str:
    """Return a smaller text for which `still_fails` holds, after at most so many questions."""
    known = {source}
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(ast.parse(source)):
            text = ast.unparse(ast.fix_missing_locations(candidate)) + "\n"
            if text in known or len(text) > len(source) + 20:
                continue
            if attempts == 0:
                return source
            known.add(text)
            attempts -= 1
            if still_fails(text):
                source, progress = text, True
                break
    return source


def _smaller(module: ast.Module) -> Iterator[ast.Module]:
    """Modules with one thing less, those that lack most first."""
    yield from _one_program(module)
    blocks = _block_paths(module)
    sizes = sorted({len(_at(module, p)) for p in blocks}, reverse=True)
    length = max(sizes, default=0)
    while length >= 1:
        for path in blocks:
            count = len(_at(module, path))
            for start in range(count - length, -1, -length):
                yield _without(module, path, start, length)
        length //= 2
    for path in blocks:
        for place in range(len(_at(module, path))):
            yield from _unwrapped(module, path, place)
    yield from _without_parameters(module)
    yield from _simpler_expressions(module)


def _one_program(module: ast.Module) -> Iterator[ast.Module]:
    changed = copy.deepcopy(module)
    for node in changed.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GRID":
            node.value = ast.parse("(1, 1, 1)", mode="eval").body
            yield changed


def _block_paths(module: ast.Module) -> list[Path]:
    """Where the statements of functions stand: the attributes and indices that lead there."""
    paths: list[Path] = []

    def visit(node: ast.AST, path: Path) -> None:
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            if path and block:
                paths.append([*path, (name, None)])
            for place, child in enumerate(block):
                visit(child, [*path, (name, place)])

    visit(module, [])
    return [p for p in paths if isinstance(_at(module, p[:1]), ast.FunctionDef)]


def _at(module: ast.Module, path: Path) -> list[ast.stmt]:
    node = module
    for name, place in path:
        node = getattr(node, name) if place is None else getattr(node, name)[place]
    return node


def _without(module: ast.Module, path: Path, start: int, length: int) -> ast.Module:
    changed = copy.deepcopy(module)
    block = _at(changed, path)
    del block[start : start + length]
    if not block and path[-1][0] == "body":
        block.append(ast.Pass())
    return changed


def _unwrapped(module: ast.Module, path: Path, place: int) -> Iterator[ast.Module]:
    """The body of a loop or branch in its place."""
    statement = _at(module, path)[place]
    if not isinstance(statement, ast.For | ast.While | ast.If):
        return
    for inside in (statement.body, statement.orelse):
        if inside:
            changed = copy.deepcopy(module)
            block = _at(changed, path)
            first: list[ast.stmt] = []
            if isinstance(statement, ast.For):
                first = [ast.Assign([copy.deepcopy(statement.target)], ast.Constant(1))]
            block[place : place + 1] = [*first, *copy.deepcopy(inside)]
            yield changed


def _without_parameters(module: ast.Module) -> Iterator[ast.Module]:
    """Functions and parameters that nothing uses are left out."""
    used = {
        n.id
        for f in module.body
        if isinstance(f, ast.FunctionDef)
        for n in ast.walk(f)
        if isinstance(n, ast.Name)
    }
    used |= _described(module, used)
    changed = copy.deepcopy(module)
    changed.body = [
        n
        for n in changed.body
        if not isinstance(n, ast.FunctionDef) or n.name in used or n.name == "kernel"
    ]
    for node in changed.body:
        if isinstance(node, ast.FunctionDef) and node.name == "kernel":
            node.args.args = [a for a in node.args.args if a.arg in used]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            kept = [
                (k, v)
                for k, v in zip(node.value.keys, node.value.values, strict=True)
                if isinstance(k, ast.Constant) and k.value in used
            ]
            node.value.keys, node.value.values = [k for k, _ in kept], [v for _, v in kept]
    yield changed


def _described(module: ast.Module, used: set[str]) -> set[str]:
    """The arrays that the host makes descriptors of, where the kernel uses these."""
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DESCRIPTORS":
            made = ast.literal_eval(node.value)
            return {array for name, (array, *_) in made.items() if name in used}
    return set()


def _simpler_expressions(module: ast.Module) -> Iterator[ast.Module]:
    """A part of an expression in place of the whole."""
    count = sum(isinstance(n, ast.expr) for n in ast.walk(module))
    for number in range(count):
        node = _expression(module, number)
        for option in range(len(_parts(node))):
            changed = copy.deepcopy(module)
            target = _expression(changed, number)
            part = _parts(target)[option]
            _Replace(target, part).visit(changed)
            yield changed


def _expression(module: ast.Module, number: int) -> ast.expr:
    return [n for n in ast.walk(module) if isinstance(n, ast.expr)][number]


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left, _, right):
            return [left, right]
        case ast.UnaryOp(_, operand):
            return [operand]
        case ast.IfExp(_, body, orelse):
            return [body, orelse]
        case ast.BoolOp(_, values):
            return values
        case ast.Call(ast.Attribute(ast.Name("tl")), args):
            return [a for a in args if not isinstance(a, ast.Constant)]
        case ast.Call(ast.Attribute(value, "to")):
            return [value]
        case ast.Subscript(value):
            return [value]
    return []


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = old, new

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().generic_visit(node)
