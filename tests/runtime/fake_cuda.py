"""A CUDA driver for machines without one: it records launches and runs them in the emulator.

`FakeDriver` is shaped like `libcuda`: its attributes are C functions, so machine code can call
them. `fake_torch` makes a PyTorch whose tensors lie in the fake GPU's memory.
"""

# ruff: noqa: N802, N815 - the names are those of the driver

from __future__ import annotations

import ctypes
import types
from collections import defaultdict
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field

import numpy as np

from tilewright.emulator import Buffer, Emulator, EmulatorError, encode_tensor_map
from tilewright.runtime.dlpack import CUDA, dtype_word
from tilewright.runtime.torch_interface import TensorKeys

INVALID_VALUE, INVALID_IMAGE, INVALID_HANDLE = 1, 200, 400
# The clock in kHz, multiprocessors, the memory's clock in kHz and its bits, as an H200 has them.
_SPEEDS = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144}
_MAGIC = b"CUBIN:"
# Where the parameters of a kernel begin in the memory of constants, on sm_90.
_PARAMETERS = 0x210
_CONTEXTS = 0xC0DE0000
# The arguments that belong to a context, by their places.
_OWNED = defaultdict(
    tuple,
    {
        "cuEventRecord": (0,),
        "cuEventQuery": (0,),
        "cuEventElapsedTime": (1, 2),
        "cuEventDestroy_v2": (0,),
        "cuStreamWaitEvent": (1,),
        "cuModuleUnload": (0,),
        "cuModuleGetFunction": (1,),
        "cuModuleGetGlobal_v2": (2,),
        "cuFuncGetAttribute": (2,),
        "cuFuncSetAttribute": (0,),
        "cuLaunchKernel": (0,),
        "cuLaunchKernelEx": (1,),
    },
)
_SIGNATURES = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [c_void_p],
    "cuGetErrorName": [c_int, c_void_p],
    "cuGetErrorString": [c_int, c_void_p],
    "cuDeviceGet": [c_void_p, c_int],
    "cuDeviceGetAttribute": [c_void_p, c_int, c_int],
    "cuDeviceGetName": [c_void_p, c_int, c_int],
    "cuDevicePrimaryCtxRetain": [c_void_p, c_int],
    "cuCtxGetCurrent": [c_void_p],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
    "cuStreamIsCapturing": [c_void_p, c_void_p],
    "cuStreamQuery": [c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuEventCreate": [c_void_p, c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventElapsedTime": [c_void_p, c_void_p, c_void_p],
    "cuEventDestroy_v2": [c_void_p],
    "cuMemAlloc_v2": [c_void_p, c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemcpyDtoD_v2": [c_uint64, c_uint64, c_size_t],
    "cuMemsetD8_v2": [c_uint64, ctypes.c_ubyte, c_size_t],
    "cuMemsetD8Async": [c_uint64, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuModuleLoadDataEx": [c_void_p, c_void_p, c_uint, c_void_p, c_void_p],
    "cuModuleUnload": [c_void_p],
    "cuModuleGetFunction": [c_void_p, c_void_p, c_char_p],
    "cuFuncGetAttribute": [c_void_p, c_int, c_void_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuFuncGetParamInfo": [c_void_p, c_size_t, c_void_p, c_void_p],
    "cuLinkCreate_v2": [c_uint, c_void_p, c_void_p, c_void_p],
    "cuLinkAddData_v2": [
        *(c_void_p, c_int, c_void_p, c_size_t),
        *(c_char_p, c_uint, c_void_p, c_void_p),
    ],
    "cuLinkComplete": [c_void_p, c_void_p, c_void_p],
    "cuLinkDestroy": [c_void_p],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p],
    "cuLaunchKernelEx": [c_void_p, c_void_p, c_void_p, c_void_p],
    "cuTensorMapEncodeTiled": [
        *(c_void_p, c_int, c_uint, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_int, c_int, c_int, c_int),
    ],
}


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


@dataclass
class Launch:
    """What one launch was given; `arguments` are the bytes of each parameter.

    `packed` is all of them as they lay in memory, where the launch gave them so.
    """

    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    stream: int
    attributes: list[tuple[int, int]]
    arguments: list[bytes]
    context: int
    packed: bytes | None = field(default=None, compare=False)


@dataclass
class Encoding:
    """What one tensor map was encoded of, as the driver was given it."""

    element: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    fill: int


@dataclass
class FakeDriver:
    """The functions of a driver, as ctypes makes them of Python methods.

    A GPU is of `capability` unless `capabilities` has its number. Modules, functions and events
    belong to the context that was current when they were made, and are refused in another one, as
    streams are where `stream_contexts` has them.

    `failures` maps names of functions to the code that they answer from now on; `log` is what the
    assembler says; `runs` is whether launches are emulated. By the events' clock a launch takes
    `milliseconds`, or what `milliseconds_of` has for its number of threads.
    """

    capability: tuple[int, int] = (9, 0)
    capabilities: dict[int, tuple[int, int]] = field(default_factory=dict)
    stream_contexts: dict[int, int] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    registers: int = 32
    runs: bool = True
    log: str = ""
    version: int = 13000
    context: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    orders: list[tuple[int, int]] = field(default_factory=list)
    memory: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)
    modules: dict[int, Emulator] = field(default_factory=dict)
    functions: dict[int, tuple[int, str]] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)
    events: dict[int, tuple[int, float]] = field(default_factory=dict)
    capturing: bool = False
    clock: float = 0.0
    milliseconds: float = 1.0
    milliseconds_of: dict[int, float] = field(default_factory=dict)

    def __post_init__(self):
        self._logs = [0, 0]
        self._linked = b""
        self._handles = iter(range(0x100, 1 << 30))
        for name, arguments in _SIGNATURES.items():
            setattr(self, name, self._function(name, arguments))

    def _function(self, name, arguments):
        method = getattr(self, f"_{name}", None)

        def call(*values):
            self.calls.append(name)
            if name in self.failures:
                return self.failures[name]
            if any(self.owners.get(values[i], self.context) != self.context for i in _OWNED[name]):
                return INVALID_HANDLE
            return (method(*values) if method is not None else 0) or 0

        return ctypes.CFUNCTYPE(c_int, *arguments)(call)

    # ---- the driver and its GPUs

    def _cuDriverGetVersion(self, place):
        c_int.from_address(place).value = self.version

    def _cuGetErrorName(self, code, place):
        return self._text(place, f"CUDA_ERROR_{code}")

    def _cuGetErrorString(self, code, place):
        return self._text(place, f"words about {code}")

    def _new_handle(self):
        handle = next(self._handles)
        self.owners[handle] = self.context
        return handle

    def _text(self, place, text):
        self._words = getattr(self, "_words", [])
        self._words.append(ctypes.create_string_buffer(text.encode()))
        c_void_p.from_address(place).value = ctypes.addressof(self._words[-1])

    def _cuDeviceGet(self, place, number):
        c_int.from_address(place).value = number

    def _cuDeviceGetAttribute(self, place, attribute, number):
        major, minor = self.capabilities.get(number, self.capability)
        facts = {75: major, 76: minor, 38: 1 << 16, **_SPEEDS}
        c_int.from_address(place).value = facts[attribute]

    def _cuDeviceGetName(self, place, size, number):
        ctypes.memmove(place, b"FAKE\0", 5)

    def _cuDevicePrimaryCtxRetain(self, place, number):
        c_void_p.from_address(place).value = _CONTEXTS + number

    def _cuCtxGetCurrent(self, place):
        c_void_p.from_address(place).value = self.context

    def _cuCtxSetCurrent(self, context):
        self.context = context or 0

    # ---- streams and events

    def _cuStreamIsCapturing(self, stream, place):
        c_int.from_address(place).value = int(self.capturing)

    def _cuStreamWaitEvent(self, stream, event, flags):
        self.orders.append((self.events[event][0], stream or 0))

    def _cuEventCreate(self, place, flags):
        handle = self._new_handle()
        self.events[handle] = (0, 0.0)
        c_void_p.from_address(place).value = handle

    def _cuEventRecord(self, event, stream):
        self.events[event] = (stream or 0, self.clock)

    def _cuEventElapsedTime(self, place, first, second):
        ctypes.c_float.from_address(place).value = self.events[second][1] - self.events[first][1]

    # ---- memory

    def allocate(self, size, number=0):
        """Return the address of new memory on a GPU."""
        raw = np.zeros(size + 256, np.uint8)
        start = raw.ctypes.data + -raw.ctypes.data % 256
        data = raw[start - raw.ctypes.data :][:size]
        self.memory[start] = (data, number)
        return start

    def _cuMemAlloc_v2(self, place, size):
        c_uint64.from_address(place).value = self.allocate(size, self.context - _CONTEXTS)

    def _cuMemFree_v2(self, address):
        del self.memory[address]

    def _cuMemcpyHtoD_v2(self, target, source, size):
        ctypes.memmove(target, source, size)

    _cuMemcpyDtoH_v2 = _cuMemcpyHtoD_v2

    _cuMemcpyDtoD_v2 = _cuMemcpyHtoD_v2

    def _cuMemsetD8_v2(self, address, value, size, stream=None):
        ctypes.memset(address, value, size)

    _cuMemsetD8Async = _cuMemsetD8_v2

    def _cuPointerGetAttribute(self, place, attribute, address):
        for start, (data, number) in self.memory.items():
            if start <= address < start + max(data.size, 1):
                c_int.from_address(place).value = number
                return 0
        return INVALID_VALUE

    # ---- code

    def _cuLinkCreate_v2(self, count, keys, values, place):
        self._logs = [c_void_p.from_address(values).value]
        c_void_p.from_address(place).value = next(self._handles)

    def _cuLinkAddData_v2(self, state, kind, data, size, name, count, keys, values):
        ctypes.memmove(self._logs[0], self.log.encode() + b"\0", len(self.log) + 1)
        self._linked = _MAGIC + ctypes.string_at(data, size)

    def _cuLinkComplete(self, state, place, size):
        self._kept = ctypes.create_string_buffer(self._linked)
        c_void_p.from_address(place).value = ctypes.addressof(self._kept)
        c_size_t.from_address(size).value = len(self._linked)

    def _cuModuleLoadDataEx(self, place, data, count, keys, values):
        text = ctypes.string_at(data)
        is_cubin = text.startswith(_MAGIC)
        if is_cubin and "cubin" in self.failures:
            return self.failures["cubin"]
        if not is_cubin and "ptx" in self.failures:
            if count:
                log = c_void_p.from_address(values).value
                ctypes.memmove(log, b"the log\0", 8)
            return self.failures["ptx"]
        self.loaded.append("cubin" if is_cubin else "ptx")
        handle = self._new_handle()
        self.modules[handle] = Emulator(text.removeprefix(_MAGIC).decode())
        c_void_p.from_address(place).value = handle
        return 0

    def _cuModuleUnload(self, handle):
        del self.modules[handle]

    def _cuModuleGetFunction(self, place, module, name):
        handle = self._new_handle()
        self.functions[handle] = (module, name.decode())
        c_void_p.from_address(place).value = handle

    def _cuFuncGetAttribute(self, place, attribute, function):
        facts = {0: 65536 // self.registers, 3: 0, 4: self.registers}
        c_int.from_address(place).value = facts[attribute]

    def _cuTensorMapEncodeTiled(
        self, place, element, rank, address, sizes, strides, box, steps,
        interleave, swizzle, promotion, fill,
    ):  # fmt: skip
        def read(kind, at, count):
            return tuple((kind * count).from_address(at))

        made = Encoding(
            element, address or 0, read(c_uint64, sizes, rank), read(c_uint64, strides, rank - 1),
            read(c_uint, box, rank), read(c_uint, steps, rank),
            interleave, swizzle, promotion, fill,
        )  # fmt: skip
        self.encodings.append(made)
        if place % 64 or 0 in made.sizes:
            return INVALID_VALUE
        try:
            encoded = encode_tensor_map(
                made.address, element, made.sizes, made.strides, made.box, swizzle,
                element_strides=made.steps, fill_nan=bool(fill),
            )  # fmt: skip
        except EmulatorError:
            return INVALID_VALUE
        ctypes.memmove(place, encoded, len(encoded))
        return 0

    def _cuLaunchKernel(self, function, *config_and_parameters):
        *sizes, shared_bytes, stream, places, extra = config_and_parameters
        grid, block = (c_uint * 3)(*sizes[:3]), (c_uint * 3)(*sizes[3:])
        config = Config(grid, block, shared_bytes, stream)
        return self._cuLaunchKernelEx(ctypes.addressof(config), function, places, extra)

    def _cuFuncGetParamInfo(self, function, number, offset, size):
        module, symbol = self.functions[function]
        parameters = self.modules[module].module.kernels[symbol].parameters
        c_size_t.from_address(offset).value = self._offsets(parameters)[number]
        c_size_t.from_address(size).value = parameters[number].size_bytes

    @staticmethod
    def _offsets(parameters):
        """Where parameters lie when they are packed: aligned as the memory of constants is."""
        offsets, end = [], 0
        for parameter in parameters:
            alignment = 64 if parameter.size_bytes > 8 else parameter.size_bytes
            end += -(_PARAMETERS + end) % alignment
            offsets.append(end)
            end += parameter.size_bytes
        return offsets

    @classmethod
    def _places(cls, parameters, places, extra):
        """Where a launch has its parameters, each by its address or packed; None for an error."""
        if not parameters:
            return []
        if not extra:
            return list((c_void_p * len(parameters)).from_address(places))
        first, start, second, size, end = (c_uint64 * 5).from_address(extra)
        offsets = cls._offsets(parameters)
        is_right = (first, second, end) == (1, 2, 0) and not places
        if (
            not is_right
            or c_size_t.from_address(size).value != offsets[-1] + parameters[-1].size_bytes
        ):
            return None
        return [start + offset for offset in offsets]

    @staticmethod
    def _packed(extra):
        if not extra:
            return None
        _, start, _, size = (c_uint64 * 4).from_address(extra)
        return ctypes.string_at(start, c_size_t.from_address(size).value)

    def _cuLaunchKernelEx(self, config, function, places, extra):
        given = Config.from_address(config)
        module, symbol = self.functions[function]
        kernel = self.modules[module].module.kernels[symbol]
        slots = self._places(kernel.parameters, places, extra)
        if slots is None:
            return INVALID_VALUE
        if self.stream_contexts.get(given.stream, self.context) != self.context:
            return INVALID_HANDLE
        arguments = [
            ctypes.string_at(slot, parameter.size_bytes)
            for slot, parameter in zip(slots, kernel.parameters, strict=True)
        ]
        attributes = [
            (c_uint.from_address(at).value, c_uint.from_address(at + 8).value)
            for at in range(
                given.attributes or 0, (given.attributes or 0) + 72 * given.attribute_count, 72
            )
        ]
        launch = Launch(
            symbol, tuple(given.grid), tuple(given.block), given.shared_bytes, given.stream or 0,
            attributes, arguments, self.context, self._packed(extra),
        )  # fmt: skip
        self.launches.append(launch)
        self.clock += self.milliseconds_of.get(launch.block[0], self.milliseconds)
        if self.runs:
            buffers = [Buffer.of(data, hex(at)) for at, (data, _) in self.memory.items()]
            self.modules[module].launch(
                symbol, launch.grid, launch.block, arguments,
                shared_bytes=launch.shared_bytes, buffers=buffers,
            )  # fmt: skip
        return 0


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", c_uint64),
        ("kind", c_int),
        ("number", c_int),
        ("ndim", c_int),
        ("dtype", c_uint),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    )


