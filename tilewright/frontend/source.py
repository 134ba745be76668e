"""The text of a kernel: where it is found, its syntax tree, and places in it."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import re
import textwrap
import tokenize
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType

from tilewright.errors import CompileError, Location
from tilewright.frontend.unsaved_source import unsaved_source

__all__ = ["SourceReader", "SourceText"]

_UNAVAILABLE_HINT = (
    "write the function to a file, or pass its text: @tilewright.jit(source=...), "
    "which must hold the `def` as it was executed"
)

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class SourceText:
    """The lines of one function as written (indentation included), from its `def` on."""

    file: str
    first_line: int
    text: str

    @property
    def lines(self) -> tuple[str, ...]:
        return _split(self.text)

    def parse(self) -> ast.FunctionDef:
        """Return the syntax tree, a new one each time; line numbers are those of the file."""
        tree = _parse_block(self.text)
        assert isinstance(tree, ast.FunctionDef)
        ast.increment_lineno(tree, self.first_line - 1)
        tree.decorator_list = []
        return tree

    @property
    def dedented(self) -> str:
        return textwrap.dedent(self.text)

    def locate(self, node: ast.AST, function: str, caller: Location | None) -> Location:
        """Return the place of a node; columns of the syntax tree count bytes, ours characters."""
        line = getattr(node, "lineno", self.first_line)
        end_line = getattr(node, "end_lineno", line)
        start: int = getattr(node, "col_offset", 0)
        end: int | None = getattr(node, "end_col_offset", None)
        index = line - self.first_line
        raw = self.lines[index].encode() if 0 <= index < len(self.lines) else b""
        if end_line != line or end is None:
            end = len(raw)
        column = len(raw[:start].decode(errors="replace"))
        end_column = len(raw[:end].decode(errors="replace"))
        return Location(self.file, line, column, end_column, function, caller)


@functools.lru_cache(maxsize=32)
def _split(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines())


class SourceReader:
    """Finds the source of a function: remembers the file as it is now, parses when asked to.

    The file may be edited while the program runs; the lines are those that were there at
    decoration.
    """

    def __init__(self, fn: FunctionType, source: str | None) -> None:
        self._fn = fn
        self._code = fn.__code__
        self._given = source
        self._lines: list[str] = []
        self.file = self._file()
        if source is None:
            linecache.checkcache(self._code.co_filename)
            self._lines = linecache.getlines(self._code.co_filename, fn.__globals__)
            if not self._lines:
                self._keep(unsaved_source(self._code))

    def _keep(self, text: str | None) -> None:
        """Take a text that is in no file, and let tracebacks show its lines."""
        if text is not None:
            self.file = self._name_of(text)
            self._lines = text.splitlines(keepends=True)
            linecache.cache[self.file] = (len(text), None, self._lines, self.file)

    def _file(self) -> str:
        """Return the absolute path, or the name that the source has where it is no file."""
        if self._given is not None:
            return self._name_of(self._given)
        name = self._code.co_filename
        return name if name.startswith("<") else str(Path(name).absolute())

    def _name_of(self, text: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"<source of {self._fn.__name__} {digest}>"

    def read(self) -> tuple[SourceText, ast.FunctionDef]:
        """Return the source and its syntax tree, whose lines have other numbers.

        Raises `CompileError` where there is none.
        """
        if self._fn.__name__ == "<lambda>":
            raise CompileError("a lambda cannot be a kernel", hint="write it with `def`")
        if self._given is not None:
            lines = textwrap.dedent(self._given).splitlines(keepends=True)
            linecache.cache[self.file] = (len(self._given), None, lines, self.file)
            found = self._find(lines, [i for i, x in enumerate(lines) if re.match(r"@|def\b", x)])
        else:
            found = self._find(self._lines, [self._code.co_firstlineno - 1])
        if found is None:
            raise CompileError(
                f"the source of `{self._fn.__name__}` is not available (it comes from "
                f"{self._code.co_filename}, line {self._code.co_firstlineno}), and a kernel is "
                "compiled from its source",
                hint=_UNAVAILABLE_HINT,
            )
        return found

    def _find(
        self, lines: list[str], starts: list[int]
    ) -> tuple[SourceText, ast.FunctionDef] | None:
        for start in starts:
            if start < len(lines) and (tree := self._parse(lines, start)) is not None:
                assert tree.end_lineno is not None
                first, end = start + tree.lineno - 1, start + tree.end_lineno
                return SourceText(self.file, first + 1, "".join(lines[first:end])), tree
        return None

    def _parse(self, lines: list[str], start: int) -> ast.FunctionDef | None:
        """Parse the function whose decorators or `def` begin at a line; None if it is not ours.

        Its first line is number 1.
        """
        try:
            function = _parse_quickly(lines, start) or _parse_block(
                "".join(inspect.getblock(lines[start:]))
            )
        except (SyntaxError, ValueError, tokenize.TokenError):
            return None
        if not isinstance(function, ast.FunctionDef) or function.name != self._name:
            return None
        arguments = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        return function if arguments == self._arguments else None

    @property
    def _name(self) -> str:
        return self._fn.__name__ if self._is_stand_in else self._code.co_name

    @property
    def _arguments(self) -> list[str]:
        """The names of the parameters that are passed by position."""
        if not self._is_stand_in:
            return list(self._code.co_varnames[: self._code.co_argcount])
        parameters = inspect.signature(self._fn).parameters.values()
        return [p.name for p in parameters if p.kind in _BY_POSITION]

    @property
    def _is_stand_in(self) -> bool:
        """Whether the function only carries a name and a signature, and the text is given.

        Programs that write kernels make such ones: the code of the function is that of another.
        """
        return self._given is not None and hasattr(self._fn, "__signature__")


def _parse_quickly(lines: list[str], start: int) -> ast.stmt | None:
    """Parse the lines up to the next that is indented no deeper; None if that is no statement.

    Python's own way needs regular expressions that take longer than to load a kernel from the disk
    cache. A text that ends too early, in brackets or in a string, is no statement.
    """
    own = _indentation(lines[start])
    header = next(
        (i for i in range(start, len(lines)) if lines[i].lstrip().startswith("def ")), start
    )
    end = header + 1
    while end < len(lines) and (
        _indentation(lines[end]) > own or lines[end].lstrip()[:1] in {"", "#", ")", "]"}
    ):
        end += 1
    try:
        return _parse_block("".join(lines[start:end]))
    except (SyntaxError, ValueError):
        return None


def _indentation(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())


def _parse_block(block: str) -> ast.stmt | None:
    """Parse a statement; one that is indented keeps its columns."""
    if not block[:1].isspace():
        body = ast.parse(block).body
        return body[0] if body else None
    condition = ast.parse(f"if True:\n{block}").body[0]
    assert isinstance(condition, ast.If)
    return ast.increment_lineno(condition.body[0], -1)
