"""The CUDA driver, through ctypes: nothing but `libcuda` is needed, and only when a GPU is used."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tilewright import env
from tilewright.errors import LaunchError, Unsupported
from tilewright.locks import Lock
from tilewright.runtime import history
from tilewright.runtime.cuda_errors import INVALID_CODE, describe
from tilewright.target import NVIDIA_CAPABILITIES, NvidiaTarget, nvidia_target

__all__ = [
    "Device",
    "Driver",
    "Event",
    "Function",
    "Module",
    "current_stream",
    "device",
    "device_of_address",
    "driver",
    "find_device_of_address",
    "link",
]

# Numbers of cuda.h.
_SUCCESS = 0
_NOT_READY = 600
_MAJOR, _MINOR, _L2_BYTES = 75, 76, 38  # CU_DEVICE_ATTRIBUTE_*
_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES = 3, 4, 5, 6  # CU_JIT_*
_PTX = 1  # CU_JIT_INPUT_PTX
_MOST_THREADS, _LOCAL_BYTES, _REGISTERS, _DYNAMIC_SHARED = 0, 3, 4, 8  # CU_FUNC_ATTRIBUTE_*
_ORDINARY_SHARED = 48 << 10
_LOG_BYTES = 16 << 10
_NAME_BYTES = 128
_DEVICE_OF_POINTER = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_UNTIMED = 2  # CU_EVENT_DISABLE_TIMING
_BUILD = Path("/proc/driver/nvidia/version")  # where the system has such files


class Driver:
    """The driver's library, started.

    `version` is that of CUDA; `build` also differs where another assembler may come with it.
    Raises `LaunchError`, `Unsupported` or `MemoryError` for what a call answers; `doing` says what
    it was for.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.call("cuInit", 0, doing="starting the NVIDIA driver")
        version = c_int()
        self.call("cuDriverGetVersion", byref(version), doing="starting the NVIDIA driver")
        self.version = version.value
        self.build = f"{version.value};{_build()}"

    def call(self, function: str, *arguments: Any, doing: str) -> None:
        """Call a function; raise the error that its code stands for."""
        self.check(getattr(self.library, function)(*arguments), doing)

    def check(self, code: int, doing: str) -> None:
        """Raise the error that a code stands for."""
        if code != _SUCCESS:
            raise describe(code, self._words(code), doing)

    def address(self, function: str) -> int:
        """Return the address of a function, for machine code to call; 0 in a driver without it."""
        found = getattr(self.library, function, None)
        return 0 if found is None else ctypes.cast(found, c_void_p).value or 0

    def _words(self, code: int) -> str:
        name, text = c_char_p(), c_char_p()
        self.library.cuGetErrorName(code, byref(name))
        self.library.cuGetErrorString(code, byref(text))
        return f"{(name.value or b'?').decode()}: {(text.value or b'').decode()}"


class _State:
    """The driver and the GPUs of this process, once they are asked for."""

    lock = Lock()
    driver: Driver | None = None
    devices: ClassVar[dict[int, Device]] = {}


def driver() -> Driver:
    """Return the driver; raise `LaunchError` where there is none."""
    with _State.lock:
        if _State.driver is None:
            _State.driver = Driver(_library())
        return _State.driver


def _library() -> ctypes.CDLL:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    if directory := env.cuda_directory():
        name = str(Path(directory, name))
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise LaunchError(
            f"the NVIDIA driver is not installed here: {error}",
            hint="kernels run on the CPU on arrays in its memory",
        ) from error


