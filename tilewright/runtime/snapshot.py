"""Saving arrays before a kernel is tried out, and putting their contents back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.runtime.arrays import view_array
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.wrappers import TensorWrapper

if TYPE_CHECKING:
    from tilewright.runtime import cuda, device_array
else:
    cuda = Deferred("tilewright.runtime.cuda")
    device_array = Deferred("tilewright.runtime.device_array")

__all__ = ["Snapshot", "zero"]


class Snapshot:
    """The elements of some arrays, by parameter name; tuples and descriptors are looked into.

    Raises `LaunchError` for an array whose elements cannot be copied.
    """

    def __init__(self, arrays: Iterable[tuple[str, Any]]) -> None:
        self._saved = [
            (memory, memory.clone() if hasattr(memory, "clone") else memory.copy())
            for name, value in arrays
            for memory in _memories(name, value)
        ]

    def restore(self) -> None:
        """Put the elements back; may be called more than once."""
        for memory, copy in self._saved:
            if hasattr(memory, "copy_"):
                memory.copy_(copy)
            else:
                memory[...] = copy


def zero(name: str, value: Any) -> None:
    """Set every element of an array to zero."""
    for memory in _memories(name, value):
        if hasattr(memory, "zero_"):
            memory.zero_()
        else:
            memory.fill(0)


def _memories(name: str, value: Any) -> Iterator[Any]:
    """The writable arrays in an argument, as something that NumPy or PyTorch can copy."""
    if isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from _memories(f"{name}[{position}]", item)
        return
    if value is None or isinstance(value, bool | int | float):
        return
    if isinstance(value, TensorDescriptor):
        value = value.base
    memory = _copyable(name, value)
    if not isinstance(memory, np.ndarray) or memory.flags.writeable:
        yield memory


def _copyable(name: str, value: Any) -> Any:
    if isinstance(value, TensorWrapper):
        return _copyable(name, value.base)
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        return value.detach()  # the same memory, out of sight of autograd
    if hasattr(value, "clone") and hasattr(value, "copy_"):
        return value
    view = view_array(value, name)
    if view is not None and view.gpu is not None and view.extent is not None:
        return device_array.DeviceBytes(cuda.device(view.gpu), *view.extent)
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        return np.asarray(memoryview(value))
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise LaunchError(
            f"autotuning cannot save the contents of `{name}`, a {type(value).__name__}",
            hint="tune on a NumPy array or a tensor",
        ) from error
