"""Putting the package `triton` that is Tilewright on the path, and taking it off again.

It is a real package in a directory of its own, since a name in `sys.modules` would not reach the
processes that a program starts: those inherit `PYTHONPATH`, and some of them `sys.path`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tilewright.errors import AliasConflict

__all__ = ["PATH", "install", "is_installed", "uninstall"]

# The directory that is put on the path: the package `triton` and its metadata, nothing else.
PATH = str(Path(__file__).resolve().parent / "path")

_VARIABLE = "PYTHONPATH"


def install() -> None:
    """Let `triton` be Tilewright, here and in processes started from now on.

    Does nothing where it is already. Raises `AliasConflict` where Triton itself has been imported:
    its objects and ours do not mix.

    >>> import tilewright, tilewright.alias
    >>> tilewright.alias.install()
    >>> import triton
    >>> triton.jit is tilewright.jit
    True
    >>> tilewright.alias.uninstall()
    """
    module = sys.modules.get("triton")
    if module is not None and not _is_ours(module):
        raise AliasConflict(
            f"Triton itself has been imported, from {getattr(module, '__file__', None)}",
            hint="install the alias before anything imports triton, or start the program by "
            "`python -m tilewright`",
        )
    if PATH not in sys.path:
        sys.path.insert(0, PATH)
    if PATH not in _inherited():
        os.environ[_VARIABLE] = os.pathsep.join([PATH, *_inherited()])
    _forget_what_was_found()


def uninstall() -> None:
    """Let `triton` be what it was before; objects that were made under that name keep working.

    Does nothing where the alias is not installed.
    """
    sys.path[:] = [entry for entry in sys.path if entry != PATH]
    inherited = [entry for entry in _inherited() if entry != PATH]
    if inherited:
        os.environ[_VARIABLE] = os.pathsep.join(inherited)
    else:
        os.environ.pop(_VARIABLE, None)
    module = sys.modules.get("triton")
    if module is not None and _is_ours(module):
        for name in [n for n in sys.modules if n == "triton" or n.startswith("triton.")]:
            del sys.modules[name]
    _forget_what_was_found()


def is_installed() -> bool:
    """Whether `import triton` gives Tilewright in this process."""
    return PATH in sys.path


def _forget_what_was_found() -> None:
    """Let Python look for modules again, and PyTorch ask again whether there is Triton."""
    importlib.invalidate_caches()
    asked_by_pytorch = sys.modules.get("torch.utils._triton")
    if asked_by_pytorch is not None:
        for function in vars(asked_by_pytorch).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def _is_ours(module: object) -> bool:
    return str(getattr(module, "__file__", "")).startswith(PATH + os.sep)


def _inherited() -> list[str]:
    """The directories that processes started from now on begin their path with."""
    text = os.environ.get(_VARIABLE, "")
    return text.split(os.pathsep) if text else []
