"""Every environment switch of Tilewright: one declaration each, read when it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "always_compile",
    "assembler",
    "assembler_options",
    "backend",
    "cache_autotuning",
    "cache_directory",
    "cache_manager",
    "cuda_directory",
    "debug_level",
    "device_debug",
    "disabled_passes",
    "disassembler",
    "dot_precision",
    "dump_directory",
    "emulated_architecture",
    "fuses_products",
    "has_line_numbers",
    "interpret",
    "libdevice_path",
    "number_of_threads",
    "print_autotuning",
    "reads_ordinary_globals",
    "shows_all_frames",
    "shows_assembler",
    "shows_ptx",
    "strict",
    "tune",
    "verify",
]


_TRUE, _FALSE = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


def _flag(name: str, default: bool = False) -> bool:
    text = os.environ.get(name, "").strip().lower()
    # For Triton everything that it does not know is false.
    if name.startswith("TILEWRIGHT_") and text not in {"", *_TRUE, *_FALSE}:
        raise ValueError(
            f"{name}={text}: one of {', '.join(_TRUE)} or {', '.join(_FALSE)} is needed"
        )
    return text in _TRUE if text else default


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
    """`TILEWRIGHT_DUMP=DIR`: the IR before and after every pass is written there, and the code.

    `TRITON_KERNEL_DUMP=1` does so in `TRITON_DUMP_DIR` (`~/.triton/dump`).
    """
    text = os.environ.get("TILEWRIGHT_DUMP", "")
    if not text and _flag("TRITON_KERNEL_DUMP"):
        text = os.environ.get("TRITON_DUMP_DIR", "")
        return Path(text) if text else _home_of_triton() / ".triton" / "dump"
    return Path(text) if text else None


def cache_directory() -> Path:
    """`TILEWRIGHT_CACHE_DIR=DIR` (or `TRITON_...`): compiled kernels (`~/.cache/tilewright`).

    With `TRITON_HOME=DIR` they are in `DIR/.triton/cache`.
    """
    text = os.environ.get("TILEWRIGHT_CACHE_DIR", "") or os.environ.get("TRITON_CACHE_DIR", "")
    if text:
        return Path(text)
    if os.environ.get("TRITON_HOME", ""):
        return _home_of_triton() / ".triton" / "cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "tilewright"


def _home_of_triton() -> Path:
    return Path(os.environ.get("TRITON_HOME", "") or "~").expanduser()


def always_compile() -> bool:
    """`TILEWRIGHT_ALWAYS_COMPILE=1` (or `TRITON_...`): what the disk cache has is not used."""
    return _flag("TILEWRIGHT_ALWAYS_COMPILE") or _flag("TRITON_ALWAYS_COMPILE")


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


# What only Triton's variables say.


def backend() -> str:
    """`TRITON_DEFAULT_BACKEND=cpu`: what host code is told that kernels run on (or `nvidia`)."""
    return os.environ.get("TRITON_DEFAULT_BACKEND", "").strip()


def reads_ordinary_globals() -> bool:
    """`TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1`: kernels may read globals that are no constants."""
    return _flag("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")


def shows_all_frames() -> bool:
    """`TRITON_FRONT_END_DEBUGGING=1`: tracebacks keep the frames of the compiler."""
    return _flag("TRITON_FRONT_END_DEBUGGING")


def fuses_products() -> bool:
    """`TRITON_DEFAULT_FP_FUSION=0`: the launch option `enable_fp_fusion` is off by default."""
    return _flag("TRITON_DEFAULT_FP_FUSION", default=True)


def has_line_numbers() -> bool:
    """`TRITON_DISABLE_LINE_INFO=1`: PTX does not say which lines it comes from."""
    return not _flag("TRITON_DISABLE_LINE_INFO")


def assembler() -> str:
    """`TRITON_PTXAS_PATH=FILE`: the `ptxas` to use; "" for the one that is found."""
    return os.environ.get("TRITON_PTXAS_PATH", "")


def assembler_options() -> str:
    """`PTXAS_OPTIONS=TEXT`, `DISABLE_PTXAS_OPT=1`: what `ptxas` is given for every kernel."""
    level = "--opt-level 0 " if _flag("DISABLE_PTXAS_OPT") else ""
    return f"{level}{os.environ.get('PTXAS_OPTIONS', '')}".strip()


def shows_assembler() -> bool:
    """`TRITON_DUMP_PTXAS_LOG=1`: what `ptxas` says is printed (stderr)."""
    return _flag("TRITON_DUMP_PTXAS_LOG")


def shows_ptx() -> bool:
    """`NVPTX_ENABLE_DUMP=1`: PTX is printed when it is made (stderr)."""
    return _flag("NVPTX_ENABLE_DUMP")


def disassembler() -> str:
    """`TRITON_NVDISASM_PATH=FILE`: the `nvdisasm` to use; "" for the one that is found."""
    return os.environ.get("TRITON_NVDISASM_PATH", "")


def cuda_directory() -> str:
    """`TRITON_LIBCUDA_PATH=DIR`: where the library of the NVIDIA driver is; "" to look for it."""
    return os.environ.get("TRITON_LIBCUDA_PATH", "")
