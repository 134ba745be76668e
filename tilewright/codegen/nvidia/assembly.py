"""Inline assembly in LLVM's text."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code

__all__ = [
    "ATTRIBUTES",
    "PURE",
    "READS",
    "TOGETHER",
    "TOGETHER_WRITES",
    "WRITES",
    "Assembly",
    "listed",
    "structure",
]

READS, WRITES, PURE, TOGETHER, TOGETHER_WRITES = "#1", "#2", "#3", "#4", "#5"  # `ATTRIBUTES`
ATTRIBUTES = """\
attributes #1 = { nounwind memory(read) }
attributes #2 = { nounwind }
attributes #3 = { nounwind memory(none) }
attributes #4 = { nounwind convergent memory(none) }
attributes #5 = { nounwind convergent }
"""


class Assembly:
    """Writes inline assembly."""

    code: Code

    def assembly(
        self,
        text: str,
        constraints: Sequence[str],
        arguments: Sequence[str],
        kind: str,
        results: int,
        attributes: str,
    ) -> list[str]:
        """Write instructions that give `results` values of one type, and return those."""
        returned = "void" if not results else kind if results == 1 else structure(kind, results)
        effect = "sideeffect " if attributes in {WRITES, TOGETHER_WRITES} else ""
        call = (
            f'call {returned} asm {effect}"{text}", "{",".join(constraints)}"'
            f"({', '.join(arguments)}) {attributes}"
        )
        if not results:
            self.code.line(call)
            return []
        return self.fields(self.code.assign(call), returned, results)

    def fields(self, whole: str, kind: str, count: int) -> list[str]:
        """Return the fields of a structure; one value is none."""
        if count == 1:
            return [whole]
        return [self.code.assign(f"extractvalue {kind} {whole}, {i}") for i in range(count)]


def listed(start: int, count: int) -> str:
    """Return the operands from `start` on as PTX lists registers: `{$4, $5}`."""
    return f"{{{', '.join(f'${start + i}' for i in range(count))}}}"


def structure(kind: str, count: int) -> str:
    """Return the LLVM type of several values of one type."""
    return f"{{ {', '.join([kind] * count)} }}"
