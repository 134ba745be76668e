"""The host as the operating system tells it: what can be known without LLVM."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys

from tilewright.errors import Unsupported
from tilewright.target import AMX_FEATURES, CPU_BY_FEATURES, Host, vector_bits_of

__all__ = ["architecture", "cpu_name", "module_header", "process", "this_process"]

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


def architecture() -> str:
    """Return the name of the host's architecture.

    Raises `Unsupported` on others than x86-64 and AArch64.
    """
    machine = platform.machine()
    known = _ARCHITECTURES.get(machine.lower())
    if known is None:
        raise Unsupported(
            f"the CPU target does not know the architecture {machine!r}",
            hint="x86-64 and AArch64 are supported",
        )
    return known


def cpu_name(features: frozenset[str]) -> str:
    """Return the model that code for an x86-64 with these features is scheduled for."""
    return next(name for name, required in CPU_BY_FEATURES if features >= required)


def this_process(
    triple: str,
    data_layout: str,
    cpu: str,
    features: frozenset[str],
    missing_features: frozenset[str],
) -> Host:
    """Return the host of this process: facts about the machine, and what the process may use."""
    return Host(
        architecture=architecture(),
        triple=triple,
        data_layout=data_layout,
        cpu=cpu,
        features=features,
        missing_features=missing_features,
        vector_bits=vector_bits_of(features),
        has_amx=features >= AMX_FEATURES and _allow_amx(),
        cores=_usable_cores(),
    )


def module_header(host: Host) -> str:
    """Return the lines every module starts with.

    LLVM fixes default alignments while it parses, so the layout must stand in the text.
    """
    return f'target datalayout = "{host.data_layout}"\ntarget triple = "{host.triple}"\n'


@functools.cache
def process() -> ctypes.CDLL:
    """Return all that is linked into this process, as a library."""
    return ctypes.CDLL(None)


def _allow_amx() -> bool:
    """Ask Linux for the AMX tile registers, which a process may use only after asking."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(process().syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
