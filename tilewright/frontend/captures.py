"""What a kernel sees of the world around it: closure variables, globals and builtins.

A compiled kernel is kept, so what it reads must not change behind its back: numbers, strings and
the like may be read only where the user has said that they are constants.
"""

from __future__ import annotations

import ast
import builtins
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol, TypeAlias

from tilewright import env
from tilewright.errors import CompileError
from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.ir.types import DType, PointerType, TileType
from tilewright.spelling import did_you_mean

__all__ = ["MISSING", "Captures", "Namespace", "Reference", "outside_names"]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()


class Namespace(Protocol):
    """Where a captured name lives: a dictionary, or the cell of a closure."""

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the value of a name now."""


class _Cell:
    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def get(self, name: str, default: Any = None, /) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:  # not assigned yet
            return default


class _Members:
    """The attributes of a class, those of its bases included, as they are read."""

    def __init__(self, cls: type) -> None:
        self._class = cls

    def get(self, name: str, default: Any = None, /) -> Any:
        return getattr(self._class, name, default)


@dataclass(frozen=True, slots=True)
class Reference:
    """A name outside a kernel, or an attribute of a module (`path` is dotted), and its value."""

    path: str
    namespace: Namespace
    name: str
    value: Any


class Captures:
    """The names that a function finds outside itself."""

    def __init__(self, fn: FunctionType) -> None:
        code: CodeType = fn.__code__
        self._globals = fn.__globals__
        cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
        self._cells = {name: _Cell(cell) for name, cell in cells}

    @property
    def all(self) -> dict[str, Any]:
        """Globals, with closure variables over them."""
        cells = {name: cell.get(name, MISSING) for name, cell in self._cells.items()}
        return {**self._globals, **{n: v for n, v in cells.items() if v is not MISSING}}

    def find(self, name: str) -> tuple[Namespace, Any]:
        """Return where a name lives and its value (`MISSING` if nowhere)."""
        if name in self._cells:
            cell = self._cells[name]
            return cell, cell.get(name, MISSING)
        if name in self._globals:
            return self._globals, self._globals[name]
        return vars(builtins), getattr(builtins, name, MISSING)

    def _ways_to_define(self, name: str) -> str:
        known = {*self._globals, *self._cells, *vars(builtins)}
        return f"{did_you_mean(name, known)} define or import it above the kernel".lstrip()

    def lookup(self, name: str) -> Any:
        """Return what a kernel gets for a name, or raise `CompileError`."""
        _, value = self.find(name)
        if value is MISSING:
            raise CompileError(f"`{name}` is not defined", hint=self._ways_to_define(name))
        is_constant = _may_be_captured(value) or self._is_declared(name)
        if is_constant or env.reads_ordinary_globals():
            return unwrap(value)
        kind, type_ = self.kind_of(name), type(value).__name__
        hint = f"write {name} = tl.constexpr(...) there, or pass it as a tl.constexpr parameter"
        if name in self._cells:  # each call of that function may have another value
            hint = f"write {name} = tl.constexpr({name}) there, above the kernel"
        elif isinstance(value, int | float | str):
            hint = f"write {name} = tl.constexpr({value!r}) there"
        raise CompileError(
            f"`{name}` is an ordinary {kind} (of type {type_}), which could change after "
            "the kernel has been compiled",
            hint=hint,
        )

    def kind_of(self, name: str) -> str:
        """Return what a message calls the variable of a name."""
        return "variable of the enclosing function" if name in self._cells else "global variable"

    def _is_declared(self, name: str) -> bool:
        """Whether the module says `name: tl.constexpr = ...`."""
        annotation = self._globals.get("__annotations__", {}).get(name)
        if isinstance(annotation, str):
            return annotation.rpartition(".")[2] == "constexpr"
        return annotation is constexpr

    def references(self, names: OutsideNames) -> Iterator[Reference]:
        """Every name that the body reads from outside, followed through modules and classes."""
        for path in names:
            root, *attributes = path.split(".")
            namespace, value = self.find(root)
            name, seen = root, root
            for attribute in attributes:
                if not isinstance(value, ModuleType | type) or not hasattr(value, attribute):
                    break
                name, seen = attribute, f"{seen}.{attribute}"
                namespace = _Members(value) if isinstance(value, type) else vars(value)
                value = getattr(value, attribute)
            if value is not MISSING:
                yield Reference(seen, namespace, name, value)


def _may_be_captured(value: Any) -> bool:
    if value is None or value is Ellipsis or callable(value):
        return True
    if isinstance(value, tuple):
        return all(map(_may_be_captured, value))
    return isinstance(value, constexpr | DType | PointerType | TileType | ModuleType | enum.Enum)


OutsideNames: TypeAlias = tuple[str, ...]


def outside_names(tree: ast.FunctionDef) -> OutsideNames:
    """Return the names and chains of attributes in a body, but for those that it binds itself.

    What nested functions bind is their own.
    """
    own = {argument.arg for argument in ast.walk(tree.args) if isinstance(argument, ast.arg)}
    paths: set[str] = set()
    pending: list[tuple[Any, bool]] = [(tree.body, True)]
    while pending:
        node, binds = pending.pop()
        if isinstance(node, list):
            pending += [(item, binds) for item in node if isinstance(item, ast.AST)]
        elif isinstance(node, ast.Name):
            paths.add(node.id)
            if binds and isinstance(node.ctx, ast.Store):
                own.add(node.id)
        elif isinstance(node, ast.Attribute) and (path := _dotted(node)):
            paths.add(path)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.Lambda)
            if binds and isinstance(node, ast.FunctionDef):
                own.add(node.name)
            # The fields of a node, and where it stands in the text.
            pending += [
                (value, binds and (not is_function or name == "args"))
                for name, value in vars(node).items()
                if isinstance(value, ast.AST | list)
            ]
    return tuple(sorted(path for path in paths if path.partition(".")[0] not in own))


def _dotted(node: ast.Attribute) -> str:
    """Return a chain of attributes of a name as it is written; nothing for other ones."""
    attributes: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    return ".".join([inner.id, *reversed(attributes)]) if isinstance(inner, ast.Name) else ""
