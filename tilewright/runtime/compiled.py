"""Compiled kernels as the user sees them: what a launch returns."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.deferred import Deferred
from tilewright.runtime.host import host
from tilewright.runtime.launchable import LaunchableKernel
from tilewright.runtime.machine_code import MachineCode

if TYPE_CHECKING:
    from tilewright.codegen import llvm
    from tilewright.ir import printer
    from tilewright.runtime import build
else:
    llvm = Deferred("tilewright.codegen.llvm")
    printer = Deferred("tilewright.ir.printer")
    build = Deferred("tilewright.runtime.build")

__all__ = ["CompiledKernel"]


class _Stages(Mapping[str, Any]):
    """The text of each stage, made when it is asked for."""

    def __init__(self, code: MachineCode) -> None:
        self._code = code

    def __getitem__(self, stage: str) -> Any:
        match stage:
            case "tir":
                return self._tile_ir
            case "llir":
                return self._llvm_ir
            case "optimized":
                return llvm.optimized_ir(self._llvm_ir, host=host())
            case "asm":
                return llvm.assembly(self._llvm_ir, host=host())
            case "object":
                return llvm.compile_to_object(self._llvm_ir, host=host())
        raise KeyError(f"{stage!r}: the stages are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(("tir", "llir", "optimized", "asm", "object"))

    def __len__(self) -> int:
        return 5

    @property
    def _tile_ir(self) -> str:
        return printer.to_text(build.tile_ir(self._code.request))

    @functools.cached_property
    def _llvm_ir(self) -> str:
        return build.lower(self._code.request).llvm_ir


class CompiledKernel(LaunchableKernel):
    """A kernel compiled for one set of types and constants; what `kernel[grid](...)` returns.

    `compiled[grid](*arguments)` launches it, on arguments of just these types and constants. `asm`
    has its tile IR (`"tir"`), LLVM IR (`"llir"`), the same after LLVM's optimiser
    (`"optimized"`), assembly (`"asm"`) and object (`"object"`, bytes).
    """

    def __init__(self, code: MachineCode, options: Mapping[str, Any]) -> None:
        super().__init__(code, options)
        self.code = code
        self.asm: Mapping[str, Any] = _Stages(code)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} {self.hash[:12]}>"

    @property
    def facts(self) -> dict[str, Any]:
        return {"target": host().cpu, "shared": 0, "scratch_bytes": self.code.scratch_bytes}
