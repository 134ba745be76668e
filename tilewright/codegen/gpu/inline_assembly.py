"""The user's inline assembly: elements packed into the registers that its constraints ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.words import from_words, to_words
from tilewright.ir.core import Value
from tilewright.layout import distinct_registers
from tilewright.ops.ptx import read_constraints

__all__ = ["AssemblyMachine", "write_assembly"]


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


def write_assembly(
    puller: Puller, placement: Placement, machine: AssemblyMachine, op: ops.InlineAssembly
) -> None:
    """Write the assembly for all elements that a thread holds; results live in registers."""
    outputs, inputs = read_constraints(op.signature)
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
