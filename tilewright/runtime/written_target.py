"""`GPUTarget`: what to compile for, written down."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.errors import Unsupported
from tilewright.runtime.gpu_target import GpuTarget
from tilewright.target import NVIDIA_CAPABILITIES, NvidiaTarget, nvidia_target

__all__ = ["GPUTarget"]

_SUPPORTED = f"those with {NVIDIA_CAPABILITIES} are supported"


@dataclass(frozen=True)
class GPUTarget:
    """A kind of machine: `backend` is `"cuda"` or `"cpu"`, `arch` a compute capability (90: 9.0).

    >>> GPUTarget("cuda", 90, 32).backend
    'cuda'
    """

    backend: str
    arch: int | str
    warp_size: int

    @classmethod
    def of(cls, target: NvidiaTarget) -> GPUTarget:
        """Return an architecture written down."""
        major, minor = target.compute_capability
        return cls("cuda", 10 * major + minor, target.warp_size)

    def with_options(self, options: GpuOptions) -> GpuTarget | None:
        """Return what requests are made for, None for this machine's CPU.

        Raises `Unsupported` for a machine that kernels are not compiled for.
        """
        if self.backend == "cpu":
            return None
        if self.backend != "cuda":
            raise Unsupported(f"there is no backend {self.backend!r}", hint='"cuda" or "cpu"')
        number = int(str(self.arch).removeprefix("sm_").rstrip("af"))
        architecture = nvidia_target(*divmod(number, 10))
        if architecture is None:
            raise Unsupported(
                f"there is no target for compute capability {self.arch}", hint=_SUPPORTED
            )
        return GpuTarget(architecture, options)
