"""Kernels on a GPU as the user sees them: what a launch returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.locks import cached_property
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.gpu_code import GpuCode
from tilewright.runtime.launchable import LaunchableKernel
from tilewright.runtime.stages import gpu_stages
from tilewright.target import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import gpu_build
else:
    gpu_build = Deferred("tilewright.runtime.gpu_build")

__all__ = ["GpuKernel"]


class GpuKernel(LaunchableKernel):
    """A kernel compiled for one set of types, constants and options, on one GPU.

    `compiled[grid](*arguments)` launches it, on arguments of just these types and constants. `asm`
    has its tile IR as it is written (`"source"`) and optimised (`"tir"`), LLVM IR (`"llir"`), PTX
    (`"ptx"`) and, where it was made beforehand and not by the driver while loading, machine code
    (`"cubin"`, bytes) and what `nvdisasm` makes of it (`"sass"`). `n_regs` is the number of
    registers of a thread, `n_spills` the bytes of them that spill to memory.
    """

    def __init__(self, code: GpuCode, options: Mapping[str, Any]) -> None:
        super().__init__(code, options)
        self.code = code

    @property
    def asm(self) -> Mapping[str, Any]:
        """The stages; machine code that the driver has not taken is none of them."""
        code = self.code
        return gpu_stages(code.request, lambda: self._llvm_ir, code.ptx, code.cubin)

    @cached_property
    def _llvm_ir(self) -> str:
        return gpu_build.lower_for_gpu(self.code.request).kernel.llvm_ir

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} {self.hash[:12]} on GPU {self.code.gpu.number}>"

    @property
    def n_regs(self) -> int:
        return self.code.function.registers

    @property
    def n_spills(self) -> int:
        return self.code.function.local_bytes

    @property
    def n_max_threads(self) -> int:
        """How many threads a block may have, given their registers."""
        return self.code.function.most_threads

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "target": GPUTarget.of(self.code.gpu.target),
            "shared": self.code.shared_bytes,
        }

    @property
    def kernel(self) -> bytes:
        return self.code.cubin or self.code.ptx.encode()
