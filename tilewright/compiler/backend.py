"""What generators of kernels ask about a target before they compile for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.ir.types import DTYPES
from tilewright.runtime.fingerprint import build_fingerprint, gpu_build_fingerprint
from tilewright.runtime.options import DEFAULTS
from tilewright.runtime.written_target import with_options
from tilewright.target import GPUTarget

__all__ = ["Backend", "make_backend"]


class Backend(NamedTuple):
    """A target, as generators of kernels see it."""

    target: GPUTarget

    def hash(self) -> str:
        """Return a text that differs where the same kernel may compile to something else."""
        target = with_options(self.target, GpuOptions())
        if target is None:
            return build_fingerprint()
        return f"{gpu_build_fingerprint()};{target.fingerprint}"

    def parse_options(self, given: Mapping[str, Any]) -> SimpleNamespace:
        """Return all options of a launch as attributes, those that are not given by default."""
        types = tuple(name for name in DTYPES if name.startswith("fp8"))
        return SimpleNamespace(**{**DEFAULTS, "supported_fp8_dtypes": types, **given})


def make_backend(target: GPUTarget) -> Backend:
    """Return what there is to ask about a target.

    >>> make_backend(GPUTarget("cpu", "", 1)).parse_options({"num_warps": 8}).num_warps
    8
    """
    return Backend(target)
