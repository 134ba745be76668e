"""What PTX has for diagnostics: a barrier that tells of a flag, and the driver's `vprintf`."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code
from tilewright.codegen.printing import constant_line

__all__ = ["DiagnosticInstructions"]


class DiagnosticInstructions:
    """Writes them for any NVIDIA architecture."""

    code: Code

    def any_thread(self, flag: str) -> str:
        name = "llvm.nvvm.barrier.cta.red.or.aligned.all"
        return self.code.call("i1", name, f"i32 0, i1 {flag}")

    def print_line(self, line: str, arguments: Sequence[str]) -> None:
        code = self.code
        text = constant_line(code, line, "addrspace(1) ")
        kinds = [argument.split()[0] for argument in arguments]
        packed = f"{{ {', '.join(kinds)} }}"
        place = code.alloca(packed)
        for i, argument in enumerate(arguments):
            field = f"getelementptr inbounds {packed}, ptr {place}, i32 0, i32 {i}"
            code.line(f"store {argument}, ptr {code.assign(field)}")
        generic = code.assign(f"addrspacecast ptr addrspace(1) {text} to ptr")
        code.declarations["vprintf"] = "declare i32 @vprintf(ptr, ptr)"
        code.assign(f"call i32 @vprintf(ptr {generic}, ptr {place})")
