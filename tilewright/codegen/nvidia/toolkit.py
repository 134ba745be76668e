"""Files of CUDA's toolkit, where one is installed; nothing needs them.

Each launch that looks into the disk cache asks for them, so as little as possible is imported.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

from tilewright import env

__all__ = ["assembler_version", "find_libdevice", "find_ptxas"]

_TOOLKIT = Path("/usr/local/cuda")
_PTXAS, _LIBDEVICE = "bin/ptxas", "nvvm/libdevice/libdevice.10.bc"


def find_ptxas() -> str | None:
    """Return the path of `ptxas`, if there is one.

    It is what the environment names, a toolkit's, or that of NVIDIA's Python package.
    """
    if named := env.assembler():
        return named
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    on_path = (Path(directory, "ptxas") for directory in directories)
    places = (place for each in (on_path, _installed(_PTXAS)) for place in each)
    return next((str(p) for p in places if p.is_file() and os.access(p, os.X_OK)), None)


def assembler_version() -> str:
    """Return a text that differs where another `ptxas` is found: others make other code."""
    path = find_ptxas()
    if path is None:
        return "none"
    try:
        found = Path(path).stat()
    except OSError:  # it has just been removed
        return "none"
    return f"{found.st_size},{found.st_mtime_ns}"


def find_libdevice() -> str | None:
    """Return the path of CUDA's libdevice, if there is one.

    It is what the environment names, a toolkit's, or that of one of NVIDIA's Python packages.
    """
    if named := env.libdevice_path():
        return named
    return next((str(place) for place in _installed(_LIBDEVICE) if place.is_file()), None)


def _installed(file: str) -> Iterable[Path]:
    """Where a file of a toolkit may be: in the usual place, or in a Python package."""
    yield _TOOLKIT / file
    package = importlib.util.find_spec("nvidia")
    for directory in () if package is None else package.submodule_search_locations or ():
        yield from Path(directory).glob(f"*/{file}")
