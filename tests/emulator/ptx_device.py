"""Launching the same PTX on a GPU, through the driver, with the emulator's arguments."""

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.emulator import Emulator, Report, TensorMap
from tilewright.emulator.emulator import _argument_bytes
from tilewright.emulator.tensor_map import decode_tensor_map

_SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PLENTY = 48 << 10


class Device(Emulator):
    """Stands in for the emulator: same construction, same `launch`, run by the first GPU."""

    def __init__(self, ptx_text: str) -> None:
        super().__init__(ptx_text)
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            pytest.skip("there is no CUDA driver")
        self._check(self.cuda.cuInit(0))
        context, device, self.handle = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
        self._check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self._check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(self.cuda.cuCtxSetCurrent(context))
        text = ptx_text.encode() + b"\0"
        self._check(self.cuda.cuModuleLoadData(ctypes.byref(self.handle), text))

    def launch(
        self,
        kernel_name: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        **options: Any,
    ) -> Report:
        function = ctypes.c_void_p()
        name = kernel_name.encode()
        self._check(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.handle, name))
        shared_bytes = options.get("shared_bytes", 0)
        if shared_bytes > _PLENTY:
            self._check(self.cuda.cuFuncSetAttribute(function, _SHARED_ATTRIBUTE, shared_bytes))
        held = [
            self._hold(parameter, argument)
            for parameter, argument in zip(
                self.module.kernels[kernel_name].parameters, arguments, strict=True
            )
        ]
        pointers = (ctypes.c_void_p * len(held))(*(raw.ctypes.data for raw, _, _ in held))
        sizes = [*itertools.islice(itertools.chain(grid, (1, 1, 1)), 3)]
        sizes += itertools.islice(itertools.chain(block, (1, 1, 1)), 3)
        self._check(self.cuda.cuLaunchKernel(function, *sizes, shared_bytes, None, pointers, None))
        self._check(self.cuda.cuCtxSynchronize())
        for _, array, pointer in held:
            if array is not None and array.flags.writeable:
                self._copy("cuMemcpyDtoH_v2", array.ctypes.data, pointer, array)
                self._check(self.cuda.cuMemFree_v2(ctypes.c_uint64(pointer)))
        return Report(kernel_name)

    def _hold(self, parameter: Any, argument: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
        """Return a parameter's bytes, aligned, and the array behind it with its place."""
        array = argument.array if isinstance(argument, TensorMap) else argument
        if not isinstance(array, np.ndarray) or not array.ndim:
            raw = _aligned(_argument_bytes(parameter, argument), parameter.size_bytes)
            return raw, None, 0
        place = ctypes.c_uint64()
        self._check(
            self.cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(max(array.nbytes, 1)))
        )
        self._copy("cuMemcpyHtoD_v2", place.value, array.ctypes.data, array)
        if isinstance(argument, TensorMap):
            return self._encode(argument, place.value), array, place.value
        return _aligned(place.value.to_bytes(8, "little"), 8), array, place.value

    def _encode(self, map: TensorMap, place: int) -> np.ndarray:
        encoded = map.encode()
        view = decode_tensor_map(encoded)
        raw = _aligned(b"", 128)
        self._check(
            self.cuda.cuTensorMapEncodeTiled(
                ctypes.c_void_p(raw.ctypes.data),
                encoded[17],
                len(view.box),
                ctypes.c_void_p(place),
                (ctypes.c_uint64 * 5)(*view.extents),
                (ctypes.c_uint64 * 5)(*view.strides[1:]),
                (ctypes.c_uint32 * 5)(*view.box),
                (ctypes.c_uint32 * 5)(*view.element_strides),
                0,
                view.swizzle,
                2,
                int(view.fill_nan),
            )
        )
        return raw

    def _copy(self, name: str, to: int, source: int, array: np.ndarray) -> None:
        copy = getattr(self.cuda, name)
        self._check(
            copy(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(array.nbytes))
        )

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA error {code}: {text.value!r}")


def _aligned(raw: bytes, size: int) -> np.ndarray:
    storage = np.zeros(size + 64, np.uint8)
    first = -storage.ctypes.data % 64
    view = storage[first : first + size]
    view[: len(raw)] = np.frombuffer(raw, np.uint8)
    return view
