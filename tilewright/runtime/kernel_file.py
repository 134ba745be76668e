"""Kernels of a file that is named on the command line."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from tilewright.errors import LaunchError
from tilewright.frontend.function import KernelFunction

__all__ = ["kernel_in_file"]


def kernel_in_file(path: Path, name: str) -> KernelFunction:
    """Run a file as a module, and return the kernel of this name, without what decorates it.

    What lies beside the file can be imported in it. Raises `LaunchError` where it defines no such
    kernel, or is not there.
    """
    if not path.is_file():
        raise LaunchError(
            f"there is no file {path}", hint="the path is taken from the current directory"
        )
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    kernels = {key: _undecorated(value) for key, value in runpy.run_path(str(path)).items()}
    kernel = kernels.get(name)
    if isinstance(kernel, KernelFunction):
        return kernel
    known = [f"`{key}`" for key, value in kernels.items() if isinstance(value, KernelFunction)]
    raise LaunchError(
        f"{path} defines no kernel `{name}`",
        hint=f"it defines {', '.join(known)}" if known else "decorate it with @tilewright.jit",
    )


def _undecorated(value: Any) -> Any:
    while not isinstance(value, KernelFunction) and hasattr(value, "fn"):
        value = value.fn
    return value
