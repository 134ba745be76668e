"""`tl.target_info`: what a kernel is being compiled for, so that it can choose another way there.

All answers are compile-time constants. Outside of kernels there is no answer: a kernel runs where
its arrays are.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.frontend.builtin import builtin
from tilewright.frontend.context import compiled_for, current

__all__ = [
    "Target", "cuda_capability_geq", "current_target", "is_cuda", "is_hip", "is_hip_cdna3",
    "is_hip_cdna4",
]  # fmt: skip


class Target(NamedTuple):
    """An NVIDIA GPU: `arch` is its compute capability, 90 for 9.0."""

    backend: str
    arch: int
    warp_size: int


@builtin
def current_target() -> Target | None:
    """Return the NVIDIA GPU that the kernel is compiled for, None where it is for none.

    Raises `CompileError` outside of kernels.

    >>> tl.target_info.current_target() is None
    True
    """
    current()  # raises outside
    target = compiled_for()
    if target is None:
        return None
    major, minor = target.compute_capability
    return Target("cuda", 10 * major + minor, target.warp_size)


@builtin
def is_cuda() -> bool:
    """Return whether the kernel is compiled for an NVIDIA GPU, real or emulated.

    >>> tl.target_info.is_cuda()
    False
    """
    return current_target() is not None


@builtin
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Return whether that is one with this compute capability or a later one.

    >>> tl.target_info.cuda_capability_geq(9)
    False
    """
    target = current_target()
    return target is not None and target.arch >= 10 * major + minor


@builtin
def is_hip() -> bool:
    """Return False: there is no code generator for AMD's GPUs. The next two do so, too."""
    return False


@builtin
def is_hip_cdna3() -> bool:
    """Return False."""
    return False


@builtin
def is_hip_cdna4() -> bool:
    """Return False."""
    return False
