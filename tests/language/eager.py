"""Values for tests that call the language outside a kernel, evaluated at once."""

import numpy as np

from tilewright.frontend.context import Evaluated
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, PointerType, TileType, dtype_of_numpy

__all__ = ["array", "pointer", "scalar", "tile"]


def tile(values, dtype=None):
    """A tile from an array (or list), in the type of the array or the one named."""
    values = np.asarray(values)
    element = dtype_of_numpy(values.dtype) if dtype is None else DTYPES[dtype]
    return Tensor(Evaluated(TileType(element, values.shape), values.astype(element.numpy)))


def scalar(value, dtype):
    """A runtime scalar, as a kernel's argument is."""
    return tile(value, dtype)


def pointer(memory, *, const=False):
    """The address of an array's first element."""
    element = PointerType(dtype_of_numpy(memory.dtype), const)
    return Tensor(Evaluated(TileType(element), memory.ctypes.data))


def array(tensor):
    """The values of a tensor."""
    return tensor.value.array
