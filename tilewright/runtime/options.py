"""The options of a launch: how a target should compile a kernel, never what it computes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ops.matmul import PRECISIONS
from tilewright.spelling import did_you_mean

__all__ = ["DEFAULTS", "check_options"]

# Accepted by every target; the CPU has no use for most of them.
DEFAULTS: dict[str, Any] = {
    "num_warps": 4,
    "num_ctas": 1,
    "num_stages": 3,
    "maxnreg": None,
    "enable_fp_fusion": True,
    "enable_reflect_ftz": True,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
    "ptx_options": None,
    "ptx_version": None,
    "ir_override": None,
    "extern_libs": None,
    "debug": False,
    "sanitize_overflow": True,
    "allowed_dot_input_precisions": None,
    "default_dot_input_precision": None,
    "supported_fp8_dtypes": None,
    "deprecated_fp8_dot_operand_dtypes": None,
    "arch": None,
    "instrumentation_mode": "",
    "waves_per_eu": 0,
    "kpack": 1,
    "matrix_instr_nonkdim": 0,
    "num_cpu_threads": 0,
    "vec_lib": "",
    "enable_fast_math": False,
    "ukernels": None,
    "assume_in_bounds": False,
}

# What ptxas takes as a limit: it needs some, and a thread has no more.
_REGISTERS = range(16, 256)
# The least of each; 0 and 1 stages are the same: loops that load nothing ahead.
_LEAST = {"num_warps": 1, "num_ctas": 1, "num_stages": 0}
_POWERS_OF_TWO = ("num_warps", "num_ctas")


# What would change the code and cannot, and what there is in its place.
_REFUSED = {
    "ptx_version": "leave it out: the PTX is of the version that its instructions need",
    "arch": "compile for a GPU that is written down: `tilewright.compiler.compile(source, target)`",
    "instrumentation_mode": "find races with `tilewright.emulate(..., races=True)`",
}


def check_options(kernel: str, given: Mapping[str, Any], parameters: Iterable[str]) -> None:
    """Raise `LaunchError` for an unknown keyword (naming close ones) or a senseless value."""
    names = list(parameters)
    for option, value in given.items():
        if option not in DEFAULTS:
            hint = did_you_mean(option, [*names, *DEFAULTS], most=3)
            raise LaunchError(
                f"{kernel}: `{option}` is neither a parameter of the kernel nor a launch option",
                hint=hint or f"the parameters are {', '.join(f'`{n}`' for n in names) or 'none'}",
            )
        _check_value(kernel, option, value)


def _check_value(kernel: str, option: str, value: Any) -> None:
    if option in _LEAST and (not isinstance(value, int) or value < _LEAST[option]):
        raise LaunchError(
            f"{kernel}: `{option}` is an int of at least {_LEAST[option]}, not {value!r}",
            hint=f"leave it out: the default is {DEFAULTS[option]}",
        )
    if option in _POWERS_OF_TWO and value & (value - 1):
        below = 1 << (value.bit_length() - 1)
        raise LaunchError(
            f"{kernel}: `{option}` is a power of two, not {value}",
            hint=f"{option}={below} or {option}={2 * below}",
        )
    if option in _REFUSED and value:
        raise LaunchError(
            f"{kernel}: `{option}` has no effect, so it cannot be {value!r}", hint=_REFUSED[option]
        )
    if option == "default_dot_input_precision" and value not in {None, *PRECISIONS}:
        raise LaunchError(
            f"{kernel}: `default_dot_input_precision` cannot be {value!r}",
            hint=f"it is one of {', '.join(map(repr, PRECISIONS))}",
        )
    if option == "ptx_options" and value is not None and not _is_command_line(value):
        raise LaunchError(
            f"{kernel}: `ptx_options` is a text as on the assembler's command line, not {value!r}",
            hint='write ptx_options="-O1 --warn-on-spills", with every quote closed',
        )
    if option == "extern_libs" and value is not None and not isinstance(value, Mapping):
        raise LaunchError(
            f"{kernel}: `extern_libs` is a dict of names and paths, not {value!r}",
            hint='extern_libs={"libdevice": "path/of/libdevice.10.bc"}',
        )
    if option == "maxnreg" and value is not None and value not in _REGISTERS:
        raise LaunchError(
            f"{kernel}: `maxnreg` is None or an int from {_REGISTERS.start} to "
            f"{_REGISTERS.stop - 1}, not {value!r}",
            hint="leave it out: then the assembler chooses",
        )


def _is_command_line(value: Any) -> bool:
    try:
        shlex.split(value)
    except (ValueError, AttributeError):
        return False
    return True
