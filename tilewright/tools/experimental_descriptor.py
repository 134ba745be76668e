"""Descriptors of arrays by their addresses, as programs for Triton before 3.4 make them.

Kernels read and write them by `tl._experimental_descriptor_load` and
`tl._experimental_descriptor_store`, which say what the elements are. New programs use
`tilewright.tools.tensor_descriptor.TensorDescriptor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.types import DTYPES
from tilewright.runtime import cuda
from tilewright.runtime.default_target import has_gpu
from tilewright.runtime.tensor_descriptor import TensorDescriptor

__all__ = ["create_1d_tma_descriptor", "create_2d_tma_descriptor"]


class _Memory:
    """Elements at an address, of which only the size is known."""

    def __init__(self, address: int, element_size: int) -> None:
        name = f"u{8 * element_size}"
        if name not in DTYPES:
            raise LaunchError(
                f"a descriptor of elements of {element_size} bytes", hint="1, 2, 4 or 8 are taken"
            )
        self.address, self.dtype = address, DTYPES[name]
        self.device = "cpu"
        if has_gpu() and (gpu := cuda.find_device_of_address(address)) is not None:
            self.device = f"cuda:{gpu}"

    def data_ptr(self) -> int:
        return self.address


def create_1d_tma_descriptor(ptr: int, dim: int, block_dim: int, element_size: int) -> Any:
    """Return the descriptor of `dim` elements at an address, accessed in blocks of `block_dim`.

    >>> import numpy as np
    >>> create_1d_tma_descriptor(np.zeros(8, np.float32).ctypes.data, 8, 4, 4).block_shape
    [4]
    """
    return _descriptor(ptr, [dim], [block_dim], element_size)


def create_2d_tma_descriptor(
    ptr: int, dim1: int, dim0: int, block_dim1: int, block_dim0: int, element_size: int
) -> Any:
    """Return the descriptor of `dim1` rows of `dim0` elements each, one row behind the other.

    >>> import numpy as np
    >>> create_2d_tma_descriptor(np.zeros((4, 8), np.float16).ctypes.data, 4, 8, 2, 8, 2).strides
    [8, 1]
    """
    return _descriptor(ptr, [dim1, dim0], [block_dim1, block_dim0], element_size)


def _descriptor(
    address: int, sizes: Sequence[int], block: Sequence[int], element_size: int
) -> TensorDescriptor:
    strides = [sizes[-1], 1][-len(sizes) :]
    return TensorDescriptor(_Memory(address, element_size), list(sizes), strides, list(block))
