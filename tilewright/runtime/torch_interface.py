"""PyTorch's C interface: how machine code asks a tensor where it is.

These functions are part of the ABI that PyTorch keeps stable for compiled models (`shim.h`). They
take the address of the `at::Tensor` inside of a Python tensor. Each is a few nanoseconds, where
`data_ptr()` makes objects of Python and DLPack's view counts references.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.ir.types import DTYPES

__all__ = ["TorchInterface", "torch_interface"]


class TorchInterface(NamedTuple):
    """Addresses of `int get(at::Tensor*, result*)`, and the numbers that they answer.

    `offset` is where the `at::Tensor` lies in a Python tensor. Element types that PyTorch lacks
    are not in `dtypes`.
    """

    offset: int
    get_data: int
    get_dtype: int
    get_device_type: int
    get_device_index: int
    cpu: int
    cuda: int
    dtypes: Mapping[str, int]


# Behind the head of an object, or behind a flag that says who owns it.
_OFFSETS = (16, 24)


def torch_interface() -> TorchInterface | None:
    """Return the interface of the PyTorch that is loaded; None where it is not as expected."""
    torch = sys.modules.get("torch")
    try:
        library = ctypes.CDLL(torch._C.__file__)  # type: ignore[union-attr]  # noqa: SLF001
        functions = {
            name: getattr(library, f"aoti_torch_get_{name}")
            for name in ("data_ptr", "dtype", "device_type", "device_index")
        }
        found = TorchInterface(
            offset=_offset(torch),
            get_data=_address(functions["data_ptr"]),
            get_dtype=_address(functions["dtype"]),
            get_device_type=_address(functions["device_type"]),
            get_device_index=_address(functions["device_index"]),
            cpu=library.aoti_torch_device_type_cpu(),
            cuda=library.aoti_torch_device_type_cuda(),
            dtypes=_dtypes(library),
        )
        is_right = _is_right(torch, found, functions)
    except (AttributeError, OSError, StopIteration):
        return None
    return found if is_right else None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _offset(torch: Any) -> int:
    """Return where tensors have their `at::Tensor`, a pointer: that object tells its address."""
    tensor = torch.empty(0)
    size = type(tensor).__basicsize__
    places = (offset for offset in _OFFSETS if offset + 8 <= size)
    return next(
        offset
        for offset in places
        if ctypes.c_uint64.from_address(id(tensor) + offset).value == tensor._cdata  # noqa: SLF001
    )


def _dtypes(library: ctypes.CDLL) -> dict[str, int]:
    # NumPy and ml_dtypes use PyTorch's names.
    functions = {
        name: getattr(library, f"aoti_torch_dtype_{dtype.numpy.name}", None)
        for name, dtype in DTYPES.items()
    }
    return {name: function() for name, function in functions.items() if function is not None}


def _is_right(torch: Any, found: TorchInterface, functions: Mapping[str, Any]) -> bool:
    """Whether the functions say of a tensor what it says itself."""
    tensor = torch.empty(3, dtype=torch.int16)[1:]
    handle, data, number = id(tensor) + found.offset, ctypes.c_void_p(), ctypes.c_int32()

    def answer(name: str, result: Any) -> Any:
        status = functions[name](ctypes.c_void_p(handle), ctypes.byref(result))
        return None if status else result.value

    return (
        answer("data_ptr", data) == tensor.data_ptr()
        and answer("dtype", number) == found.dtypes["i16"]
        and answer("device_type", number) == found.cpu
        and answer("device_index", number) is not None
    )
