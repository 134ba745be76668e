"""Tensor descriptors of the host: an array, and the blocks in which a kernel accesses it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.ops.descriptor import (
    ALIGNMENT_BYTES,
    MAX_DESCRIPTOR_RANK,
    PAD_ROWS,
    Padding,
    stride_mistake,
)
from tilewright.runtime.arrays import ArrayView, view_array
from tilewright.runtime.wrappers import TensorWrapper

__all__ = ["LARGEST_SIZE", "TensorDescriptor", "checked_parts"]

# The number of elements along an axis.
LARGEST_SIZE = 2**31 - 1
_PADDINGS = tuple(Padding)

Numbers = tuple[int, ...]


@dataclass(slots=True, weakref_slot=True)
class TensorDescriptor:
    """An array that a kernel accesses in blocks of `block_shape`: an argument of a launch.

    `base` is what the kernel would take as an array; `shape` and `strides` describe it in elements,
    along 1 to 5 axes. The last stride is 1; 16 bytes divide the address and the other strides.
    Elements outside load as 0, or NaN with `padding="nan"`. With `round_f32_to_tf32`, fp32 elements
    are rounded to tf32 when they are loaded. The fields may be changed between launches.

    Raises `LaunchError` for what is no such array.

    >>> import numpy as np
    >>> TensorDescriptor(np.zeros((4, 8), np.float32), [4, 6], [8, 1], [2, 4]).shape
    [4, 6]
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        checked_parts(self, "base")

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """Return the descriptor of an array of NumPy, PyTorch or DLPack with its own strides.

        >>> import numpy as np
        >>> TensorDescriptor.from_tensor(np.zeros((4, 8), np.float32)[:, :6], [2, 4]).strides
        [8, 1]
        """
        shape, strides = list(map(int, tensor.shape)), _strides(tensor)
        return TensorDescriptor(
            tensor, shape, strides, list(block_shape), padding, round_f32_to_tf32
        )

    @property
    def dtype(self) -> Any:
        """The type of the elements, as the array has it."""
        return self.base.dtype


def _strides(tensor: Any) -> list[int]:
    """Return the strides of an array in elements."""
    if isinstance(tensor, TensorWrapper):
        return _strides(tensor.base)
    if callable(getattr(tensor, "stride", None)):
        return list(map(int, tensor.stride()))
    view = view_array(tensor, "tensor")
    if view is None or not isinstance(view.array, np.ndarray):
        raise LaunchError(
            f"TensorDescriptor: a {type(tensor).__name__} does not tell its strides",
            hint="name them: `TensorDescriptor(base, shape, strides, block_shape)`",
        )
    return [n // view.array.itemsize for n in view.array.strides]


def checked_parts(
    descriptor: TensorDescriptor, name: str
) -> tuple[ArrayView, Numbers, Numbers, Numbers]:
    """Return where the array of a descriptor lies, its shape, strides and the shape of the block.

    Raises `LaunchError`, which names the parameter `name`, where it is not what kernels assume.
    """
    view = view_array(descriptor.base, name)
    if view is None:
        raise LaunchError(
            f"`{name}`: the base of a TensorDescriptor is an array, not a "
            f"{type(descriptor.base).__name__}",
            hint="pass the array itself: `TensorDescriptor.from_tensor(array, block_shape)`",
        )
    where = f"`{name}`: TensorDescriptor"
    shape = _numbers(where, "shape", descriptor.shape)
    strides = _numbers(where, "strides", descriptor.strides)
    block = _numbers(where, "block_shape", descriptor.block_shape)
    rank = len(block)
    if not 1 <= rank <= MAX_DESCRIPTOR_RANK:
        raise LaunchError(
            f"{where}: 1 to {MAX_DESCRIPTOR_RANK} axes, block_shape has {rank}",
            hint="join axes: `array.reshape(...)`",
        )
    if not len(shape) == len(strides) == rank:
        raise LaunchError(
            f"{where}: shape, strides and block_shape need a number for each axis, they have "
            f"{len(shape)}, {len(strides)} and {rank}",
            hint="`TensorDescriptor.from_tensor(array, block_shape)` takes them from the array",
        )
    if min(shape) < 0 or max(shape) > LARGEST_SIZE:
        raise LaunchError(
            f"{where}: the sizes {list(shape)} are not all from 0 to 2**31 - 1",
            hint="describe a part of the array, or another shape of it",
        )
    if min(block) < 1:
        raise LaunchError(
            f"{where}: the sizes of the block must be positive, not {list(block)}",
            hint="the block has a size of at least 1 along each axis",
        )
    _check_layout(where, view, strides)
    _check_padding(where, view, descriptor.padding)
    return view, shape, strides, block


def _numbers(where: str, field: str, values: Any) -> Numbers:
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise LaunchError(
            f"{where}: {field} is a sequence of ints, not {values!r}",
            hint="pass a list, for instance `list(array.shape)`",
        ) from None


def _check_layout(where: str, view: ArrayView, strides: Numbers) -> None:
    if view.address % ALIGNMENT_BYTES:
        raise LaunchError(
            f"{where}: the address of the array, {view.address:#x}, is not a multiple of "
            f"{ALIGNMENT_BYTES} bytes",
            hint="pass the whole array, or a copy of the part",
        )
    if strides[-1] != 1:
        raise LaunchError(
            f"{where}: the last axis must be contiguous, its stride is {strides[-1]}",
            hint="pass a contiguous copy, or describe the transposed array",
        )
    for axis, stride in enumerate(strides[:-1]):
        mistake = stride_mistake(axis, stride, view.dtype)
        if mistake:
            raise LaunchError(f"{where}: {mistake}", hint=PAD_ROWS)


def _check_padding(where: str, view: ArrayView, padding: Any) -> None:
    if padding not in _PADDINGS:
        raise LaunchError(
            f"{where}: padding is 'zero' or 'nan', not {padding!r}", hint="leave it out for zeros"
        )
    if padding == Padding.NAN and not view.dtype.is_floating():
        raise LaunchError(
            f"{where}: elements of {view.dtype} have no NaN to pad with",
            hint="leave `padding` out: what is outside reads as zero",
        )
