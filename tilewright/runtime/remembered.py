"""Kernels that launch by their remembered launchers, without a look at anything else."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["forget_launchers", "note_remembering", "remembering"]

_kernels: weakref.WeakSet[Any] = weakref.WeakSet()


class _State:
    """Reentrant, since what frees memory may call a hook of the user's, who launches in it."""

    lock = threading.RLock()


def remembering() -> threading.RLock:
    """Return what a launch holds from its last look around until it has remembered its launcher.

    So does whoever adds something around launches and has launchers forgotten.
    """
    return _State.lock


def note_remembering(kernel: Any) -> None:
    """Note that a kernel launches by its remembered launchers from now on."""
    _kernels.add(kernel)


def forget_launchers() -> None:
    """Let the next launch of every kernel see what has been changed around it until now."""
    with remembering():
        for kernel in list(_kernels):
            kernel.recent = ()
        _kernels.clear()


def _after_fork_in_child() -> None:
    # Another thread may have held the lock.
    _State.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
