"""Arrays of every kind that a kernel takes, seen as one: an element type, an address, an extent.

An array is whatever has memory on this machine or on one of its NVIDIA GPUs: NumPy arrays, tensors
of PyTorch, objects with `data_ptr()` and `dtype`, `__array_interface__`, `__cuda_array_interface__`
(CuPy, Numba), DLPack (JAX), and the buffer protocol (`bytearray`, `memoryview`, `array.array`).
Nothing is copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.ir.types import DTYPES, DType, dtype_of_numpy
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.tensor_kinds import address_of, require_elements
from tilewright.runtime.wrappers import TensorWrapper

if TYPE_CHECKING:
    from tilewright.runtime import cuda, dlpack
else:
    cuda = Deferred("tilewright.runtime.cuda")
    dlpack = Deferred("tilewright.runtime.dlpack")

__all__ = ["ELEMENT_TYPES", "ArrayView", "dtype_of", "view_array"]

_BY_NAME: dict[str, DType] = {
    **DTYPES,
    **{dtype.long_name: dtype for dtype in DTYPES.values()},
    "bool": DTYPES["i1"],
    "float8_e4m3fn": DTYPES["fp8e4nv"],
    "float8_e5m2": DTYPES["fp8e5"],
    "float8_e4m3fnuz": DTYPES["fp8e4b8"],
    "float8_e5m2fnuz": DTYPES["fp8e5b16"],
}


ELEMENT_TYPES = "bools, integers, fp16, bf16, fp32, fp64 and fp8 are supported"

# The default stream, as DLPack and CUDA name it.
_LEGACY_STREAM = 1
_VERSION_WITH_STREAMS = 3  # of __cuda_array_interface__


@dataclass(slots=True)
class ArrayView:
    """Where an array lies: `address` is that of its first element.

    `gpu` is the number of the GPU whose memory that is, None for this machine's own. `stream` is
    the one that the array is used on, where it says so. `bounds` are the address and the size in
    bytes of what the elements span, where the array does not tell them itself. Memory that
    `is_lent` may be given to others as soon as the array is gone, although a kernel still runs.
    """

    dtype: DType
    address: int
    is_writable: bool
    array: Any
    gpu: int | None = None
    stream: int | None = None
    bounds: tuple[int, int] | None = None
    is_lent: bool = False

    @property
    def extent(self) -> tuple[int, int] | None:
        """The address and the size in bytes of its memory, or None where that is not known.

        The memory of a view is that of the array it was taken from.
        """
        if self.bounds is not None:
            return self.bounds
        if not isinstance(self.array, np.ndarray):
            if not hasattr(self.array, "untyped_storage"):
                return None
            storage = self.array.untyped_storage()
            return storage.data_ptr(), storage.nbytes()
        owner = self.array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        return low, high - low


def dtype_of(value: object) -> DType | None:
    """Return the element type that a dtype of the language, NumPy or PyTorch, or a name stands for.

    None where there is none.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and issubclass(value, np.generic):
        value = np.dtype(value)
    if isinstance(value, np.dtype):
        return dtype_of_numpy(value)
    return _BY_NAME.get(str(value).removeprefix("torch."))


def view_array(value: Any, name: str) -> ArrayView | None:
    """Return where the memory of `value` is, or None if it is no array.

    Raises `LaunchError` (naming the parameter `name`) for arrays that no kernel can take: of other
    element types, of another byte order, unaligned, or on another device.
    """
    if isinstance(value, np.ndarray):
        return _view_numpy(value, name)
    if isinstance(value, TensorWrapper):
        return _view_wrapper(value, name)
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _view_tensor(value, name)
    if isinstance(value, np.generic | str | type):
        return None
    if hasattr(value, "__array_interface__"):
        return _view_numpy(np.asarray(value), name)
    if _offers(value, "__cuda_array_interface__"):
        return _view_cuda(value, name)
    if hasattr(value, "__dlpack__"):
        return _view_dlpack(value, name)
    try:
        buffer = memoryview(value)
    except TypeError:
        return None
    return _view_buffer(buffer, name)


def _offers(value: Any, name: str) -> bool:
    """Whether a value has an attribute, even one that says why it has no value."""
    try:
        return hasattr(value, name)
    except Exception:  # noqa: BLE001 - whatever the property raises
        return True


# ---- each kind ------------------------------------------------------------------------------


def _view_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayView:
    if type(array) is not np.ndarray and hasattr(array, "mask"):
        raise LaunchError(
            f"`{name}`: a masked array would lose its mask", hint="pass `.data` and the mask apart"
        )
    dtype = _numpy_element_type(array.dtype, name)
    address: int = array.__array_interface__["data"][0]
    if address % dtype.itemsize:
        raise LaunchError(
            f"`{name}`: the elements are not aligned to their {dtype.itemsize} bytes",
            hint="pass a copy: `array.copy()`",
        )
    return ArrayView(dtype, address, array.flags.writeable, array)


def _numpy_element_type(dtype: np.dtype[Any], name: str) -> DType:
    if dtype.isnative and (found := dtype_of_numpy(dtype)) is not None:
        return found
    hint = ELEMENT_TYPES
    if not dtype.isnative:
        hint = "convert it to this machine's byte order: `array.astype(array.dtype.newbyteorder())`"
    elif dtype.kind == "c":
        hint = "pass the parts as reals: `array.view(np.float32)` (or np.float64)"
    elif dtype.kind == "f":
        hint = "convert it: `array.astype(np.float64)`"
    elif dtype.kind in "mM":
        hint = "pass the ticks: `array.view(np.int64)`"
    elif dtype.names is not None:
        hint = "pass the fields one by one: `array['field']` is a view"
    elif dtype.kind == "O":
        hint = "convert it: `array.astype(np.float32)`"
    raise LaunchError(f"`{name}`: a kernel cannot take an array of dtype {str(dtype)!r}", hint=hint)


