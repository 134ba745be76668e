"""Arrays on a GPU, for programs that have no other library for them."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_ubyte, c_uint64, c_void_p
from typing import Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.ir.types import DType, dtype_of_numpy
from tilewright.runtime import cuda
from tilewright.runtime.arrays import ELEMENT_TYPES, dtype_of
from tilewright.runtime.cuda import Device, driver

__all__ = ["DeviceArray", "DeviceBytes", "Memory"]

_LEGACY_STREAM = 1  # what __cuda_array_interface__ calls the default stream


class Memory:
    """Bytes on a GPU, given back when this object goes; raises `MemoryError` where there are none.

    `address` is where they start.
    """

    def __init__(self, gpu: Device, size: int) -> None:
        self.gpu, self.size, self.address, self._driver = gpu, size, 0, driver()
        place = c_uint64()
        with gpu.active():
            doing = f"allocating {size} bytes on GPU {gpu.number}"
            # The driver allocates no 0 bytes.
            driver().call("cuMemAlloc_v2", byref(place), c_size_t(max(size, 1)), doing=doing)
        self.address = place.value

    def __del__(self) -> None:
        if self.address and not sys.is_finalizing():
            with contextlib.suppress(Exception), self.gpu.active():
                self._driver.library.cuMemFree_v2(c_uint64(self.address))


class DeviceBytes:
    """Bytes on a GPU, to be copied and filled once all that was launched there is done.

    `owner` is what has to live as long.
    """

    def __init__(self, gpu: Device, address: int, size: int, owner: Any = None) -> None:
        self.gpu, self.address, self.size, self.owner = gpu, address, size, owner

    def give(self, target: np.ndarray[Any, Any]) -> None:
        """Copy them to an array without gaps in this machine's memory."""
        self._call("cuMemcpyDtoH_v2", c_void_p(target.ctypes.data), c_uint64(self.address))

    def take(self, source: np.ndarray[Any, Any]) -> None:
        """Copy them from an array without gaps in this machine's memory."""
        self._call("cuMemcpyHtoD_v2", c_uint64(self.address), c_void_p(source.ctypes.data))

    def copy(self) -> DeviceBytes:
        """Return a copy on the same GPU."""
        memory = Memory(self.gpu, self.size)
        copy = DeviceBytes(self.gpu, memory.address, self.size, memory)
        copy.copy_(self)
        return copy

    def copy_(self, source: DeviceBytes) -> None:
        """Take as many bytes from elsewhere on the same GPU."""
        self._call("cuMemcpyDtoD_v2", c_uint64(self.address), c_uint64(source.address))

    def zero_(self) -> None:
        """Set them all to 0."""
        self._call("cuMemsetD8_v2", c_uint64(self.address), c_ubyte(0))

    def _call(self, function: str, first: Any, second: Any) -> None:
        doing = f"copying {self.size} bytes of GPU {self.gpu.number}"
        # Kernels may run on streams that a copy does not wait for.
        self.gpu.synchronize(doing)
        if self.size:
            with self.gpu.active():
                driver().call(function, first, second, c_size_t(self.size), doing=doing)
                # Within the GPU's memory the call returns earlier.
                driver().call("cuCtxSynchronize", doing=doing)


class DeviceArray:
    """An array on GPU `device`, without gaps: memory to pass to kernels, and to copy back.

    `dtype` is one of the language, NumPy or PyTorch. Other libraries take it by
    `__cuda_array_interface__`. The contents are arbitrary; see `from_numpy`.

    Raises `MemoryError` where the GPU has no room for it.
    """

    def __init__(self, shape: int | Sequence[int], dtype: Any, device: int = 0) -> None:
        known = dtype_of(dtype)
        if known is None:
            raise LaunchError(
                f"a kernel cannot take an array of dtype {dtype}",
                hint=ELEMENT_TYPES,
            )
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype: DType = known
        self.size = math.prod(self.shape)
        self.nbytes = self.size * known.itemsize
        self._memory = Memory(cuda.device(device), self.nbytes)
        self._bytes = DeviceBytes(self._memory.gpu, self._memory.address, self.nbytes)

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], device: int = 0) -> DeviceArray:
        """Return a copy of a NumPy array on a GPU."""
        dtype = dtype_of_numpy(array.dtype)
        if dtype is None:
            raise LaunchError(
                f"a kernel cannot take an array of dtype {array.dtype}",
                hint=ELEMENT_TYPES,
            )
        made = cls(array.shape, dtype, device)
        made.copy_from(array)
        return made

    def copy_from(self, array: np.ndarray[Any, Any]) -> None:
        """Take the elements of a NumPy array of the same shape and element type."""
        if array.shape != self.shape or dtype_of_numpy(array.dtype) is not self.dtype:
            raise LaunchError(
                f"cannot copy {array.dtype}{list(array.shape)} to {self.dtype}{list(self.shape)}",
                hint="make one of the same: `tilewright.DeviceArray.from_numpy(array)`",
            )
        self._bytes.take(np.ascontiguousarray(array))

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy in this machine's memory, once all that was launched on the GPU is done."""
        result = np.empty(self.shape, self.dtype.numpy)
        self._bytes.give(result)
        return result

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return self._memory.address

    @property
    def extent(self) -> tuple[int, int]:
        """The address and the size in bytes of its memory."""
        return self.data_ptr(), self.nbytes

    @property
    def device(self) -> str:
        """The GPU, as PyTorch names it."""
        return f"cuda:{self._memory.gpu.number}"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Kernels on such arrays are launched on the current stream, which others have to wait for.
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.data_ptr(), False),
            "strides": None,
            "stream": cuda.current_stream(self._memory.gpu.number) or _LEGACY_STREAM,
        }

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, device={self._memory.gpu.number})"
