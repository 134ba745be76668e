"""`tl.extra.cuda`: what only NVIDIA GPUs have, and another path to `tl.extra.libdevice`."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic import casts
from tilewright.frontend.tensor import Tensor
from tilewright.language.extra.cuda import libdevice
from tilewright.ops import GridDependency, HardwareNumber, HardwareRegister

__all__ = [
    "convert_custom_float8_sm70", "convert_custom_float8_sm80", "gdc_launch_dependents", "gdc_wait",
    "globaltimer", "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip


@builtin
def globaltimer() -> Tensor:
    """Return the nanoseconds of the GPU's clock, an int64.

    Raises `Unsupported` where the kernel does not run on a GPU; the next three do too.
    """
    return emit(HardwareNumber, HardwareRegister.GLOBAL_TIMER)


@builtin
def smid() -> Tensor:
    """Return the number of the multiprocessor that runs the program, an int32."""
    return emit(HardwareNumber, HardwareRegister.MULTIPROCESSOR)


@builtin
def num_threads() -> Tensor:
    """Return the number of threads of a program, an int32."""
    return emit(HardwareNumber, HardwareRegister.NUM_THREADS)


@builtin
def num_warps() -> Tensor:
    """Return the number of warps of a program, an int32."""
    return emit(HardwareNumber, HardwareRegister.NUM_WARPS)


@builtin
def gdc_wait() -> None:
    """Wait until the launches before this one have ended and their writes are seen.

    With `kernel[grid](..., launch_pdl=True)` a launch may start earlier. Without it, and where a
    GPU cannot, there is nothing to wait for.
    """
    emit_all(GridDependency, False)


@builtin
def gdc_launch_dependents() -> None:
    """Let launches behind this one start that were launched with `launch_pdl=True`.

    They may do so once all programs have come here or ended.
    """
    emit_all(GridDependency, True)


@builtin
def convert_custom_float8_sm80(
    arg: Any, dst_ty: Any, fp_downcast_rounding: str | None = None
) -> Tensor:
    """Return `arg` with elements of type `dst_ty`, as `arg.to(dst_ty)` does."""
    return casts.cast(arg, dst_ty, fp_downcast_rounding)


@builtin
def convert_custom_float8_sm70(
    arg: Any, dst_ty: Any, fp_downcast_rounding: str | None = None
) -> Tensor:
    """Return `arg` with elements of type `dst_ty`, as `arg.to(dst_ty)` does."""
    return casts.cast(arg, dst_ty, fp_downcast_rounding)
