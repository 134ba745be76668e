"""Every environment switch of Tilewright: one declaration each, read when it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "cache_autotuning",
    "cache_directory",
    "debug_level",
    "device_debug",
    "disabled_passes",
    "dot_precision",
    "dump_directory",
    "emulated_architecture",
    "interpret",
    "libdevice_path",
    "number_of_threads",
    "print_autotuning",
    "strict",
    "tune",
    "verify",
]


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "on", "yes"}


def _integer(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name}={text}: an integer is needed") from None


def interpret() -> bool:
    """`TILEWRIGHT_INTERPRET=1`: kernels run eagerly, op by op, as ordinary Python."""
    return _flag("TILEWRIGHT_INTERPRET") or _flag("TRITON_INTERPRET")


def emulated_architecture() -> str:
    """`TILEWRIGHT_EMULATE=sm_90a`: kernels are compiled for that GPU, emulated, races found."""
    return os.environ.get("TILEWRIGHT_EMULATE", "").strip()


def debug_level() -> int:
    """`TILEWRIGHT_DEBUG=1..5`: launches, times, final IR, IR after each pass, assembly (stderr)."""
    return _integer("TILEWRIGHT_DEBUG", 0)


def device_debug() -> bool:
    """`TILEWRIGHT_DEVICE_DEBUG=1` (or `TRITON_DEBUG=1`): `device_assert` is compiled in."""
    return _flag("TILEWRIGHT_DEVICE_DEBUG") or _flag("TRITON_DEBUG")


def verify() -> bool:
    """`TILEWRIGHT_VERIFY=1`: the IR is verified after every pass."""
    return _flag("TILEWRIGHT_VERIFY")


def disabled_passes() -> frozenset[str]:
    """`TILEWRIGHT_DISABLE=pass,pass`: passes to leave out (only those that may be left out)."""
    return frozenset(filter(None, os.environ.get("TILEWRIGHT_DISABLE", "").split(",")))


def dump_directory() -> Path | None:
    """`TILEWRIGHT_DUMP=DIR`: the IR before and after every pass is written there, and the code."""
    text = os.environ.get("TILEWRIGHT_DUMP", "")
    return Path(text) if text else None


def cache_directory() -> Path:
    """`TILEWRIGHT_CACHE_DIR=DIR` (or `TRITON_...`): compiled kernels (`~/.cache/tilewright`)."""
    text = os.environ.get("TILEWRIGHT_CACHE_DIR", "") or os.environ.get("TRITON_CACHE_DIR", "")
    if text:
        return Path(text)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "tilewright"


def number_of_threads() -> int | None:
    """`TILEWRIGHT_NUM_THREADS=N`: threads of the CPU target (default: the usable cores)."""
    count = _integer("TILEWRIGHT_NUM_THREADS", 0)
    return count if count > 0 else None


def print_autotuning() -> bool:
    """`TILEWRIGHT_PRINT_AUTOTUNING=1`: one line for each tuned configuration (stderr)."""
    return _flag("TILEWRIGHT_PRINT_AUTOTUNING") or _flag("TRITON_PRINT_AUTOTUNING")


def tune() -> bool:
    """`TILEWRIGHT_TUNE=1`: kernels with a default configuration are tuned at their first launch."""
    return _flag("TILEWRIGHT_TUNE")


def cache_autotuning() -> bool:
    """`TILEWRIGHT_CACHE_AUTOTUNING=1` (or `TRITON_...`): results of tuning are kept on disk."""
    return _flag("TILEWRIGHT_CACHE_AUTOTUNING") or _flag("TRITON_CACHE_AUTOTUNING")


def cache_manager() -> str:
    """`TRITON_CACHE_MANAGER=MODULE:CLASS`: what keeps the files of programs; "" for our own."""
    return os.environ.get("TRITON_CACHE_MANAGER", "")


def dot_precision() -> str:
    """`TRITON_F32_DEFAULT=ieee`: what products of fp32 keep on GPUs that do not say it (tf32)."""
    return os.environ.get("TRITON_F32_DEFAULT", "").strip() or "tf32"


def libdevice_path() -> str:
    """`TILEWRIGHT_LIBDEVICE_PATH=FILE` (or `TRITON_...`): CUDA's libdevice, where a kernel asks."""
    named = (os.environ.get(f"{name}_LIBDEVICE_PATH", "") for name in ("TILEWRIGHT", "TRITON"))
    return next(filter(None, named), "")


def strict() -> bool:
    """`TILEWRIGHT_STRICT=1`: kernels that use more than Triton has are errors."""
    return _flag("TILEWRIGHT_STRICT")
