"""Inline assembly that the user has written, with LLVM's constraints."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.nvidia.assembly import PURE, TOGETHER_WRITES, Assembly

__all__ = ["UserAssembly"]

# Of a register of the user's assembly: the type of what it holds, and of its bits.
_REGISTERS = {
    "h": ("i16", "i16"),
    "r": ("i32", "i32"),
    "f": ("float", "i32"),
    "l": ("i64", "i64"),
    "d": ("double", "i64"),
}


class UserAssembly(Assembly):
    """Writes assembly from elsewhere."""

    def users_assembly(
        self,
        text: str,
        constraints: str,
        outputs: Sequence[str],
        words: Sequence[tuple[str, str]],
        *,
        is_pure: bool,
    ) -> list[str]:
        code = self.code
        arguments = []
        for word, letter in words:
            kind, integer = _REGISTERS[letter]
            value = word if kind == integer else code.assign(f"bitcast {integer} {word} to {kind}")
            arguments.append(f"{kind} {value}")
        kinds = [_REGISTERS[letter] for letter in outputs]
        returned = {0: "void", 1: kinds[0][0] if kinds else ""}.get(
            len(kinds), f"{{ {', '.join(kind for kind, _ in kinds)} }}"
        )
        names = ",".join(c.strip() for c in constraints.split(",") if c.strip())
        call = (
            f'call {returned} asm {"" if is_pure else "sideeffect "}"{_escaped(text)}", "{names}"'
            f"({', '.join(arguments)}) {PURE if is_pure else TOGETHER_WRITES}"
        )
        if not kinds:
            code.line(call)
            return []
        whole = code.assign(call)
        results = []
        for number, (kind, integer) in enumerate(kinds):
            value = whole
            if len(kinds) > 1:
                value = code.assign(f"extractvalue {returned} {whole}, {number}")
            if kind != integer:
                value = code.assign(f"bitcast {kind} {value} to {integer}")
            results.append(value)
        return results


def _escaped(text: str) -> str:
    """Return text as it stands between quotes in LLVM's text."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:02X}"
        for byte in text.encode()
    )
