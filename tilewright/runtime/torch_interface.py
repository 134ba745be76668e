"""What machine code knows of PyTorch's tensors: their keys in memory, and PyTorch's C interface.

A Python tensor holds a pointer to its `at::Tensor`, and that object a set of dispatch keys, 64 bits
that say where the tensor is and whether its memory is just its elements: not for one that is
negated lazily, sparse, quantized or wrapped by a transformation.

The C functions are part of the ABI that PyTorch keeps stable for compiled models (`shim.h`). They
take the address of that pointer. Each is a few nanoseconds, where `data_ptr()` makes objects of
Python and DLPack's view counts references.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.ir.types import DTYPES

__all__ = ["TensorKeys", "TorchInterface", "tensor_keys", "torch_interface"]


class TensorKeys(NamedTuple):
    """Where a tensor has its keys, and those that it may have.

    `handle_offset` is where a Python tensor has the pointer to the object that has its keys at
    `keys_offset`. The others are what a tensor has at most, on a kind of device, if its memory is
    just its elements.
    """

    handle_offset: int
    keys_offset: int
    usual_on_cpu: int
    usual_on_gpu: int


class TorchInterface(NamedTuple):
    """Addresses of `int get(at::Tensor*, result*)`, and the numbers of the element types.

    Those that PyTorch lacks are not in `dtypes`.
    """

    get_data: int
    get_dtype: int
    get_device_index: int
    get_numel: int
    dtypes: Mapping[str, int]


# Behind the head of an object, or behind a flag that says who owns it.
_HANDLE_OFFSETS = (16, 24)
_KEYS_OFFSETS = range(0, 256, 8)


def tensor_keys() -> TensorKeys | None:
    """Return where tensors of the PyTorch that is loaded have their keys; None if not as expected.

    They are found by tensors of several kinds, which tell their keys.
    """
    torch = sys.modules.get("torch")
    try:
        tensors = _tensors(torch)
        handle_offset = _handle_offset(tensors[0])
        offsets = set(_KEYS_OFFSETS)
        for tensor in tensors:
            place = ctypes.c_uint64.from_address(id(tensor) + handle_offset).value
            known = torch._C._dispatch_keys(tensor).raw_repr()  # type: ignore[union-attr] # noqa: SLF001
            offsets = {o for o in offsets if ctypes.c_uint64.from_address(place + o).value == known}
        (keys_offset,) = offsets
        return TensorKeys(handle_offset, keys_offset, _usual(torch, "CPU"), _usual(torch, "CUDA"))
    except (AttributeError, RuntimeError, StopIteration, TypeError, ValueError):
        return None


def _tensors(torch: Any) -> list[Any]:
    ordinary = torch.empty(2, device="cpu")
    return [ordinary, torch._neg_view(ordinary), torch.empty(2, device="meta")]  # noqa: SLF001


def _handle_offset(tensor: Any) -> int:
    """Return where tensors have their `at::Tensor`, a pointer: that object tells its address."""
    places = (offset for offset in _HANDLE_OFFSETS if offset + 8 <= type(tensor).__basicsize__)
    return next(
        offset
        for offset in places
        if ctypes.c_uint64.from_address(id(tensor) + offset).value == tensor._cdata  # noqa: SLF001
    )


def _usual(torch: Any, device: str) -> int:
    """All keys of ordinary tensors, whatever is recorded of them for gradients."""
    keys = torch._C.DispatchKey  # noqa: SLF001
    names = (device, f"Autograd{device}", f"Autocast{device}", "ADInplaceOrView")
    usual = 0
    for name in names:
        usual |= torch._C.DispatchKeySet(getattr(keys, name)).raw_repr()  # noqa: SLF001
    return usual


def torch_interface() -> TorchInterface | None:
    """Return the interface of the PyTorch that is loaded; None where it is not as expected."""
    torch = sys.modules.get("torch")
    try:
        library = ctypes.CDLL(torch._C.__file__)  # type: ignore[union-attr]  # noqa: SLF001
        functions = {
            name: getattr(library, f"aoti_torch_get_{name}")
            for name in ("data_ptr", "dtype", "device_index", "numel")
        }
        found = TorchInterface(
            get_data=_address(functions["data_ptr"]),
            get_dtype=_address(functions["dtype"]),
            get_device_index=_address(functions["device_index"]),
            get_numel=_address(functions["numel"]),
            dtypes=_dtypes(library),
        )
        is_right = _is_right(torch, found, functions)
    except (AttributeError, OSError, StopIteration):
        return None
    return found if is_right else None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _dtypes(library: ctypes.CDLL) -> dict[str, int]:
    # NumPy and ml_dtypes use PyTorch's names.
    functions = {
        name: getattr(library, f"aoti_torch_dtype_{dtype.numpy.name}", None)
        for name, dtype in DTYPES.items()
    }
    return {name: function() for name, function in functions.items() if function is not None}


def _is_right(torch: Any, found: TorchInterface, functions: Mapping[str, Any]) -> bool:
    """Whether the functions say of a tensor what it says itself."""
    tensor = torch.empty(3, dtype=torch.int16, device="cpu")[1:]
    handle, number, wide = id(tensor) + _handle_offset(tensor), ctypes.c_int32(), ctypes.c_int64()

    def answer(name: str, result: Any) -> Any:
        status = functions[name](ctypes.c_void_p(handle), ctypes.byref(result))
        return None if status else result.value

    return (
        answer("data_ptr", wide) == tensor.data_ptr()
        and answer("dtype", number) == found.dtypes["i16"]
        and answer("device_index", number) is not None
        and answer("numel", wide) == 2
    )