class TorchDtype(str):
    """A dtype of the fake PyTorch, known by its name."""

    __slots__ = ()


# The keys of a tensor; another one says that there is more to it than its elements.
ON_CPU, ON_GPU, UNUSUAL = 1, 2, 4
# Objects of ctypes point to their fields, as Python's tensors do to PyTorch's.
FAKE_KEYS = TensorKeys(handle_offset=16, keys_offset=0, usual_on_cpu=ON_CPU, usual_on_gpu=ON_GPU)


class Tensor(ctypes.Structure):
    """A tensor on a fake GPU: `numbers` is its memory as NumPy sees it."""

    _fields_ = (("keys", c_uint64),)

    def __init__(self, driver, array, device=0):
        super().__init__(ON_GPU)
        array = np.ascontiguousarray(array)
        self._address = driver.allocate(max(array.nbytes, 1), device) if array.size else 0
        self.numbers = np.empty_like(array)
        if array.size:
            data = driver.memory[self._address][0][: array.nbytes]
            self.numbers = data.view(array.dtype).reshape(array.shape)
            self.numbers[...] = array
        self.dtype = TorchDtype(f"torch.{array.dtype.name}")
        self.element = {"float32": "fp32", "int32": "i32", "float16": "fp16", "int64": "i64"}[
            array.dtype.name
        ]
        self.driver, self.number, self.device = driver, device, f"cuda:{device}"
        self.shape = array.shape

    def data_ptr(self):
        return self._address


