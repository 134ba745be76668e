"""What the CUDA driver's error codes mean for whoever launches a kernel, and what to try."""

from __future__ import annotations

from tilewright.errors import LaunchError, TilewrightError, Unsupported
from tilewright.runtime import history

__all__ = ["INVALID_CODE", "CudaError", "describe"]

# cuda.h: the error itself is of an earlier launch, and the context is of no use any more.
_STICKY = {
    700: "an access outside of the arrays: look at masks, strides and the grid",
    702: "the kernel ran for longer than the system allows",
    710: "a `device_assert` does not hold",
    714: "the stack is corrupt",
    715: "an illegal instruction",
    716: "a misaligned access: look at `tl.multiple_of` and at views whose start is not aligned",
    717: "an access to the wrong kind of memory",
    718: "a jump to nowhere",
    719: "an access to memory that is not there, or a fault of the device",
}
_OUT_OF_MEMORY = 2
_OUT_OF_RESOURCES = 701
_NO_DEVICE = 100
_TOO_MANY_BLOCKS = 720
# Machine code, or PTX, that this driver does not take.
INVALID_CODE = frozenset({200, 209, 218, 222, 223, 300})

_SHOWN_NAMES = 5


class CudaError(LaunchError):
    """The driver refuses a call, with this code of `cuda.h`."""

    code: int = 0


def describe(code: int, says: str, doing: str) -> TilewrightError | MemoryError:
    """Return the error for a code; `says` are the driver's own words."""
    if code in _STICKY:
        return _failed_earlier(code, says, doing)
    if code == _OUT_OF_MEMORY:
        return MemoryError(
            f"{doing}: the GPU is out of memory ({says})\n  try: free arrays that are not needed; "
            "PyTorch keeps what it has freed until `torch.cuda.empty_cache()`"
        )
    if code == _OUT_OF_RESOURCES:
        return Unsupported(
            f"{doing}: a block needs more registers or shared memory than there is ({says})",
            hint="use fewer warps (`num_warps`), smaller tiles, or limit `maxnreg`",
        )
    hint = ""
    if code in INVALID_CODE:
        hint = "update the NVIDIA driver: it must know CUDA 12.3 or later"
    elif code == _NO_DEVICE:
        hint = "kernels run on the CPU on arrays in its memory"
    elif code == _TOO_MANY_BLOCKS:
        hint = "with `launch_cooperative_grid` all programs run at the same time: launch fewer"
    error = CudaError(f"{doing}: the driver says {says}", hint=hint)
    error.code = code
    return error


def _failed_earlier(code: int, says: str, doing: str) -> LaunchError:
    names = history.recent_names()[:_SHOWN_NAMES]
    last = ", ".join(f"`{name}`" for name in names) or "none of Tilewright's"
    return LaunchError(
        f"{doing}: a kernel that was launched before has failed: {_STICKY[code]} ({says}); "
        f"the last ones launched, latest first: {last}",
        hint="start the process again, with TILEWRIGHT_DEBUG=1 (each launch waits for its kernel, "
        "so the error names it) or with TILEWRIGHT_INTERPRET=1 (`kernel.debug[grid](...)` for one "
        "kernel), which checks every access",
    )
