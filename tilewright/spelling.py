"""How messages spell things: names that are not there, and what is close; huge integers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tilewright.errors import CompileError, UnknownName

__all__ = ["did_you_mean", "integer_text", "unknown_name", "unknown_parameters"]


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "", most: int = 1) -> str:
    """Return a question that names what is spelt like `name`, or "" if nothing is.

    >>> did_you_mean("arrange", ["arange", "load"], prefix="tl.")
    'did you mean `tl.arange`?'
    """
    close = difflib.get_close_matches(name, sorted(set(known)), n=most)
    return f"did you mean {' or '.join(f'`{prefix}{c}`' for c in close)}?" if close else ""


def unknown_name(
    module: str,
    name: str,
    known: Iterable[str],
    absent: Mapping[str, str],
    instead: Mapping[str, str] = MappingProxyType({}),
) -> UnknownName:
    """Return the error about a name that a module of ours lacks.

    `absent` has the names of Triton that are not there, each with what to use instead,
    and `instead` the same for names that nobody has.
    """
    if name in absent:
        return UnknownName(f"`{module}.{name}` of Triton is not there yet", hint=absent[name])
    public = [other for other in known if not other.startswith("_")]
    hint = instead.get(name) or did_you_mean(name, public, prefix=f"{module}.")
    return UnknownName(f"{module} has no `{name}`", hint=hint)


def unknown_parameters(
    function: str, names: Iterable[str], parameters: Iterable[str]
) -> CompileError:
    """Return the error about arguments given by names that a function does not have."""
    known, given = list(parameters), list(names)
    close = [did_you_mean(name, known) for name in given]
    return CompileError(
        f"`{function}` has no parameter {', '.join(f'`{name}`' for name in given)}",
        hint=" ".join(filter(None, [*close, f"its parameters are {', '.join(known)}"])),
    )


def integer_text(value: int) -> str:
    """Return the digits of an integer, or how many bits it has if nobody would read them.

    >>> integer_text(-12), integer_text(2**20000)
    ('-12', '<20001 bits>')
    """
    return str(value) if value.bit_length() < 1024 else f"<{value.bit_length()} bits>"
