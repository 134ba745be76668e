"""What the disk cache's names depend on besides the kernel: this build, and this machine."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tilewright.runtime.cache import digest, read_entry, write_entry
from tilewright.runtime.host import compiler_version, host

__all__ = ["build_fingerprint", "cached_object", "gpu_build_fingerprint"]

_PACKAGE = str(Path(__file__).resolve().parent.parent)
# Nothing that is kept on disk is made by these; or nothing for the CPU, or nothing for GPUs.
_NOT_COMPILING = {"__pycache__", "alias", "cli", "emulator"}
_FOR_GPUS = frozenset({"layout", "gpu", "nvidia"})
_FOR_THE_CPU = frozenset({"cpu"})


@functools.cache
def build_fingerprint() -> str:
    """A text that differs where the same kernel may compile to something else.

    It stands for this package's own source (by sizes and times, since reading it would take longer
    than loading a kernel), the versions of llvmlite and of LLVM, the Python that launchers are made
    for, and the host.
    """
    return ";".join((_versions(_FOR_GPUS), host().fingerprint))


@functools.cache
def gpu_build_fingerprint() -> str:
    """Return the same for kernels on GPUs, of any host."""
    return _versions(_FOR_THE_CPU)


def _versions(without: frozenset[str]) -> str:
    """The package's source but for some directories, and what it runs on."""
    files = (text for directories, text in _sources() if without.isdisjoint(directories))
    return ";".join(map(str, (digest(files), compiler_version(), sys.implementation.cache_tag)))


@functools.cache
def _sources() -> list[tuple[tuple[str, ...], str]]:
    """For each source file the directories that it is in, and a text about it."""
    return sorted(_source_files(_PACKAGE, ()))


def _source_files(directory: str, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                facts = entry.stat()
                yield names, f"{names} {entry.name} {facts.st_size} {facts.st_mtime_ns}"
            elif entry.name not in _NOT_COMPILING and entry.is_dir(follow_symlinks=False):
                yield from _source_files(entry.path, (*names, entry.name))


def cached_object(key: str, make: Callable[[], bytes]) -> bytes:
    """Return the object bytes that an earlier process got from `make()`, or make and keep them."""
    name = f"object-{digest([key, build_fingerprint()])}"
    entry = read_entry(name)
    if entry is not None:
        return entry.payload
    payload = make()
    write_entry(name, {}, payload)
    return payload
