"""Names of the language that a user's kernel has imported one by one, written into generated code.

Inductor writes a kernel's source into a file of its own and imports there what comes from a module
of the name `triton...`; ours have other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tilewright.frontend.constexpr import constexpr
from tilewright.ir.types import DType
from tilewright.runtime.jit import JITFunction

__all__ = ["with_names"]

_PACKAGE = "tilewright."
_DECLARED = f": {constexpr.__module__}.{constexpr.__name__} = "


def with_names(emitted: str, kernel: JITFunction) -> str:
    """Return the code that Inductor has written from a kernel, with the names that it lacks.

    Constants of the user's module are declared there by the name of our class.
    """
    return f"{emitted.replace(_DECLARED, ': tl.constexpr = ')}\n{_imports(kernel)}"


def _imports(kernel: JITFunction) -> str:
    """Return the lines that bind what a kernel, and the kernels it calls, use of ours by name."""
    lines: dict[str, None] = {}
    pending, seen = [kernel], {kernel}
    while pending:
        for reference in pending.pop().references:
            value = reference.value
            if isinstance(value, JITFunction):
                if value not in seen:
                    seen.add(value)
                    pending.append(value)
            elif "." not in reference.path:
                lines.update(dict.fromkeys(_binding(reference.path, value)))
    return "".join(f"{line}\n" for line in lines)


def _binding(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, DType):
        yield f"{name} = tl.{value.long_name}"
    elif isinstance(value, ModuleType):
        if value.__name__.startswith(_PACKAGE):
            yield f"import {value.__name__} as {name}"
    elif not isinstance(value, constexpr) and _module(value).startswith(_PACKAGE):
        own = getattr(value, "__name__", None)
        if own is not None:
            yield f"from {_module(value)} import {own} as {name}"


def _module(value: Any) -> str:
    return str(getattr(value, "__module__", ""))
