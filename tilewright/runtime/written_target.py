"""Targets that are written down (`GPUTarget`), as what requests are made for."""

from __future__ import annotations

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.errors import Unsupported
from tilewright.runtime.gpu_target import GpuTarget
from tilewright.target import NVIDIA_CAPABILITIES, GPUTarget, nvidia_target

__all__ = ["with_options"]

_SUPPORTED = f"those with {NVIDIA_CAPABILITIES} are supported"


def with_options(target: GPUTarget, options: GpuOptions) -> GpuTarget | None:
    """Return what requests are made for, None for this machine's CPU.

    Raises `Unsupported` for a machine that kernels are not compiled for.
    """
    if target.backend == "cpu":
        return None
    if target.backend != "cuda":
        raise Unsupported(f"there is no backend {target.backend!r}", hint='"cuda" or "cpu"')
    number = int(str(target.arch).removeprefix("sm_").rstrip("af"))
    architecture = nvidia_target(*divmod(number, 10))
    if architecture is None:
        raise Unsupported(
            f"there is no target for compute capability {target.arch}", hint=_SUPPORTED
        )
    return GpuTarget(architecture, options)
