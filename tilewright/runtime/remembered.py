"""Kernels that launch by their remembered launchers, without a look at anything else."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["forget_launchers", "remembers"]

_remembering: weakref.WeakSet[Any] = weakref.WeakSet()


def remembers(kernel: Any) -> None:
    """Note that a kernel launches by its remembered launchers from now on."""
    _remembering.add(kernel)


def forget_launchers() -> None:
    """Let the next launch of every kernel see what has changed around it."""
    for kernel in list(_remembering):
        kernel.recent = ()
    _remembering.clear()
