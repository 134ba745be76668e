"""The text of inline assembly, taken apart into instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.errors import CompileError

__all__ = ["Instruction", "Literal", "Name", "Operand", "Vector", "check_dollars", "parse"]


@dataclass(frozen=True)
class Name:
    """A register: `$0`, `$1`, ... are those of the constraints, `_` drops what is written."""

    text: str


@dataclass(frozen=True)
class Literal:
    """A number, or the bits of one (`0f3F800000`)."""

    value: int | float
    is_bits: bool = False


@dataclass(frozen=True)
class Vector:
    """Several registers in braces, the lowest bits first."""

    items: tuple[Operand, ...]


Operand = Name | Literal | Vector


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode.modifiers operands`; the guard is a predicate and whether it is negated."""

    text: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Name, bool] | None = None

    def has(self, *modifiers: str) -> bool:
        """Whether one of the modifiers is there."""
        return any(m in self.modifiers for m in modifiers)

    @property
    def kind(self) -> str:
        """The last modifier: the type of the operands."""
        return self.modifiers[-1] if self.modifiers else ""


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_GUARD = re.compile(r"@(!?) ?(\S+) (.*)")
_OPERAND = re.compile(r"\{[^}]*\}|[^,{}]+")
_BITS = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)[uU]?")
_FLOAT = re.compile(r"-?\d*\.\d*([eE][-+]?\d+)?|-?\d+[eE][-+]?\d+")
# What LLVM reads after a dollar sign: a register, a choice between dialects, a number that no other
# place has, or another dollar sign.
_DOLLAR = re.compile(r"\$(?:(\d+)|\{(\d+)(?::r)?\}|[$(|)]|\{:(?:uid|comment|private)\})")
_NAME = re.compile(r"[$%\w.]+")


def parse(text: str) -> list[Instruction]:
    """Return the instructions; declarations, and the braces of blocks, say nothing."""
    found = []
    for statement in _COMMENT.sub(" ", text).replace("$$", "$").split(";"):
        stripped = statement.strip().lstrip("{} \t\n")
        if stripped and not stripped.startswith(".reg"):
            found.append(_instruction(" ".join(stripped.split())))
    return found


def check_dollars(text: str, count: int) -> None:
    """Raise `CompileError` where a dollar sign names none of so many registers: LLVM would exit."""
    rest = _DOLLAR.sub(
        lambda found: "" if int(found[1] or found[2] or 0) < count else found[0], text
    )
    wrong = re.search(r"\$\{?[\w:]*\}?", rest)
    if wrong is not None:
        there = f"$0 to ${count - 1}" if count else "none"
        raise CompileError(
            f"inline_asm_elementwise: `{wrong[0]}` in the assembly is no register, the constraints "
            f"name {there}",
            hint="write $$ for a dollar sign",
        )


def _instruction(text: str) -> Instruction:
    guard, rest = None, text
    match = _GUARD.fullmatch(text)
    if match is not None:
        guard, rest = (Name(match[2]), match[1] == "!"), match[3]
    head, _, tail = rest.partition(" ")
    opcode, *modifiers = head.split(".")
    operands = tuple(_operand(item.strip()) for item in _OPERAND.findall(tail) if item.strip())
    return Instruction(text, opcode, tuple(modifiers), operands, guard)


def _operand(text: str) -> Operand:
    if text.startswith("{"):
        return Vector(tuple(_operand(item.strip()) for item in text[1:-1].split(",")))
    if _BITS.fullmatch(text):
        return Literal(int(text[2:], 16), is_bits=True)  # noqa: FURB166 - `0f`, not `0x`
    if _INTEGER.fullmatch(text):
        return Literal(int(text.rstrip("uU"), 0))
    if _FLOAT.fullmatch(text):
        return Literal(float(text))
    if _NAME.fullmatch(text):
        return Name(text)
    raise CompileError(
        f"inline_asm_elementwise: {text!r} is no register and no number",
        hint="operands are registers ($0, or declared by .reg), numbers, and {...} of these",
    )
