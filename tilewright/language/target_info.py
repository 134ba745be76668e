"""`tl.target_info`: what a kernel is being compiled for, so that it can choose another way there.

In kernels all answers are compile-time constants. Host code is told what kernels run on where it
has not chosen: the emulated GPU of the moment, else the first GPU, else the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.frontend.builtin import builtin
from tilewright.frontend.context import compiled_for, is_inside
from tilewright.target import GPUTarget, NvidiaTarget

__all__ = [
    "answer_hosts", "cuda_capability_geq", "current_target", "is_cuda", "is_hip",
    "is_hip_cdna3", "is_hip_cdna4", "is_hip_gfx1250",
]  # fmt: skip


_hosts_ask: list[Callable[[], NvidiaTarget | None]] = []


def answer_hosts(answer: Callable[[], NvidiaTarget | None]) -> None:
    """Let a function answer outside of kernels: it returns the GPU, None for the CPU."""
    _hosts_ask[:] = [answer]


def _gpu() -> NvidiaTarget | None:
    if is_inside() or not _hosts_ask:
        return compiled_for()
    return _hosts_ask[0]()


@builtin
def current_target() -> GPUTarget:
    """Return what the kernel is compiled for: its `backend` is `"cuda"` or `"cpu"`.

    >>> tl.target_info.current_target().backend
    'cpu'
    """
    return GPUTarget.of(_gpu())


@builtin
def is_cuda() -> bool:
    """Return whether the kernel is compiled for an NVIDIA GPU, real or emulated.

    >>> tl.target_info.is_cuda()
    False
    """
    return _gpu() is not None


@builtin
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Return whether that is one with this compute capability or a later one.

    >>> tl.target_info.cuda_capability_geq(9)
    False
    """
    target = _gpu()
    return target is not None and target.compute_capability >= (major, minor)


@builtin
def is_hip() -> bool:
    """Return False: there is no code generator for AMD's GPUs. The others do so, too."""
    return False


@builtin
def is_hip_cdna3() -> bool:
    """Return False."""
    return False


@builtin
def is_hip_cdna4() -> bool:
    """Return False."""
    return False


@builtin
def is_hip_gfx1250() -> bool:
    """Return False."""
    return False
