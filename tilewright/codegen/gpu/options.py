"""How a GPU should run a kernel: never what it computes, except for roundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["MOST_WARPS", "GpuOptions"]

MOST_WARPS = 32  # of a block


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
    element.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    enable_fp_fusion: bool = True
    tensor_maps: bool = True

    @property
    def block_warps(self) -> int:
        """The warps of a block."""
        return max(self.num_warps, min(self.num_warps * self.num_ctas, MOST_WARPS))

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> GpuOptions:
        """Take those of these that are among all options of a launch."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: options[name] for name in names if name in options})
