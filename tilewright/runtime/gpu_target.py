"""What a kernel is compiled for on a GPU: the GPU, and the options that change the code."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.runtime.cuda import Device, driver

__all__ = ["GpuTarget"]


class GpuTarget(NamedTuple):
    """A GPU of this process, and how kernels are compiled for it."""

    gpu: Device
    options: GpuOptions

    @property
    def fingerprint(self) -> str:
        """A text that differs where generated code may differ: a part of cache keys."""
        return f"{self.gpu.target.fingerprint};driver={driver().version};{self.options}"
