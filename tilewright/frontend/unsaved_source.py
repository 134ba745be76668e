"""The text of functions that come from no file: given to `exec` or `-c`, or typed at a prompt.

Python does not keep it. While such code runs, however, its text is mostly at hand: among the
variables or constants of whoever called `exec`, on the command line, in the history of the prompt.
Which text is the one is no guess: compiled once more, it has to give the very code.
"""

from __future__ import annotations
import __future__

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FrameType

__all__ = ["unsaved_source"]

# How much of the history is looked through.
_HISTORY_LINES = 1000
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def unsaved_source(code: CodeType) -> str | None:
    """Return the text that holds a function with this code, None where it is not at hand."""
    mentions = re.compile(rf"\bdef\s+{re.escape(code.co_name)}\b")
    seen: set[str] = set()
    for text in _texts(inspect.currentframe()):
        for candidate in {text, textwrap.dedent(text)} - seen:
            seen.add(candidate)
            if mentions.search(candidate) and _makes(candidate, code):
                return candidate
    return None


def _texts(frame: FrameType | None) -> Iterator[str]:
    """Yield what may be the text."""
    while frame is not None:
        variables = {**frame.f_globals, **frame.f_locals}
        values = (*variables.values(), *frame.f_code.co_consts)
        yield from (value for value in values if isinstance(value, str))
        frame = frame.f_back
    yield from sys.orig_argv
    yield from _typed()


def _typed() -> Iterator[str]:
    """Yield what was typed from each line of the history on that may begin a function."""
    readline = sys.modules.get("readline")
    if readline is None:
        return
    last = readline.get_current_history_length()
    typed = ""
    for number in range(last, max(0, last - _HISTORY_LINES), -1):
        line = readline.get_history_item(number) or ""
        typed = f"{line}\n{typed}"
        if line.startswith(("@", "def ")):
            yield typed


def _makes(text: str, code: CodeType) -> bool:
    """Whether a text, compiled as Python did, has the code somewhere in it."""
    for mode in ("exec", "single"):
        try:
            made = compile(
                text, code.co_filename, mode, code.co_flags & _FUTURES, dont_inherit=True
            )
        except (SyntaxError, ValueError):
            continue
        if any(inner == code for inner in _functions(made)):
            return True
    return False


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of every function in a piece of code."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions(inner)
