"""Machine code by the driver's linker, where there is no `ptxas`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.nvidia.assembler import SLOWER
from tilewright.codegen.nvidia.compile import PtxKernel
from tilewright.codegen.nvidia.occupancy import assemble_for_more_blocks
from tilewright.locks import cached_property
from tilewright.runtime.cuda import Device, Function, Module, link
from tilewright.runtime.cuda_errors import CudaError

__all__ = ["Linked", "linked"]


@dataclass(frozen=True)
class Linked:
    """What the linker makes of the PTX of a kernel. Only loaded code tells what a thread takes."""

    gpu: Device
    kernel: PtxKernel
    ptx: str
    cubin: bytes
    warnings: tuple[str, ...]

    @property
    def registers(self) -> int:
        """How many registers a thread takes."""
        return self._function.registers

    @property
    def stack_bytes(self) -> int:
        """How many bytes of local memory it takes."""
        return self._function.local_bytes

    @cached_property
    def _function(self) -> Function:
        kernel = self.kernel
        module = Module(self.gpu, self.cubin, kernel.symbol)
        return module.function(kernel.symbol, kernel.symbol, kernel.shared_bytes)


def linked(gpu: Device, kernel: PtxKernel, name: str) -> Linked | None:
    """Return what the driver's linker makes of PTX, None where that would be worse than loading it.

    The linker takes the PTX for a part of a program, in which registers cannot be handed from warp
    to warp. What the driver does when it loads PTX is not worse, but it does not give it away.
    """
    if "setmaxnreg" in kernel.ptx:
        return None

    def make(ptx: str) -> Linked:
        cubin, log = link(gpu, ptx, name)
        return Linked(gpu, kernel, ptx, cubin, tuple(SLOWER.findall(log)))

    try:
        made = assemble_for_more_blocks(kernel, gpu.target, make)
    except CudaError:
        return None  # loading the PTX tells what is wrong
    return None if made.warnings else made
