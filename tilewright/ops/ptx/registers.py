"""How the elements of tiles lie in the registers that the constraints of inline assembly name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import CompileError, Location
from tilewright.ir.types import ElementType

__all__ = ["Registers", "Signature", "read_constraints"]

# Of a constraint: the bits of the register. PTX has none of 8.
_BITS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
_WORD_BITS = 32
_CHANGED = re.compile(r"~\{\w+\}")


@dataclass(frozen=True)
class Signature:
    """What goes into a piece of assembly and comes out of it, for `pack` elements at a time."""

    constraints: str
    results: tuple[ElementType, ...]
    arguments: tuple[ElementType, ...]
    pack: int
    location: Location | None


@dataclass(frozen=True)
class Registers:
    """How elements lie in registers: `count` of one kind, named by `letter`, for `pack` of them."""

    element: ElementType
    letter: str
    count: int
    pack: int

    @property
    def bits(self) -> int:
        """The bits of each register."""
        return _BITS[self.letter]

    @property
    def element_bits(self) -> int:
        """The bits that an element takes: a pointer is a number, a bool a byte."""
        return self.element.storage_bits


def read_constraints(signature: Signature) -> tuple[list[Registers], list[Registers]]:
    """Return the registers of each result and each argument."""
    constraints = [c.strip() for c in signature.constraints.split(",") if c.strip()]
    written = [c.lstrip("=&") for c in constraints if c.startswith("=")]
    changed = [c for c in constraints if c.startswith("~")]
    read = [c for c in constraints if not c.startswith(("=", "~"))]
    first, last = len(written), len(constraints) - len(changed)
    if not all(c.startswith("=") for c in constraints[:first]) or constraints[last:] != changed:
        raise _mismatch(signature, "results come first, then arguments, then what is changed")
    if not all(_CHANGED.fullmatch(c) for c in changed):
        raise _mismatch(signature, "what is changed is not named as ~{memory}")
    if any(c not in _BITS for c in written):
        raise _mismatch(signature, f"results lie in registers {', '.join(_BITS)}")
    # A digit stands for the register of an output.
    read = [written[int(c)] if c.isdigit() and int(c) < len(written) else c for c in read]
    outputs = _take(signature, written, signature.results, "results")
    inputs = _take(signature, read, signature.arguments, "arguments")
    return outputs, inputs


def _take(
    signature: Signature, letters: Sequence[str], elements: Sequence[ElementType], what: str
) -> list[Registers]:
    taken, used, pack = [], 0, signature.pack
    for element in elements:
        letter = letters[used] if used < len(letters) else ""
        bits = element.storage_bits
        register = _BITS.get(letter, 0)
        if not register or register < min(bits, _WORD_BITS) or register > max(bits, _WORD_BITS):
            raise _mismatch(signature, f"{element} cannot lie in a register {letter!r}")
        count = max(1, pack * bits // register)
        if letters[used : used + count] != [letter] * count:
            raise _mismatch(signature, f"{pack} of {element} take {count} registers {letter!r}")
        taken.append(Registers(element, letter, count, pack))
        used += count
    if used != len(letters):
        raise _mismatch(signature, f"the {what} take {used} registers, {len(letters)} are named")
    return taken


def _mismatch(signature: Signature, message: str) -> CompileError:
    return CompileError(
        f"inline_asm_elementwise: {message} in the constraints {signature.constraints!r}",
        location=signature.location,
        hint="name a register for each result, then for each argument; elements of less than 32 "
        "bits share one, as many of the `pack` as it holds",
    )
