"""What kernels run on where no array says so: for host code that asks before it has one."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

from tilewright.errors import LaunchError, Unsupported
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.emulated import current_emulation
from tilewright.target import NvidiaTarget

if TYPE_CHECKING:
    from tilewright.runtime import cuda
else:
    cuda = Deferred("tilewright.runtime.cuda")

__all__ = ["current_gpu", "default_target", "has_gpu"]


def default_target() -> NvidiaTarget | None:
    """Return the emulated GPU of the moment, else the current GPU, else None for the CPU."""
    emulation = current_emulation()
    if emulation is not None:
        return emulation.target
    return cuda.device(current_gpu()).target if has_gpu() else None


def has_gpu() -> bool:
    """Whether there is a GPU that kernels run on.

    PyTorch is asked first: it still knows in a process that was forked from one which had the
    driver, where the driver itself answers nothing. Inductor compiles in such processes.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda and torch.cuda.is_available():
        return True
    count = ctypes.c_int()
    try:
        cuda.driver().call("cuDeviceGetCount", ctypes.byref(count), doing="counting GPUs")
        return count.value > 0 and bool(cuda.device(0).target)
    except (LaunchError, Unsupported, MemoryError):
        return False


def current_gpu() -> int:
    """Return the number of PyTorch's current GPU; 0 where it has none yet."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_device())
