"""Kernels on a GPU as the user sees them: what a launch returns."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.deferred import Deferred
from tilewright.runtime.gpu_code import GpuCode
from tilewright.runtime.launchable import LaunchableKernel

if TYPE_CHECKING:
    from tilewright.ir import printer
    from tilewright.runtime import build, gpu_build
else:
    printer = Deferred("tilewright.ir.printer")
    build = Deferred("tilewright.runtime.build")
    gpu_build = Deferred("tilewright.runtime.gpu_build")

__all__ = ["GpuKernel"]


class _Stages(Mapping[str, Any]):
    """The text of each stage; what is not kept is made when it is asked for."""

    def __init__(self, code: GpuCode) -> None:
        self._code = code

    def __getitem__(self, stage: str) -> Any:
        code = self._code
        match stage:
            case "tir":
                return printer.to_text(build.tile_ir(code.request))
            case "llir":
                return self._llvm_ir
            case "ptx":
                return code.ptx
            case "cubin" if code.cubin is not None:
                return code.cubin
        raise KeyError(f"{stage!r}: the stages are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        cubin = () if self._code.cubin is None else ("cubin",)
        return iter(("tir", "llir", "ptx", *cubin))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @functools.cached_property
    def _llvm_ir(self) -> str:
        return gpu_build.lower_for_gpu(self._code.request).kernel.llvm_ir


class GpuKernel(LaunchableKernel):
    """A kernel compiled for one set of types, constants and options, on one GPU.

    `compiled[grid](*arguments)` launches it, on arguments of just these types and constants. `asm`
    has its tile IR (`"tir"`), LLVM IR (`"llir"`), PTX (`"ptx"`) and, where it was made beforehand
    and not by the driver while loading, machine code (`"cubin"`, bytes). `n_regs` is the number of
    registers of a thread, `n_spills` the bytes of them that spill to memory.
    """

    def __init__(self, code: GpuCode, options: Mapping[str, Any]) -> None:
        super().__init__(code, options)
        self.code = code
        self.asm: Mapping[str, Any] = _Stages(code)

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
        target = self.code.gpu.target.architecture
        return {"target": target, "shared": self.code.shared_bytes}
