"""`atom` and `red` (PTX ISA, "Parallel Synchronization and Communication Instructions")."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.nvidia.assembly import WRITES, Assembly
from tilewright.target import NvidiaTarget

__all__ = ["AtomicInstructions"]

_LETTERS = {16: "h", 32: "r", 64: "l"}
_ADDITIONS = {"fp16": "add.noftz.f16", "fp32": "add.f32", "fp64": "add.f64"}


class AtomicInstructions(Assembly):
    """Writes atomic instructions on the user's memory."""

    target: NvidiaTarget

    def atomic_name(self, kind: str, element: str, bits: int) -> str:
        if kind == "xchg":
            return f"exch.b{bits}" if bits >= 32 else ""
        if element in {"fp16", "fp32", "fp64", "bf16"}:
            if element == "bf16" and kind == "add" and self.target.compute_capability >= (9, 0):
                return "add.noftz.bf16"
            return _ADDITIONS.get(element, "") if kind == "add" else ""
        if bits < 32:
            return ""
        if kind == "add":
            return f"add.u{bits}"
        if kind in {"min", "max"}:
            return f"{kind}.{'s' if element.startswith('i') else 'u'}{bits}"
        return f"{kind}.b{bits}"

    def vector_of_atomics(self, name: str, count: int) -> str:
        operation, _, kind = name.rpartition(".")
        if kind == "f32":
            return f"{operation}.v{count}.f32" if count > 1 else name
        vector = f"v{count // 2}." if count > 2 else ""
        return f"{operation}.{vector}{kind}x2" if count > 1 else name

    def atomic(
        self,
        name: str,
        order: tuple[str, str],
        address: str,
        operands: Sequence[Sequence[str]],
        bits: int,
        flag: str | None,
        *,
        returns: bool,
    ) -> str:
        letter, kind = _LETTERS[bits], f"i{bits}"
        returns = returns or name.startswith(("exch", "cas"))  # there are no others of these
        words = [word for operand in operands for word in operand]
        first = 1 if returns else 0
        given, place = [], first + 1
        for operand in operands:
            names = [f"${place + i}" for i in range(len(operand))]
            place += len(operand)
            given.append(names[0] if len(names) == 1 else f"{{{', '.join(names)}}}")
        guard = f"@${place} " if flag is not None else ""
        opcode, result = ("atom", "$0, ") if returns else ("red", "")
        text = (
            f"{guard}{opcode}.{'.'.join(order)}.global.{name} "
            f"{result}[${first}], {', '.join(given)};"
        )
        constraints = [f"={letter}"] if returns else []
        constraints += ["l", *[letter] * len(words)]
        arguments = [f"ptr addrspace(1) {address}", *(f"{kind} {word}" for word in words)]
        if flag is not None:
            constraints.append("b")
            arguments.append(f"i1 {flag}")
            if returns:
                constraints.append("0")
                arguments.append(f"{kind} 0")
        constraints.append("~{memory}")
        found = self.assembly(text, constraints, arguments, kind, int(returns), WRITES)
        return found[0] if found else ""
