"""Kernels that launch by their remembered launchers, without a look at anything else."""

from __future__ import annotations

import weakref
from typing import Any

from tilewright.locks import Lock

__all__ = ["forget_launchers", "note_remembering", "remembering"]

_kernels: weakref.WeakSet[Any] = weakref.WeakSet()


# Taken again by its owner, since what frees memory may call a hook of the user's, who launches.
_remembering = Lock()


def remembering() -> Lock:
    """Return what a launch holds from its last look around until it has remembered its launcher.

    So does whoever adds something around launches and has launchers forgotten.
    """
    return _remembering


def note_remembering(kernel: Any) -> None:
    """Note that a kernel launches by its remembered launchers from now on."""
    _kernels.add(kernel)


def forget_launchers() -> None:
    """Let the next launch of every kernel see what has been changed around it until now."""
    with remembering():
        for kernel in list(_kernels):
            kernel.recent = ()
        _kernels.clear()