def _build() -> str:
    """What the driver's kernel module says of itself, if anything: the release of the driver."""
    try:
        return _BUILD.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class Device:
    """A GPU: its number, its primary context, and what kernels are compiled for on it."""

    number: int
    context: int
    target: NvidiaTarget
    l2_bytes: int
    name: str = ""

    @property
    def description(self) -> str:
        """What kind of GPU it is, with the driver."""
        return f"{self.name};{self.target.fingerprint};driver={driver().version}"

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make its context the current one of this thread, for a while."""
        current = c_void_p()
        driver().call("cuCtxGetCurrent", byref(current), doing="asking for the context")
        if current.value == self.context:
            yield
            return
        doing = f"using GPU {self.number}"
        driver().call("cuCtxSetCurrent", c_void_p(self.context), doing=doing)
        try:
            yield
        finally:
            driver().call("cuCtxSetCurrent", current, doing=doing)

    def synchronize(self, doing: str) -> None:
        """Wait for all that was started on it."""
        with self.active():
            driver().call("cuCtxSynchronize", doing=doing)

    def is_capturing(self, stream: int) -> bool:
        """Whether what is launched on a stream is recorded as a graph, not run."""
        status = c_int()
        with self.active():
            driver().call(
                "cuStreamIsCapturing", c_void_p(stream), byref(status), doing="asking for a stream"
            )
        return status.value != 0

    def order(self, first: int, second: int) -> None:
        """Let what comes on a stream from now on wait for what is on another one."""
        event = Event(self, is_timed=False)
        event.record(first)
        with self.active():
            stream, doing = c_void_p(second), "ordering two streams"
            driver().call("cuStreamWaitEvent", stream, event.handle, c_uint(0), doing=doing)

    def is_idle(self, stream: int) -> bool:
        """Whether all that was started on a stream has ended."""
        with self.active():
            code = driver().library.cuStreamQuery(c_void_p(stream))
        if code != _NOT_READY:
            driver().check(code, "asking for a stream")
        return bool(code != _NOT_READY)


class Event:
    """A place on a stream, to wait for or to measure from."""

    def __init__(self, gpu: Device, *, is_timed: bool = True) -> None:
        self.gpu, self._driver = gpu, driver()
        self.handle = c_void_p()
        flags = c_uint(0 if is_timed else _UNTIMED)
        with gpu.active():
            self._driver.call("cuEventCreate", byref(self.handle), flags, doing="making an event")

    def __del__(self) -> None:
        if self.handle.value and not sys.is_finalizing():
            with contextlib.suppress(Exception), self.gpu.active():
                self._driver.library.cuEventDestroy_v2(self.handle)

    def record(self, stream: int) -> None:
        """Put it behind what is on a stream."""
        with self.gpu.active():
            self._driver.call(
                "cuEventRecord", self.handle, c_void_p(stream), doing="recording an event"
            )

    def has_passed(self) -> bool:
        """Whether all that was on the stream before it has ended."""
        with self.gpu.active():
            code = self._driver.library.cuEventQuery(self.handle)
        if code != _NOT_READY:
            self._driver.check(code, "asking for an event")
        return bool(code != _NOT_READY)

    def milliseconds_since(self, earlier: Event) -> float:
        """Return the time between two events that have come to pass."""
        span = ctypes.c_float()
        with self.gpu.active():
            self._driver.call(
                "cuEventElapsedTime",
                *(byref(span), earlier.handle, self.handle),
                doing="measuring",
            )
        return span.value


def device(number: int) -> Device:
    """Return a GPU; raise `Unsupported` for one that has no target."""
    found = _State.devices.get(number)
    if found is None:
        with _State.lock:
            found = _State.devices.get(number) or _open(number)
            _State.devices[number] = found
    return found


def current_stream(number: int) -> int:
    """Return the stream on which PyTorch works on a GPU; the default one where it is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    # Without an object for the stream: this is asked at each launch.
    return int(torch._C._cuda_getCurrentRawStream(number))  # noqa: SLF001


def device_of_address(address: int) -> int:
    """Return the number of the GPU whose memory an address is in; raise `LaunchError` for none."""
    number = c_int()
    driver().call(
        "cuPointerGetAttribute",
        byref(number),
        _DEVICE_OF_POINTER,
        ctypes.c_uint64(address),
        doing=f"looking for the GPU of the address {address:#x}",
    )
    return number.value


def find_device_of_address(address: int) -> int | None:
    """Return the number of the GPU whose memory an address is in, None for this machine's own."""
    try:
        return device_of_address(address)
    except LaunchError:
        return None


def _open(number: int) -> Device:
    handle, context = c_int(), c_void_p()
    doing = f"using GPU {number}"
    driver().call("cuDeviceGet", byref(handle), number, doing=doing)
    facts = {attribute: c_int() for attribute in (_MAJOR, _MINOR, _L2_BYTES)}
    for attribute, fact in facts.items():
        driver().call("cuDeviceGetAttribute", byref(fact), attribute, handle, doing=doing)
    major, minor = facts[_MAJOR].value, facts[_MINOR].value
    target = nvidia_target(major, minor)
    if target is None:
        raise Unsupported(
            f"GPU {number} has compute capability {major}.{minor}",
            hint=f"those with {NVIDIA_CAPABILITIES} are supported",
        )
    # Kept until the process ends.
    driver().call("cuDevicePrimaryCtxRetain", byref(context), handle, doing=doing)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver().call("cuDeviceGetName", name, c_int(_NAME_BYTES), handle, doing=doing)
    return Device(
        number, context.value or 0, target, facts[_L2_BYTES].value, name.value.decode("ascii")
    )


# ---- code ------------------------------------------------------------------------------------


class _Logs:
    """Where the driver's assembler writes what it has to say."""

    def __init__(self) -> None:
        self._info, self._errors = (ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2))
        keys = (_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES)
        size = c_void_p(_LOG_BYTES)
        places = [ctypes.cast(log, c_void_p) for log in (self._info, self._errors)]
        values = [places[0], size, places[1], size]
        self.options = (
            c_uint(len(keys)),
            (c_int * len(keys))(*keys),
            (c_void_p * len(keys))(*values),
        )

    @property
    def text(self) -> str:
        return (self._info.value + self._errors.value).decode(errors="replace").strip()

    def check(self, code: int, doing: str) -> None:
        """Raise the error of a code, with what the assembler says."""
        if code in INVALID_CODE and self.text:
            doing += f" ({self.text})"
        driver().check(code, doing)


