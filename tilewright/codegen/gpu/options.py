"""How a GPU should run a kernel: never what it computes, except for roundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import env
from tilewright.errors import LaunchError
from tilewright.ops.matmul import PRECISIONS

__all__ = ["MOST_WARPS", "ForeignLibrary", "GpuOptions"]

MOST_WARPS = 32  # of a block


class ForeignLibrary(NamedTuple):
    """A file of functions that a launch names; `version` differs where its contents may."""

    name: str
    path: str
    version: tuple[int, int]

    @classmethod
    def of(cls, name: str, path: str) -> ForeignLibrary:
        """Look at a file; one that is not there is missed when something of it is called."""
        try:
            found = Path(path).stat()
        except OSError:
            return cls(name, path, (0, 0))
        return cls(name, path, (found.st_size, found.st_mtime_ns))


@dataclass(frozen=True)
class GpuOptions:
    """The launch options that change a kernel's code on a GPU.

    A program runs on one block, with `num_ctas` as well: the tiles that a cluster of so many
    blocks would share are spread over as many warps as those have together, or as a block can
    have. Loops keep up to `num_stages` iterations of their loads in flight: with 0 and 1 none
    is ahead of its use. A thread has at most `maxnreg` registers (None: what the assembler
    chooses). With `launch_pdl` a kernel may start before the one ahead of it on its stream has
    ended; with `launch_cooperative_grid` all its blocks run at the same time. With
    `enable_fp_fusion` a product and the sum it goes into are rounded once. Without
    `tensor_maps`, which the runtime decides, blocks of descriptors are copied element by
    element; `every_parameter`, which it decides too, passes those as well that are not read.
    `extern_libs` are files of functions that kernels call by `extern_elementwise`;
    with `enable_reflect_ftz` those that ask whether to flush subnormal numbers do. Products of
    fp32 that do not say how precise they are have the `default_dot_input_precision`.
    `ptx_options` are for the assembler, as on its command line.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    enable_fp_fusion: bool = True
    tensor_maps: bool = True
    every_parameter: bool = False
    extern_libs: tuple[ForeignLibrary, ...] = ()
    enable_reflect_ftz: bool = True
    default_dot_input_precision: str = "tf32"
    ptx_options: str = ""

    @property
    def block_warps(self) -> int:
        """The warps of a block."""
        return max(self.num_warps, min(self.num_warps * self.num_ctas, MOST_WARPS))

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> GpuOptions:
        """Take those of these that are among all options of a launch."""
        names = [field.name for field in fields(cls)]
        taken = {name: options[name] for name in names if name in options}
        taken["default_dot_input_precision"] = _precision(
            options.get("default_dot_input_precision")
        )
        taken.setdefault("enable_fp_fusion", env.fuses_products())
        given = options.get("ptx_options") or ""
        taken["ptx_options"] = f"{given} {env.assembler_options()}".strip()
        return cls(**{**taken, "extern_libs": _libraries(options.get("extern_libs"))})


def _precision(given: str | None) -> str:
    precision = given or env.dot_precision()
    if precision not in PRECISIONS:
        raise LaunchError(
            f"TRITON_F32_DEFAULT={precision}: products have no such precision",
            hint=f"it is one of {', '.join(PRECISIONS)}",
        )
    return precision


def _libraries(named: Mapping[str, Any] | None) -> tuple[ForeignLibrary, ...]:
    return tuple(ForeignLibrary.of(name, str(path)) for name, path in (named or {}).items())
