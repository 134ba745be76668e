"""DLPack: what it calls the element types, and where it says that an array is.

The layouts are those of `dlpack.h`, version 1. A capsule holds a `DLManagedTensor`, which begins
with a `DLTensor`; in a versioned one that comes after the version, the context, the deleter and the
flags. PyTorch also offers its tensors through a table of C functions.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from tilewright.ir.types import DTYPES, DType

__all__ = [
    "CPU",
    "CUDA",
    "DlpackTensor",
    "ExchangeFunctions",
    "dtype_word",
    "exchange",
    "open_dlpack",
]

# Kinds of devices.
CPU = 1
CUDA = 2
_CUDA_HOST, _CUDA_MANAGED = 3, 13

_CODES = {
    **dict.fromkeys(("i8", "i16", "i32", "i64"), 0),
    **dict.fromkeys(("u8", "u16", "u32", "u64"), 1),
    **dict.fromkeys(("fp16", "fp32", "fp64"), 2),
    "bf16": 4,
    "i1": 6,
    "fp8e4nv": 10,
    "fp8e4b8": 11,
    "fp8e5": 12,
    "fp8e5b16": 13,
}
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export", ctypes.c_void_p),
        ("take", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


class DlpackTensor(NamedTuple):
    """Where an array is: strides in elements; `dtype` is None for one that kernels do not know."""

    address: int
    dtype: DType | None
    device_kind: int
    device_number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_writable: bool


class ExchangeFunctions(NamedTuple):
    """Addresses of `int view(object, DLTensor*)` and `int current_stream(kind, number, void**)`."""

    view: int
    current_stream: int


def dtype_word(name: str) -> int:
    """Return an element type as the 32 bits of a `DLDataType`; 0 for one that DLPack lacks."""
    code = _CODES.get(name)
    bits = DTYPES[name].storage_bits
    return 0 if code is None else code | bits << 8 | 1 << 16


_DTYPES = {dtype_word(name): DTYPES[name] for name in _CODES}


def open_dlpack(array: Any, stream: int | None = None) -> DlpackTensor:
    """Ask an array where it is; on a GPU, once its memory may be used on a stream.

    The array keeps its memory: the answer is good as long as it lives.
    """
    arguments = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=(1, 3), **arguments)
    except TypeError:  # of before version 1
        capsule = array.__dlpack__(**arguments)
    is_valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    is_valid.argtypes = pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer.restype = ctypes.c_void_p
    if is_valid(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        return _described(whole.tensor, is_writable=not whole.flags & _READ_ONLY)
    # It cannot say so if nobody may write, as to arrays of JAX.
    return _described(_Tensor.from_address(pointer(capsule, b"dltensor")), is_writable=False)


def _described(tensor: _Tensor, *, is_writable: bool) -> DlpackTensor:
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = contiguous_strides(shape)
    # Pinned and managed memory has one address for both sides.
    kind = CUDA if tensor.device_kind == _CUDA_MANAGED else tensor.device_kind
    kind = CPU if kind == _CUDA_HOST else kind
    return DlpackTensor(
        (tensor.data or 0) + tensor.byte_offset,
        _DTYPES.get(tensor.dtype),
        kind,
        tensor.device_number,
        shape,
        strides,
        is_writable,
    )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an array without gaps, in elements, the last axis fastest."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def exchange(torch: Any) -> ExchangeFunctions | None:
    """Return PyTorch's C functions; None without it, or where it has none that are known."""
    tensor_type = getattr(torch, "Tensor", None)
    capsule = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    is_valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    is_valid.argtypes = pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer.restype = ctypes.c_void_p
    if capsule is None or not is_valid(capsule, b"dlpack_exchange_api"):
        return None
    table = _Exchange.from_address(pointer(capsule, b"dlpack_exchange_api"))
    if table.major != 1 or not table.view or not table.current_stream:
        return None
    return ExchangeFunctions(table.view, table.current_stream)
