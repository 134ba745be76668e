"""The CUDA driver, through ctypes: nothing but `libcuda` is needed, and only when a GPU is used."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from tilewright.errors import LaunchError, Unsupported
from tilewright.target import NvidiaTarget, nvidia_target

__all__ = ["Device", "Function", "Module", "current_stream", "device"]

# Numbers of cuda.h.
_SUCCESS = 0
_INVALID_PTX = frozenset({200, 209, 218, 222})
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES = 3, 4, 5, 6  # CU_JIT_*
_LOCAL_BYTES, _REGISTERS, _DYNAMIC_SHARED = 3, 4, 8  # CU_FUNC_ATTRIBUTE_*
_ORDINARY_SHARED = 48 << 10
_LOG_BYTES = 16 << 10


@functools.cache
def _driver() -> ctypes.CDLL:
    """Return the driver's library, initialised."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise LaunchError(
            f"the NVIDIA driver is not installed here: {error}",
            hint="kernels run on the CPU on arrays in its memory",
        ) from error
    _check(library, library.cuInit(0), "starting the driver")
    return library


def _check(library: ctypes.CDLL, code: int, doing: str) -> None:
    if code == _SUCCESS:
        return
    name, text = c_char_p(), c_char_p()
    library.cuGetErrorName(code, byref(name))
    library.cuGetErrorString(code, byref(text))
    says = f"{(name.value or b'?').decode()}: {(text.value or b'').decode()}"
    raise LaunchError(f"{doing}: the driver says {says}")


def _call(function: str, *arguments: Any, doing: str) -> None:
    library = _driver()
    _check(library, getattr(library, function)(*arguments), doing)


@dataclass(frozen=True)
class Device:
    """A GPU: its number, its primary context, and what kernels are compiled for on it."""

    number: int
    context: int
    target: NvidiaTarget

    def activate(self) -> None:
        """Make its context the current one of this thread, unless it is."""
        current = c_void_p()
        _call("cuCtxGetCurrent", byref(current), doing="asking for the context")
        if current.value != self.context:
            _call("cuCtxSetCurrent", c_void_p(self.context), doing=f"using GPU {self.number}")


@functools.cache
def device(number: int) -> Device:
    """Return a GPU; raise `Unsupported` for one that is too old."""
    handle, context = c_int(), c_void_p()
    doing = f"using GPU {number}"
    _call("cuDeviceGet", byref(handle), number, doing=doing)
    _call("cuDevicePrimaryCtxRetain", byref(context), handle, doing=doing)
    facts = [c_int() for _ in range(2)]
    for fact, attribute in zip(facts, (_MAJOR, _MINOR), strict=True):
        _call("cuDeviceGetAttribute", byref(fact), attribute, handle, doing=doing)
    major, minor = (fact.value for fact in facts)
    target = nvidia_target(major, minor)
    if target is None or context.value is None:
        raise Unsupported(
            f"GPU {number} has compute capability {major}.{minor}",
            hint="7.5 and later are supported",
        )
    return Device(number, context.value, target)


def current_stream(number: int) -> int:
    """Return the stream on which PyTorch works on a GPU; the default one where it is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(number).cuda_stream)


class Module:
    """PTX, assembled by the driver and loaded on a GPU as long as this object lives."""

    def __init__(self, gpu: Device, ptx: str) -> None:
        gpu.activate()
        self.gpu = gpu
        self._handle = c_void_p()
        info, errors = (ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2))
        keys = (_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES)
        size = c_void_p(_LOG_BYTES)
        values = [ctypes.cast(info, c_void_p), size, ctypes.cast(errors, c_void_p), size]
        code = _driver().cuModuleLoadDataEx(
            byref(self._handle),
            ptx.encode(),
            c_uint(len(keys)),
            (c_int * len(keys))(*keys),
            (c_void_p * len(keys))(*values),
        )
        self.log = (info.value + errors.value).decode(errors="replace").strip()
        doing = f"loading a kernel on GPU {gpu.number}"
        if code in _INVALID_PTX and self.log:
            doing += f" ({self.log})"
        _check(_driver(), code, doing)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():
            _driver().cuModuleUnload(handle)

    def function(self, symbol: str, shared_bytes: int) -> Function:
        """Return an entry, which may then use so much dynamic shared memory."""
        handle = c_void_p()
        doing = f"loading {symbol}"
        _call("cuModuleGetFunction", byref(handle), self._handle, symbol.encode(), doing=doing)
        if shared_bytes > _ORDINARY_SHARED:
            size = c_int(shared_bytes)
            _call("cuFuncSetAttribute", handle, _DYNAMIC_SHARED, size, doing=doing)
        return Function(self, handle, symbol, shared_bytes)


class Function:
    """An entry of a module."""

    def __init__(self, module: Module, handle: c_void_p, symbol: str, shared_bytes: int) -> None:
        self.module, self.symbol, self.shared_bytes = module, symbol, shared_bytes
        self._handle = handle

    @property
    def registers(self) -> int:
        """How many registers a thread takes."""
        return self._attribute(_REGISTERS)

    @property
    def local_bytes(self) -> int:
        """How many bytes of a thread's registers spill to memory."""
        return self._attribute(_LOCAL_BYTES)

    def _attribute(self, attribute: int) -> int:
        value = c_int()
        _call("cuFuncGetAttribute", byref(value), attribute, self._handle, doing=self.symbol)
        return value.value

    def launch(
        self, grid: Sequence[int], threads: int, stream: int, arguments: Sequence[bytes]
    ) -> None:
        """Start the blocks of a grid on a stream; arguments are the bytes of each parameter."""
        self.module.gpu.activate()
        count = len(arguments)
        padded = b"".join(argument.ljust(8, b"\0") for argument in arguments)
        packed = ctypes.create_string_buffer(padded)
        start = ctypes.addressof(packed)
        places = (c_void_p * max(1, count))(*(start + 8 * i for i in range(count)))
        _call(
            "cuLaunchKernel",
            self._handle,
            *(c_uint(extent) for extent in grid),
            c_uint(threads),
            c_uint(1),
            c_uint(1),
            c_uint(self.shared_bytes),
            c_void_p(stream),
            places,
            None,
            doing=f"launching {self.symbol}",
        )