def _view_tensor(tensor: Any, name: str) -> ArrayView:
    require_elements(tensor, name)
    dtype = dtype_of(tensor.dtype)
    if dtype is None:
        hint = ELEMENT_TYPES
        if "complex" in str(tensor.dtype):
            hint = "pass the parts as reals: `torch.view_as_real(tensor)`"
        raise LaunchError(
            f"`{name}`: a kernel cannot take a tensor of dtype {tensor.dtype}", hint=hint
        )
    device = str(getattr(tensor, "device", "cpu") or "cpu")
    kind, _, number = device.partition(":")
    if kind not in {"cpu", "cuda"}:
        raise _on_another_device(name, device)
    gpu = int(number or 0) if kind == "cuda" else None
    bounds = getattr(tensor, "extent", None)
    return ArrayView(
        dtype, address_of(tensor, name), is_writable=True, array=tensor, gpu=gpu, bounds=bounds
    )


def _view_wrapper(wrapper: TensorWrapper, name: str) -> ArrayView:
    view = view_array(wrapper.base, name)
    if view is None:
        raise LaunchError(
            f"`{name}`: a {type(wrapper.base).__name__} has no memory to reinterpret",
            hint="pass `tilewright.reinterpret` an array",
        )
    return replace(view, dtype=wrapper.dtype)


def _view_cuda(value: Any, name: str) -> ArrayView:
    """View an array by `__cuda_array_interface__`, which says all but the GPU's number.

    Before version 3 it does not say either when the array is ready.
    """
    has_dlpack = hasattr(value, "__dlpack__")
    try:
        interface = value.__cuda_array_interface__
    except (AttributeError, TypeError, ValueError, RuntimeError):
        # JAX has it on the CPU too, and for types that NumPy does not know.
        if has_dlpack:
            return _view_dlpack(value, name)
        raise
    if has_dlpack and interface.get("version", 0) < _VERSION_WITH_STREAMS:
        return _view_dlpack(value, name)
    dtype = _numpy_element_type(np.dtype(interface["typestr"]), name)
    if interface.get("mask") is not None:
        raise LaunchError(
            f"`{name}`: a masked array would lose its mask", hint="pass the data and the mask apart"
        )
    address, is_read_only = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is None:
        strides = tuple(dtype.itemsize * step for step in dlpack.contiguous_strides(shape))
    return ArrayView(
        dtype,
        int(address),
        not is_read_only,
        value,
        gpu=_gpu_of_address(int(address), value, name),
        stream=interface.get("stream"),
        bounds=_bounds(int(address), shape, strides, dtype.itemsize),
    )


def _gpu_of_address(address: int, value: Any, name: str) -> int:
    if address == 0:
        # Without elements: CuPy says where they would be, for others it does not matter.
        return int(getattr(getattr(value, "device", None), "id", 0))
    try:
        return cuda.device_of_address(address)
    except LaunchError as error:
        raise LaunchError(f"`{name}`: {error.message}", hint=error.hint) from error


def _view_dlpack(value: Any, name: str) -> ArrayView:
    try:
        kind, _ = value.__dlpack_device__()
        if kind not in {dlpack.CPU, dlpack.CUDA}:
            raise _on_another_device(name, "another device")
        if kind == dlpack.CPU:
            with contextlib.suppress(BufferError, RuntimeError):
                return _view_numpy(np.from_dlpack(value), name)
        # The array is ready on the default stream, as kernels find it there.
        found = dlpack.open_dlpack(value, _LEGACY_STREAM if kind == dlpack.CUDA else None)
    except (BufferError, RuntimeError, ValueError) as error:
        raise LaunchError(
            f"`{name}`: the {type(value).__name__} does not give its memory: {error}",
            hint="pass a NumPy array: `np.asarray(value)`",
        ) from error
    if found.dtype is None:
        raise LaunchError(
            f"`{name}`: a kernel cannot take an array of dtype {value.dtype}",
            hint=ELEMENT_TYPES,
        )
    size, is_on_gpu = found.dtype.itemsize, kind == dlpack.CUDA
    return ArrayView(
        found.dtype,
        found.address,
        found.is_writable,
        value,
        gpu=found.device_number if is_on_gpu else None,
        stream=_LEGACY_STREAM if is_on_gpu else None,
        bounds=_bounds(found.address, found.shape, [size * s for s in found.strides], size),
        is_lent=is_on_gpu,
    )


def _bounds(
    address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return where the elements lie: the lowest address, and how many bytes from there."""
    if 0 in shape:
        return address, 0
    steps = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return address + low, high - low + itemsize


def _view_buffer(buffer: memoryview, name: str) -> ArrayView:
    try:
        array = np.asarray(buffer)
    except (ValueError, TypeError) as error:
        raise LaunchError(
            f"`{name}`: a kernel cannot take a buffer of format {buffer.format!r}",
            hint="pass a NumPy array",
        ) from error
    return _view_numpy(array, name)


def _on_another_device(name: str, device: str) -> LaunchError:
    return LaunchError(
        f"`{name}`: the array is on {device}; kernels run on the CPU and on NVIDIA GPUs",
        hint="copy it here first: `tensor.cpu()`",
    )
