"""What a kernel is compiled for on a GPU: an architecture, and options that change the code."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.toolkit import assembler_version
from tilewright.runtime.cuda import Device, driver
from tilewright.target import NvidiaTarget

__all__ = ["GpuTarget"]


class GpuTarget(NamedTuple):
    """An architecture, how kernels are compiled for it, and a GPU of this process that runs them.

    Without a GPU, kernels are only compiled: no driver is needed.
    """

    architecture: NvidiaTarget
    options: GpuOptions
    gpu: Device | None = None

    @property
    def fingerprint(self) -> str:
        """A text that differs where generated code may differ: a part of cache keys."""
        linker = "none" if self.gpu is None else driver().build
        assemblers = f"ptxas={assembler_version()};driver={linker}"
        return f"{self.architecture.fingerprint};{assemblers};{self.options}"