def link(gpu: Device, ptx: str, name: str) -> tuple[bytes, str]:
    """Let the driver assemble PTX; return the machine code and what it says about it."""
    logs, state = _Logs(), c_void_p()
    doing = f"assembling {name}"
    code, size = c_void_p(), c_size_t()
    text = ptx.encode() + b"\0"
    library = driver().library
    with gpu.active():
        driver().call("cuLinkCreate_v2", *logs.options, byref(state), doing=doing)
        try:
            added = library.cuLinkAddData_v2(
                state, _PTX, text, c_size_t(len(text)), name.encode(), c_uint(0), None, None
            )
            logs.check(added, doing)
            logs.check(library.cuLinkComplete(state, byref(code), byref(size)), doing)
            return ctypes.string_at(code.value or 0, size.value), logs.text
        finally:
            library.cuLinkDestroy(state)


class Module:
    """Machine code or PTX, loaded on a GPU as long as this object lives."""

    def __init__(self, gpu: Device, code: bytes, name: str) -> None:
        self.gpu, self._driver = gpu, driver()
        self._handle = c_void_p()
        load, doing = driver().library.cuModuleLoadDataEx, f"loading {name} on GPU {gpu.number}"
        with gpu.active():
            status = load(byref(self._handle), code, c_uint(0), None, None)
            if status in INVALID_CODE:
                # Once more, to be told why: the logs take longer than to load machine code.
                logs = _Logs()
                logs.check(load(byref(self._handle), code, *logs.options), doing)
            else:
                driver().check(status, doing)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():
            with contextlib.suppress(Exception), self.gpu.active():
                self._driver.library.cuModuleUnload(handle)

    def function(self, symbol: str, name: str, shared_bytes: int) -> Function:
        """Return the entry of a kernel, which may then use so much dynamic shared memory."""
        handle = c_void_p()
        doing = f"loading {name}"
        with self.gpu.active():
            driver().call(
                "cuModuleGetFunction", byref(handle), self._handle, symbol.encode(), doing=doing
            )
            if shared_bytes > _ORDINARY_SHARED:
                size = c_int(shared_bytes)
                driver().call("cuFuncSetAttribute", handle, _DYNAMIC_SHARED, size, doing=doing)
        return Function(self, handle, name, shared_bytes)

    def exchange(self, symbol: str, value: int, name: str) -> int:
        """Wait until the GPU is idle; return a variable of 32 bits, and set it."""
        address, size, found = c_void_p(), c_size_t(), c_uint()
        doing = f"running {name}"
        with self.gpu.active():
            driver().call(
                "cuModuleGetGlobal_v2",
                *(byref(address), byref(size), self._handle, symbol.encode()),
                doing=doing,
            )
            driver().call("cuCtxSynchronize", doing=doing)
            driver().call("cuMemcpyDtoH_v2", byref(found), address, c_size_t(4), doing=doing)
            if found.value != value:
                given = byref(c_uint(value))
                driver().call("cuMemcpyHtoD_v2", address, given, c_size_t(4), doing=doing)
        return found.value


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class Function:
    """An entry of a module: the code of the kernel `name`."""

    def __init__(self, module: Module, handle: c_void_p, name: str, shared_bytes: int) -> None:
        self.module, self.name, self.shared_bytes = module, name, shared_bytes
        self.address = handle.value or 0
        self.number = history.register(name, module.gpu.number)

    @property
    def registers(self) -> int:
        """How many registers a thread takes."""
        return self._attribute(_REGISTERS)

    @property
    def local_bytes(self) -> int:
        """How many bytes of a thread's registers spill to memory."""
        return self._attribute(_LOCAL_BYTES)

    @property
    def most_threads(self) -> int:
        """How many threads a block may have, given their registers."""
        return self._attribute(_MOST_THREADS)

    def parameter_offset(self, number: int) -> int | None:
        """Where a parameter lies when all are packed; None where drivers before 12.4 are silent."""
        if not driver().address("cuFuncGetParamInfo"):
            return None
        offset, size = c_size_t(), c_size_t()
        handle, places = c_void_p(self.address), (byref(offset), byref(size))
        with self.module.gpu.active():
            driver().call("cuFuncGetParamInfo", handle, c_size_t(number), *places, doing=self.name)
        return offset.value

    def _attribute(self, attribute: int) -> int:
        value, handle = c_int(), c_void_p(self.address)
        with self.module.gpu.active():
            driver().call("cuFuncGetAttribute", byref(value), attribute, handle, doing=self.name)
        return value.value

    def launch(
        self,
        grid: Sequence[int],
        threads: int,
        stream: int,
        arguments: Sequence[bytes],
        attributes: bytes = b"",
        attribute_count: int = 0,
    ) -> None:
        """Start the blocks of a grid on a stream; arguments are the bytes of each parameter."""
        buffers = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        places = (c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
        config = _Config(
            (c_uint * 3)(*grid),
            (c_uint * 3)(threads, 1, 1),
            self.shared_bytes,
            stream,
            ctypes.cast(c_char_p(attributes), c_void_p) if attributes else None,
            attribute_count,
        )
        doing = f"launching {self.name}"
        with self.module.gpu.active():
            history.note_launch(self.number)
            handle = c_void_p(self.address)
            driver().call("cuLaunchKernelEx", byref(config), handle, places, None, doing=doing)
