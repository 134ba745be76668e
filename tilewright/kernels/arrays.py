"""What the library asks of PyTorch tensors and NumPy arrays alike.

An *array* is either. PyTorch is optional: where it is not installed, `torch` here is None, and only
NumPy arrays come.
"""

import math
from typing import Any

import ml_dtypes
import numpy as np

try:
    import torch
except ModuleNotFoundError:
    torch = None

__all__ = [
    "address",
    "contiguous",
    "converted",
    "descriptor_strides",
    "dtype_name",
    "dtype_named",
    "empty",
    "empty_images",
    "empty_in_layout_of",
    "empty_like",
    "expanded",
    "folded",
    "for_descriptors",
    "in_order",
    "is_array",
    "is_at_hand",
    "is_channels_last",
    "is_contiguous",
    "is_tensor",
    "itemsize",
    "on_cpu",
    "permuted",
    "product_precision",
    "strides",
    "torch",
]


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor of PyTorch, a fake one of `torch.compile` included."""
    return torch is not None and isinstance(x, torch.Tensor)


def is_array(x: Any) -> bool:
    """Whether `x` is what the library works on: a tensor of PyTorch, or an array of NumPy."""
    return is_tensor(x) or isinstance(x, np.ndarray)


def on_cpu(x: Any) -> bool:
    """Whether an array is in the memory of the host."""
    return not is_tensor(x) or x.device.type == "cpu"


def is_at_hand(x: Any) -> bool:
    """Whether the elements of an array can be looked at, without waiting for a GPU.

    Those of tensors that stand for others, while PyTorch traces or transforms a function, cannot.
    """
    if not is_tensor(x):
        return True
    if torch.compiler.is_compiling():
        return False
    is_seen_by_others = (
        torch._C._len_torch_dispatch_stack()  # noqa: SLF001 - modes, such as that of fake tensors
        or torch._C._are_functorch_transforms_active()  # noqa: SLF001
        or torch._C._get_tracing_state() is not None  # noqa: SLF001 - torch.jit.trace
    )
    is_ordinary = type(x) in {torch.Tensor, torch.nn.Parameter} and x.device.type == "cpu"
    return is_ordinary and not is_seen_by_others


def dtype_name(x: Any) -> str:
    """Return the name of the element type: "float32", "bfloat16", "int64", ..."""
    return str(x.dtype).removeprefix("torch.")


def dtype_named(name: str, like: Any) -> Any:
    """Return the dtype of that name, in the package that `like` is from."""
    if is_tensor(like):
        return getattr(torch, name)
    return np.dtype(getattr(ml_dtypes, name, name))


def empty(shape: tuple[int, ...], like: Any, dtype: str | None = None) -> Any:
    """Return a new contiguous array where `like` is, of its dtype unless another is named."""
    element = like.dtype if dtype is None else dtype_named(dtype, like)
    if is_tensor(like):
        return torch.empty(shape, dtype=element, device=like.device)
    return np.empty(shape, element)


def empty_like(x: Any, dtype: str | None = None) -> Any:
    """Return a new contiguous array of the shape of `x`."""
    return empty(tuple(x.shape), x, dtype)


def empty_in_layout_of(x: Any) -> Any:
    """Return a new array of the shape of `x`, without gaps, with dimensions in the same order."""
    return (torch if is_tensor(x) else np).empty_like(x)


def is_channels_last(x: Any) -> bool:
    """Whether `x` is a tensor of images whose channels are neighbours, before columns and rows."""
    if not is_tensor(x) or x.ndim != 4:
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        size, step = x.shape[dim], x.stride(dim)
        if size == 0 or step < least:
            return False
        # Of a single row of single channels either order is true: it is the usual one.
        if dim == 0 and least == x.stride(1):
            return False
        least = step * size if size > 1 else step
    return bool(x.stride(1) > 0)


def empty_images(
    shape: tuple[int, ...], like: Any, dtype: str | None = None, *, channels_last: bool
) -> Any:
    """Return what `empty` does, with channels last in memory if asked for."""
    if not channels_last:
        return empty(shape, like, dtype)
    element = like.dtype if dtype is None else dtype_named(dtype, like)
    return torch.empty(shape, dtype=element, device=like.device, memory_format=torch.channels_last)


def in_order(x: Any, channels_last: bool) -> Any:
    """Return `x`, or a copy of it that has no gaps, with channels last or in row-major order."""
    return x.contiguous(memory_format=torch.channels_last) if channels_last else contiguous(x)


def strides(x: Any) -> tuple[int, ...]:
    """Return the distances between neighbours along each dimension, in elements."""
    if is_tensor(x):
        return tuple(x.stride())
    return tuple(stride // x.itemsize for stride in x.strides)


def contiguous(x: Any) -> Any:
    """Return `x`, or a copy of it in row-major order where it is not in that order."""
    return x.contiguous() if is_tensor(x) else np.ascontiguousarray(x)


def converted(x: Any, dtype: str) -> Any:
    """Return `x` in the dtype of that name."""
    return x.to(dtype_named(dtype, x)) if is_tensor(x) else x.astype(dtype_named(dtype, x))


def expanded(x: Any, shape: tuple[int, ...]) -> Any:
    """Return `x` repeated up to a shape, in row-major order."""
    return contiguous((torch if is_tensor(x) else np).broadcast_to(x, shape))


def permuted(x: Any, dims: tuple[int, ...]) -> Any:
    """Return `x` with its dimensions in another order, in row-major order."""
    return contiguous(x.permute(dims) if is_tensor(x) else x.transpose(dims))


def is_contiguous(x: Any) -> bool:
    """Whether the elements of `x` lie in row-major order, without gaps."""
    return bool(x.is_contiguous() if is_tensor(x) else x.flags.c_contiguous)


def folded(x: Any, dim: int) -> Any:
    """Return `x` as (before, along, after) `dim`: a view where there is one, else a copy.

    >>> import numpy as np
    >>> folded(np.zeros((2, 3, 4, 5)), 1).shape
    (2, 3, 20)
    """
    shape = tuple(x.shape)
    return x.reshape((math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])))


def address(x: Any) -> int:
    """Return where the first element of an array is in memory."""
    return int(x.data_ptr() if is_tensor(x) else x.ctypes.data)


def itemsize(x: Any) -> int:
    """Return the bytes of an element."""
    return int(x.element_size() if is_tensor(x) else x.itemsize)


def for_descriptors(x: Any) -> Any:
    """Return `x`, or a copy, so that a tensor descriptor can be made of it.

    The last axis is contiguous, and 16 bytes divide the address and the other strides.
    """
    size = itemsize(x)
    *steps, last = strides(x)
    outer = [step for step, length in zip(steps, x.shape, strict=False) if length > 1]
    is_aligned = address(x) % 16 == 0 and all(step * size % 16 == 0 for step in outer)
    if is_aligned and min(outer, default=1) > 0 and (last == 1 or x.shape[-1] == 1):
        return x
    *rows, width = x.shape
    room = empty((*rows, width + -width % (16 // size)), x)
    copy = room[..., :width]
    copy[...] = x
    return copy


def descriptor_strides(x: Any) -> tuple[int, ...]:
    """Return all strides but the last, for an array from `for_descriptors`."""
    return tuple(
        step if size > 1 else 16 for step, size in zip(strides(x)[:-1], x.shape, strict=False)
    )


def product_precision(x: Any) -> str:
    """Return how fp32 is multiplied on a GPU: as PyTorch's own products are asked to."""
    if is_tensor(x) and not on_cpu(x) and dtype_name(x) == "float32":
        return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "ieee"
