"""Launchers: for each specialised kernel a builtin function in machine code.

`launcher(grid_x, grid_y, grid_z, *arguments)` is a guarded fast path. It checks that every argument
is what the kernel was specialised for, packs them, releases the GIL, and lets the pool run the
grid. Where an argument does not fit it returns `NotImplemented`, and Python code finds or compiles
the kernel that does. The argument block has 8 bytes for each parameter that is not a constant:
integers and addresses as i64, fp32 in the low 4 bytes, bools as 0 or 1.

The code knows the memory layout of a few CPython and NumPy objects, which is checked before it is
relied on.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.loading import LoadedObject
from tilewright.ir.types import DTYPES
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.launch_parameters import ArrayParameter, Launcher, LaunchParameter
from tilewright.runtime.launcher_shared import (
    OncePerProcess,
    Program,
    SharedCode,
    bind_program,
    declining_launcher,
    first_entry,
    python_layout_is_known,
)
from tilewright.runtime.launcher_table import Table
from tilewright.runtime.pool import pool, raise_status
from tilewright.runtime.torch_interface import TensorKeys

if TYPE_CHECKING:
    from tilewright.runtime import launcher_code_cpu
else:
    launcher_code_cpu = Deferred("tilewright.runtime.launcher_code_cpu")

__all__ = ["accept_torch", "bind_launcher"]

_NUMPY_ALIGNED = 0x0100
_NUMPY_WRITEABLE = 0x0400


def bind_launcher(
    loaded: LoadedObject,
    kernel_symbol: str,
    parameters: Sequence[LaunchParameter],
    *,
    scratch_bytes: int,
    on_error: Callable[[int], object],
) -> Launcher:
    """Return the builtin `launcher(grid_x, grid_y, grid_z, *arguments)` of a kernel.

    `on_error` is called with the code of a failed `device_assert`, and raises. The builtin keeps
    the object alive.
    """
    if not python_layout_is_known():
        return declining_launcher
    return bind_program(
        _shared(),
        kernel_symbol,
        (loaded.address(kernel_symbol), scratch_bytes),
        Program(parameters, _array_words),
        functools.partial(raise_status, on_error=on_error),
        loaded,
    )


def _array_words(parameter: ArrayParameter) -> tuple[int, int]:
    """The flags that NumPy must have set, and where the dtypes stand in the table."""
    flags = _NUMPY_ALIGNED | (_NUMPY_WRITEABLE if parameter.written else 0)
    return flags, 8 * first_entry(parameter.dtype_name)


def accept_torch() -> None:
    """Let launchers that were made before PyTorch was imported accept its tensors."""
    made = _shared.made
    if made is not None:
        made.accept_torch()


class _Shared(SharedCode):
    """The code of the CPU's launchers."""

    def __init__(self) -> None:
        super().__init__("cpu", lambda: launcher_code_cpu.CPU_PART)

    def _usual(self, keys: TensorKeys) -> int:
        return keys.usual_on_cpu

    def _fill_own(self) -> bool:
        self.enter_addresses({Table.LAUNCH: pool().launch_address})
        entries: dict[int, object] = {
            Table.NDARRAY: np.ndarray if _numpy_layout_is_known() else None,
            Table.DATA_PTR: sys.intern("data_ptr"),
            Table.DTYPE: sys.intern("dtype"),
        }
        for name in DTYPES:
            dtypes = (*_numpy_dtypes(name), _torch_dtype(name))
            entries.update(enumerate(dtypes, first_entry(name)))
        self.enter_objects(entries)
        return True


_shared = OncePerProcess(_Shared)


def _torch_dtype(name: str) -> object:
    # NumPy and ml_dtypes use PyTorch's names.
    return getattr(sys.modules.get("torch"), DTYPES[name].numpy.name, None)


def _numpy_dtypes(name: str) -> tuple[object, object]:
    """Return the two dtype objects of an element type: C has two 64-bit integer types."""
    dtype = DTYPES[name].numpy
    others = (other for code in "lqLQ" if (other := np.dtype(code)) == dtype)
    return dtype, next((other for other in others if other is not dtype), dtype)


@functools.cache
def _numpy_layout_is_known() -> bool:
    """Whether arrays lie in memory as the launchers assume."""
    for array in (np.zeros(3, np.float32), np.broadcast_to(np.int16(1), (2, 5))):
        data = ctypes.c_void_p.from_address(id(array) + 16).value
        dtype = ctypes.c_void_p.from_address(id(array) + 56).value
        flags = ctypes.c_int32.from_address(id(array) + 64).value
        if (data, dtype, flags) != (array.ctypes.data, id(array.dtype), array.flags.num):
            return False
    return True