class FakeTorch(types.ModuleType):
    """A PyTorch with DLPack's C functions; `streams` are the current ones of each GPU."""

    def __init__(self):
        super().__init__("torch")
        self.Tensor = Tensor
        self.nn = types.SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))
        self.streams = {0: 0, 1: 0}
        self.cuda = types.SimpleNamespace(
            is_initialized=lambda: True,
            current_device=lambda: 0,
            is_available=lambda: True,
        )
        self._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda n: self.streams[n])
        self.view_fails = False
        view = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)(self._view)
        stream = ctypes.PYFUNCTYPE(c_int, c_int, c_int, c_void_p)(self._stream)
        addresses = [ctypes.cast(f, c_void_p).value for f in (view, stream)]
        self._table = (c_uint64 * 7)(1 | 3 << 32, 0, 0, 0, 0, *addresses)
        self._kept = view, stream
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
        self._name = b"dlpack_exchange_api"
        Tensor.__dlpack_c_exchange_api__ = make(ctypes.addressof(self._table), self._name, None)

    def _view(self, tensor, place):
        if self.view_fails:
            return -1
        found = _DLTensor.from_address(place)
        offset = 4 if tensor.data_ptr() else 0  # the sum is what counts
        found.data, found.byte_offset = tensor.data_ptr() - offset, offset
        found.kind, found.number = CUDA, int(tensor.device.partition(":")[2])
        found.dtype = dtype_word(tensor.element)
        return 0

    def _stream(self, kind, number, place):
        assert kind == CUDA
        c_void_p.from_address(place).value = self.streams[number]
        return 0


class CudaArray:
    """An array by `__cuda_array_interface__` alone, as CuPy and Numba have them."""

    def __init__(self, tensor, stream=None, read_only=False, strides=None, skipped_bytes=0):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tensor.numbers.shape,
            "typestr": tensor.numbers.dtype.str,
            "data": (tensor.data_ptr() + skipped_bytes, read_only),
            "strides": strides,
            "stream": stream,
        }


class DlpackArray:
    """An array by DLPack of before version 1, as JAX has them; `streams` were asked for."""

    def __init__(self, tensor, skipped_bytes=0):
        self.tensor, self.streams = tensor, []
        self._skipped_bytes = skipped_bytes
        self.dtype = tensor.numbers.dtype

    def __dlpack_device__(self):
        return CUDA, self._number

    @property
    def _number(self):
        return int(self.tensor.device.partition(":")[2])

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        shape = self.tensor.numbers.shape
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._described = _DLTensor(
            self.tensor.data_ptr(), CUDA, self._number, len(shape),
            dtype_word(self.tensor.element), ctypes.addressof(self._shape), None,
            self._skipped_bytes,
        )  # fmt: skip
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
        return make(ctypes.addressof(self._described), b"dltensor", None)
