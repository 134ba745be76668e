"""What the tests launch kernels on, beside eager mode and the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import DeviceArray
from tilewright.ir.types import DType, dtype_of_numpy
from tilewright.runtime.emulated import current_emulation
from tilewright.runtime.tensor_descriptor import TensorDescriptor

__all__ = [
    "EMULATED",
    "GPU",
    "DeviceCopies",
    "DevicePart",
    "HostArray",
    "on_gpu",
    "product_tolerance",
]

EMULATED = ("sm_80", "sm_90a")
GPU = "gpu"

_is_on_gpu: ContextVar[bool] = ContextVar("is_on_gpu", default=False)


@contextmanager
def on_gpu() -> Iterator[None]:
    """Say that kernels inside run on a real GPU."""
    token = _is_on_gpu.set(True)
    try:
        yield
    finally:
        _is_on_gpu.reset(token)


def product_tolerance(exact: float) -> float:
    """A bound of the error of `tl.dot` on fp32: `exact` where it multiplies in fp32.

    GPUs multiply 10 bits of each number (tf32), rounded or cut off, unless the kernel says more.
    """
    is_gpu = _is_on_gpu.get() or current_emulation() is not None
    return max(exact, 2e-2) if is_gpu else exact


@dataclass
class DevicePart:
    """An array inside the memory of another."""

    whole: DeviceArray
    start: int
    size_bytes: int
    dtype: DType

    @property
    def device(self) -> str:
        return self.whole.device

    @property
    def extent(self) -> tuple[int, int]:
        return self.data_ptr(), self.size_bytes

    def data_ptr(self) -> int:
        return self.whole.data_ptr() + self.start


class DeviceCopies:
    """Copies on a GPU of what a launch is given; arrays that share memory share it there, too."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[np.ndarray[Any, Any], DeviceArray]] = {}

    def of(self, value: Any) -> Any:
        """Return what stands for an argument: arrays, those of descriptors too, are copied.

        Arrays of what no kernel takes stay, so that they are refused.
        """
        if isinstance(value, np.ndarray) and dtype_of_numpy(value.dtype) is not None:
            return self._part(value)
        if isinstance(value, TensorDescriptor):
            return dataclasses.replace(value, base=self.of(value.base))
        if isinstance(value, tuple):
            items = map(self.of, value)
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def _part(self, array: np.ndarray[Any, Any]) -> DevicePart:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if id(owner) not in self._copies:
            rows = owner if owner.flags.c_contiguous else owner.T
            assert rows.flags.c_contiguous, "the owner of an array's memory has no gaps"
            bytes_ = rows.reshape(-1).view(np.uint8)
            self._copies[id(owner)] = bytes_, DeviceArray.from_numpy(bytes_)
        bytes_, copy = self._copies[id(owner)]
        dtype = dtype_of_numpy(array.dtype)
        assert dtype is not None
        return DevicePart(copy, array.ctypes.data - bytes_.ctypes.data, array.nbytes, dtype)

    def bring_back(self) -> None:
        """Wait for the GPU, and give arrays what is there now."""
        for bytes_, copy in self._copies.values():
            if bytes_.flags.writeable:
                bytes_[:] = copy.to_numpy()


class HostArray:
    """Memory of this machine in the place of a GPU's, to test without one."""

    device = "cpu"

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> HostArray:
        return cls(array.copy())

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def to_numpy(self) -> np.ndarray[Any, Any]:
        return self.array
