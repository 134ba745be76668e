"""`docs/reference.md`: every function of the language, what it takes, and where it runs."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import tilewright.language as tl
from tests.reference.calls import CALLS, LIBDEVICE, METHODS, NOT_CALLED, OF_MACHINES, WHERE
from tests.reference.running import accepted, is_typed
from tilewright.frontend.function import KernelFunction
from tilewright.ir.types import DTYPES

__all__ = ["PAGE", "fixed_cells", "names_of_page", "page", "types_cell"]

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"

_INTRODUCTION = """# The language, name by name

Made from the functions themselves by `pytest tests/reference --bless`; a test runs every name on
every type that it is said to take, in eager mode, compiled for the CPU and for emulated GPUs, and
compares. What a function means in detail is in its docstring: `help(tl.load)`. Rules that are
common to all are in [what kernels mean](semantics.md).

Every function runs in every executor: eager mode, the interpreter, the CPU, NVIDIA GPUs, emulated
GPUs. Where they differ the row says so. Types are those of the tiles (or of the memory) that a
function works on: `int` and `uint` stand for 8, 16, 32 and 64 bits, `fp8` for all five formats,
`any` for all types; "-" means that it works on none.
"""

_GROUPS = {
    "any": tuple(DTYPES),
    "int": ("i8", "i16", "i32", "i64"),
    "uint": ("u8", "u16", "u32", "u64"),
    "fp8": tuple(name for name in DTYPES if name.startswith("fp8")),
}


def _function(name: str) -> Any:
    value = getattr(tl, name)
    return value.fn if isinstance(value, KernelFunction) else value


def names_of_page() -> dict[str, list[str]]:
    """The functions by the module that they are written in, sections of the page."""
    sections: dict[str, list[str]] = {}
    for name in CALLS:
        sections.setdefault(_function(name).__module__, []).append(name)
    return sections


def types_cell(call: str) -> str:
    """The types that a call takes, in words."""
    if not is_typed(call):
        return "-"
    left, words = list(accepted(call)), []
    for word, group in _GROUPS.items():
        if set(group) <= set(left):
            words.append(word)
            left = [name for name in left if name not in group]
    return " ".join([*words, *left]) or "none"


def fixed_cells(name: str, function: Any) -> tuple[str, str]:
    """The signature of a function, and the first sentence of its docstring."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        ) + parameter.name
        if parameter.default is not parameter.empty:
            text += f"={_shown(parameter.default)}"
        parameters.append(text)
    sentence = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    return f"`{name}({', '.join(parameters)})`", sentence.replace("|", "\\|")


def _shown(default: Any) -> str:
    value = getattr(default, "value", default) if isinstance(default, tl.constexpr) else default
    if value is tl.PropagateNan.NONE:
        return "NONE"
    return getattr(value, "name", None) or repr(value)


def _section(title: str, text: str, calls: dict[str, str], functions: Any) -> Iterator[str]:
    yield f"\n## {title}\n\n{text}\n\n| function | what it does | types |\n|---|---|---|\n"
    for name, call in calls.items():
        signature, sentence = fixed_cells(name, functions(name))
        where = f" ({WHERE[name]})" if name in WHERE else ""
        yield f"| {signature} | {sentence}{where} | {types_cell(call)} |\n"


def _first_sentence(module: str) -> str:
    import importlib

    found: ModuleType = importlib.import_module(module)
    return " ".join((found.__doc__ or "").split("\n\n")[0].split())


def page() -> str:
    """The whole text."""
    parts = [_INTRODUCTION]
    for module, names in names_of_page().items():
        text = _first_sentence(module)
        title = f"`{module.removeprefix('tilewright.')}`"
        parts += _section(title, text, {n: CALLS[n] for n in names}, _function)
    libdevice = tl.extra.libdevice
    parts += _section(
        "`tl.extra.libdevice`", _first_sentence(libdevice.__name__), LIBDEVICE,
        lambda name: getattr(libdevice, name),
    )  # fmt: skip
    parts += _section(
        "`tl.tensor_descriptor`",
        "Methods of what `tl.make_tensor_descriptor` returns, and the host passes.",
        METHODS,
        lambda name: getattr(tl.tensor_descriptor, name),
    )
    for module, names in OF_MACHINES.items():
        owner = operator.attrgetter(module)(tl)
        parts.append(f"\n## `tl.{module}`\n\n{_first_sentence(owner.__name__)}\n\n")
        parts.append("| function | what it does | where |\n|---|---|---|\n")
        for name, where in names.items():
            signature, sentence = fixed_cells(name, getattr(owner, name))
            parts.append(f"| {signature} | {sentence} | {where} |\n")
    members = [name for name in dir(tl.tensor) if not name.startswith("_")]
    parts.append("\n## `tl.tensor`\n\nAttributes, and functions as methods: ")
    parts.append(f"{', '.join(f'`{name}`' for name in members)}.\n")
    parts.append("\n## What is no operation\n\n")
    for kind, names in NOT_CALLED.items():
        parts.append(f"- {kind.capitalize()}: {', '.join(f'`tl.{name}`' for name in names)}.\n")
    return "".join(parts)
