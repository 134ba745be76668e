"""Everything Tilewright raises, and how a message shows the user's source.

The kinds differ in whose move it is. `CompileError` and `LaunchError`: the kernel, or its launch,
is wrong; the message says what, where, and what to try. `Unsupported`: the kernel is right, but not
for this target. `InternalError`: the fault is ours; the message names the pass and the op.
"""

from __future__ import annotations

import linecache
import unicodedata
from dataclasses import dataclass

__all__ = [
    "AliasConflict",
    "CompileError",
    "CompileTimeAssertionFailure",
    "InternalError",
    "LaunchError",
    "Location",
    "TilewrightError",
    "UnknownName",
    "Unsupported",
]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source: 1-based line, 0-based column, and the call that led there."""

    file: str
    line: int
    column: int = 0
    end_column: int | None = None
    function: str = ""
    caller: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"

    def excerpt(self) -> str:
        """Return the source line with a caret line below it, or "" where there is no source."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        end = self.end_column if self.end_column is not None else self.column + 1
        carets = "^" * max(1, _display_width(text[self.column : end]))
        padding = "".join(c if c == "\t" else " " * _display_width(c) for c in text[: self.column])
        return f"    {text}\n    {padding}{carets}"


def _display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class TilewrightError(Exception):
    """Base of all errors of this package; `location` is set as soon as it is known."""

    def __init__(self, message: str, *, location: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint
        # The values that the error is about, until somebody who knows their names says them.
        self.culprits: tuple[object, ...] = ()

    def at(self, location: Location | None) -> TilewrightError:
        """Set the location unless an inner construct has already set a closer one."""
        if self.location is None:
            self.location = location
        return self

    def __str__(self) -> str:
        lines = [self.message]
        if self.location is not None:
            lines = [f"{self.location}: {self.message}", self.location.excerpt()]
            caller = self.location.caller
            while caller is not None:
                lines += [f"  called from {caller}:", caller.excerpt()]
                caller = caller.caller
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(line for line in lines if line)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.location, self.hint)


def _rebuild(
    kind: type[TilewrightError], message: str, location: Location | None, hint: str
) -> TilewrightError:
    return kind(message, location=location, hint=hint)


class CompileError(TilewrightError):
    """The kernel does something the language does not allow."""


class CompileTimeAssertionFailure(CompileError):
    """A `tl.static_assert` does not hold: the kernel refuses these compile-time arguments."""


class UnknownName(CompileError, AttributeError):
    """A module of the language, or a value in a kernel, has no such name."""


class LaunchError(TilewrightError):
    """The arguments or the grid of a launch are wrong."""


class Unsupported(TilewrightError):
    """The kernel is right, but this target cannot run it.

    Host code that looks for a kernel that fits raises it, too, in place of a message with what is
    required, the limit, and the name of what there is too little of.
    """

    def __init__(
        self,
        message: str | float,
        limit: float | None = None,
        name: str = "",
        *,
        location: Location | None = None,
        hint: str = "",
    ) -> None:
        if not isinstance(message, str):
            message = f"out of {name}: {message} are required, and the limit is {limit}"
        super().__init__(message, location=location, hint=hint)


class AliasConflict(TilewrightError, ImportError):
    """`triton` cannot be Tilewright in this process: Triton itself has been imported."""


class InternalError(TilewrightError):
    """A fault of the compiler itself; the message names the pass and the op."""
