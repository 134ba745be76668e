"""The user's inline assembly: elements packed into the registers that its constraints ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.words import WORD_BITS, from_words, moved_bits, to_words
from tilewright.errors import CompileError
from tilewright.ir.core import Value
from tilewright.ir.types import ElementType
from tilewright.layout import distinct_registers

__all__ = ["AssemblyMachine", "write_assembly"]

# Of a constraint: the bits of the register. PTX has none of 8.
_BITS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}


class AssemblyMachine(Protocol):
    """Writes assembly that the user has written."""

    def users_assembly(
        self,
        text: str,
        constraints: str,
        outputs: Sequence[str],
        words: Sequence[tuple[str, str]],
        *,
        is_pure: bool,
    ) -> list[str]:
        """Write instructions; return a word for each of `outputs`, the letters of registers.

        `words` are the inputs, each with its letter.
        """


@dataclass(frozen=True)
class _Registers:
    """How elements lie in registers: `count` of one kind, named by `letter`, for `pack` of them."""

    element: ElementType
    letter: str
    count: int
    pack: int

    @property
    def bits(self) -> int:
        return _BITS[self.letter]


def write_assembly(
    puller: Puller, placement: Placement, machine: AssemblyMachine, op: ops.InlineAssembly
) -> None:
    """Write the assembly for all elements that a thread holds; results live in registers."""
    outputs, inputs = _read_constraints(op)
    tile = next((value for value in (*op.results, *op.args) if value.shape), None)
    layout = None
    if tile is not None:
        layout = placement.of_elements(op.results[0] if op.results else tile)
    registers = (0,) if layout is None else distinct_registers(layout)

    def pull(value: Value, register: int) -> str:
        if layout is None:
            return puller.scalar(value).text
        return puller.pull(value, layout, register).text

    computed: list[dict[int, Element]] = [{} for _ in outputs]
    letters = [out.letter for out in outputs for _ in range(out.count)]
    for first in range(0, len(registers), op.pack):
        group = registers[first : first + op.pack]
        filled = [*group, *[group[-1]] * (op.pack - len(group))]
        words = []
        for value, place in zip(op.args, inputs, strict=True):
            texts = [pull(value, register) for register in filled]
            packed = to_words(puller.code, texts, place.element, place.bits)
            words += [(word, place.letter) for word in packed]
        results = machine.users_assembly(
            op.assembly, op.constraints, letters, words, is_pure=op.is_pure
        )
        for out, known in zip(outputs, computed, strict=True):
            own, results = results[: out.count], results[out.count :]
            texts = from_words(puller.code, own, out.element, out.bits, op.pack)
            for register, text in zip(group, texts, strict=False):
                known[register] = Element(text, 1, puller.code.level)
    for result, known in zip(op.results, computed, strict=True):
        if layout is None:
            puller.scalars[result] = known[0]
        else:
            puller.residents[result] = Resident.of(layout, known)


def _read_constraints(op: ops.InlineAssembly) -> tuple[list[_Registers], list[_Registers]]:
    """Return the registers of each result and each argument."""
    constraints = [c.strip() for c in op.constraints.split(",") if c.strip()]
    written = [c.lstrip("=&") for c in constraints if c.startswith("=")]
    read = [c for c in constraints if not c.startswith(("=", "~"))]
    if any(c not in _BITS for c in written):
        raise _mismatch(op, f"results lie in registers {', '.join(_BITS)}")
    # A digit stands for the register of an output.
    read = [written[int(c)] if c.isdigit() and int(c) < len(written) else c for c in read]
    outputs = _take(op, written, [value.type.element for value in op.results], "results")
    inputs = _take(op, read, [value.type.element for value in op.args], "arguments")
    return outputs, inputs


def _take(
    op: ops.InlineAssembly, letters: Sequence[str], elements: Sequence[ElementType], what: str
) -> list[_Registers]:
    taken, used = [], 0
    for element in elements:
        letter = letters[used] if used < len(letters) else ""
        bits = moved_bits(element)
        register = _BITS.get(letter, 0)
        if not register or register < min(bits, WORD_BITS) or register > max(bits, WORD_BITS):
            raise _mismatch(op, f"{element} cannot lie in a register {letter!r}")
        count = max(1, op.pack * bits // register)
        if letters[used : used + count] != [letter] * count:
            raise _mismatch(op, f"{op.pack} of {element} take {count} registers {letter!r}")
        taken.append(_Registers(element, letter, count, op.pack))
        used += count
    if used != len(letters):
        raise _mismatch(op, f"the {what} take {used} registers, {len(letters)} are named")
    return taken


def _mismatch(op: ops.InlineAssembly, message: str) -> CompileError:
    return CompileError(
        f"inline_asm_elementwise: {message} in the constraints {op.constraints!r}",
        location=op.location,
        hint="name a register for each result, then for each argument; elements of less than 32 "
        "bits share one, as many of the `pack` as it holds",
    )
