"""Compiled kernels as the user sees them: what a launch returns."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.deferred import Deferred
from tilewright.runtime.host import host
from tilewright.runtime.launchable import LaunchableKernel
from tilewright.runtime.machine_code import MachineCode
from tilewright.runtime.stages import Stages, tile_stages
from tilewright.target import GPUTarget

if TYPE_CHECKING:
    from tilewright.codegen import llvm
    from tilewright.runtime import build
else:
    llvm = Deferred("tilewright.codegen.llvm")
    build = Deferred("tilewright.runtime.build")

__all__ = ["CompiledKernel"]


def _stages(code: MachineCode) -> Stages:
    llvm_ir = functools.cache(lambda: build.lower(code.request).llvm_ir)
    return Stages(
        {
            **tile_stages(code.request),
            "llir": llvm_ir,
            "optimized": lambda: llvm.optimized_ir(llvm_ir(), host=host()),
            "asm": lambda: llvm.assembly(llvm_ir(), host=host()),
            "object": lambda: llvm.compile_to_object(llvm_ir(), host=host()),
        }
    )


class CompiledKernel(LaunchableKernel):
    """A kernel compiled for one set of types and constants; what `kernel[grid](...)` returns.

    `compiled[grid](*arguments)` launches it, on arguments of just these types and constants. `asm`
    has its tile IR as it is written (`"source"`) and optimised (`"tir"`), LLVM IR (`"llir"`), the
    same after LLVM's optimiser (`"optimized"`), assembly (`"asm"`) and object (`"object"`, bytes).
    """

    def __init__(self, code: MachineCode, options: Mapping[str, Any]) -> None:
        super().__init__(code, options)
        self.code = code
        self.asm: Mapping[str, Any] = _stages(code)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} {self.hash[:12]}>"

    @property
    def facts(self) -> dict[str, Any]:
        target = GPUTarget.of(None)
        return {"target": target, "shared": 0, "scratch_bytes": self.code.scratch_bytes}

    @property
    def kernel(self) -> bytes:
        return bytes(self.asm["object"])

    @property
    def n_regs(self) -> None:
        """What a thread of a GPU takes; None, as `n_spills` and `n_max_threads` are."""

    n_spills = n_max_threads = n_regs
