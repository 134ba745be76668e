"""Stand-ins for arrays: the same memory under another element type, and no memory at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.types import DType

__all__ = ["MockTensor", "TensorWrapper", "reinterpret"]


class TensorWrapper:
    """An array whose memory a kernel sees as elements of another type of the same size.

    Other attributes are those of the array itself.
    """

    def __init__(self, base: Any, dtype: DType) -> None:
        self.base = base
        self.dtype = dtype

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.base, name)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        has_method = hasattr(self.base, "data_ptr")
        return int(self.base.data_ptr() if has_method else self.base.ctypes.data)


def reinterpret(array: Any, dtype: DType) -> Any:
    """Return `array` with its memory seen as elements of `dtype`, of the same size.

    It is how arrays of a type that NumPy or PyTorch lacks are passed: `tl.float8e4b15`, or
    `tl.uint16` for older versions of PyTorch.

    Raises `TypeError` if `array` is no array, and `ValueError` if the sizes differ.
    """
    base = array.base if isinstance(array, TensorWrapper) else array
    if not hasattr(base, "dtype"):
        raise TypeError(f"cannot reinterpret a {type(array).__name__}: it is no array")
    itemsize = getattr(base.dtype, "itemsize", dtype.itemsize)
    if itemsize != dtype.itemsize:
        raise ValueError(f"cannot see elements of {itemsize} bytes as {dtype}")
    return TensorWrapper(base, dtype)


class MockTensor:
    """An array without memory, to compile for: `kernel.warmup(MockTensor(tl.float32), ...)`.

    `device="cuda"`, or `"cuda:1"`, stands for an array on that GPU.
    """

    def __init__(self, dtype: Any, shape: Sequence[int] = (1,), device: str = "cpu") -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.device = device

    def __repr__(self) -> str:
        return f"MockTensor({self.dtype}, {self.shape})"

    def stride(self) -> tuple[int, ...]:
        """Return the strides of a contiguous array, in elements."""
        strides = [1]
        for size in self.shape[:0:-1]:
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))[-len(self.shape) :]

    @staticmethod
    def data_ptr() -> int:
        """Return 0: an address that 16 divides."""
        return 0
