"""Tensor descriptors: arrays that are accessed in blocks."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic import TensorDescriptor, casts, descriptor
from tilewright.frontend.semantic.values import as_shape, describe, fail
from tilewright.frontend.tensor import Tensor

__all__ = ["load_tensor_descriptor", "make_tensor_descriptor", "store_tensor_descriptor"]


@builtin
def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> TensorDescriptor:
    """Return a descriptor of the array at `base`, which is accessed in blocks of `block_shape`.

    `base` is a scalar pointer, `shape` and `strides` have a scalar integer for each of 1 to 5 axes,
    `block_shape` compile-time ones. All count elements. The last stride is the constant 1; 16 bytes
    divide the base and the other strides, which eager mode checks. Elements outside the array load
    as 0, or NaN with `padding_option="nan"`, and are not stored.

    >>> array = tl.make_tensor_descriptor(x_ptr, [2, 4], [4, 1], [2, 2])
    >>> array.load([0, 3])
    tensor([[3., 0.],
            [7., 0.]], fp32[2, 2])
    >>> array.store([-1, 0], tl.full((2, 2), 9, tl.float32))
    >>> array.load([0, 0])
    tensor([[9., 9.],
            [4., 5.]], fp32[2, 2])
    """
    return descriptor.make_tensor_descriptor(base, shape, strides, block_shape, padding_option)


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any) -> Tensor:
    """Return the block of a tensor descriptor at `offsets`: `desc.load(offsets)`.

    >>> array = tl.make_tensor_descriptor(x_ptr, [8], [1], [4])
    >>> tl.load_tensor_descriptor(array, [6])
    tensor([6., 7., 0., 0.], fp32[4])
    """
    return _descriptor("load_tensor_descriptor", desc).load(offsets)


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Any) -> None:
    """Write `value` to the block of a tensor descriptor at `offsets`: `desc.store(offsets, value)`.

    >>> array = tl.make_tensor_descriptor(x_ptr, [8], [1], [4])
    >>> tl.store_tensor_descriptor(array, [6], tl.arange(0, 4))
    >>> tl.load(x_ptr + 4 + tl.arange(0, 4))
    tensor([4., 5., 0., 1.], fp32[4])
    """
    _descriptor("store_tensor_descriptor", desc).store(offsets, value)


# ---- for programs that were written for Triton before 3.4 --------------------------------------


@builtin
def _experimental_descriptor_load(
    desc_pointer: Any, offsets: Any, shape: Any, dtype: Any
) -> Tensor:
    """Return a block, of `shape`, of what `create_2d_tma_descriptor` describes, as `dtype`."""
    name = "_experimental_descriptor_load"
    tile = _descriptor(name, desc_pointer).load(offsets)
    if tile.shape != as_shape(shape, name):
        fail(
            f"{name}: the blocks of the descriptor are {list(tile.shape)}, not {shape}",
            "name the shape of the block that the descriptor was made with",
        )
    return casts.cast(tile, dtype, bitcast=True)


@builtin
def _experimental_descriptor_store(desc_pointer: Any, value: Any, offsets: Any) -> None:
    """Write a block of what `create_2d_tma_descriptor` describes."""
    array = _descriptor("_experimental_descriptor_store", desc_pointer)
    array.store(offsets, casts.cast(value, array.dtype, bitcast=True))


def _descriptor(name: str, desc: Any) -> TensorDescriptor:
    if not isinstance(desc, TensorDescriptor):
        fail(
            f"{name}: expected a tensor descriptor, got {describe(desc)}",
            "make one: tl.make_tensor_descriptor(base, shape, strides, block_shape)",
        )
    return desc
