"""Launchers: for each specialised kernel a builtin function in machine code.

`launcher(grid_x, grid_y, grid_z, *arguments)` is a guarded fast path. It checks that every argument
is what the kernel was specialised for, packs them, releases the GIL, and lets the pool run the
grid. Where an argument does not fit it returns `NotImplemented`, and Python code finds or compiles
the kernel that does. The argument block has 8 bytes for each parameter that is not a constant:
integers and addresses as i64, fp32 in the low 4 bytes, bools as 0 or 1.

The IR belongs into the kernel's own module, so that one cached object holds both. It knows the
memory layout of a few CPython and NumPy objects, which is checked before it is relied on.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tilewright.codegen.llvm import LoadedObject
from tilewright.ir.types import DTYPES
from tilewright.runtime.launcher_code import HEADER, Code, Table
from tilewright.runtime.pool import pool, raise_status

__all__ = [
    "AddressParameter",
    "ArrayParameter",
    "BoolParameter",
    "ConstantParameter",
    "FloatParameter",
    "IntParameter",
    "LaunchParameter",
    "accept_torch",
    "bind_launcher",
    "launcher_ir",
    "pack_argument",
]


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """A NumPy array or a PyTorch CPU tensor of one element type.

    `divisible_by_16` is what must hold for the address (None: anything); `written` refuses
    read-only arrays. Some arrays without elements have the address 0.
    """

    dtype_name: str
    divisible_by_16: bool | None = None
    written: bool = True
    may_be_null: bool = True


@dataclass(frozen=True, slots=True)
class AddressParameter:
    """A raw address, given as an int."""

    divisible_by_16: bool | None = None
    may_be_null: bool = True


@dataclass(frozen=True, slots=True)
class IntParameter:
    """An int that fits `bits` bits.

    `excludes_one`: 1 has a kernel of its own. `excludes_narrower`: the width was chosen by the
    value, so what fits a signed integer of half the width (for u64: of the same) does not belong
    here.
    """

    bits: int
    signed: bool = True
    divisible_by_16: bool | None = None
    excludes_one: bool = False
    excludes_narrower: bool = False


@dataclass(frozen=True, slots=True)
class FloatParameter:
    """A float, passed with 32 or 64 bits."""

    bits: int = 32


@dataclass(frozen=True, slots=True)
class BoolParameter:
    """True or False."""


@dataclass(frozen=True, slots=True)
class ConstantParameter:
    """A value that is compiled into the kernel: only the very same value fits."""

    value: Any


LaunchParameter: TypeAlias = (
    ArrayParameter
    | AddressParameter
    | IntParameter
    | FloatParameter
    | BoolParameter
    | ConstantParameter
)


def pack_argument(parameter: LaunchParameter, value: float) -> bytes:
    """Return the 8 bytes of a value in the argument block; an array is given as its address."""
    match parameter:
        case FloatParameter(bits=32):
            return struct.pack("<fi", value, 0)
        case FloatParameter():
            return struct.pack("<d", value)
        case ConstantParameter():
            return b""
    return (int(value) % 2**64).to_bytes(8, "little")


# ---- the code -------------------------------------------------------------------------------


def launcher_ir(
    parameters: Sequence[LaunchParameter],
    *,
    kernel_symbol: str,
    launcher_symbol: str,
    scratch_bytes: int,
) -> str:
    """Return the IR of a launcher, to be appended to the module that defines `kernel_symbol`."""
    runtime_count = sum(not isinstance(p, ConstantParameter) for p in parameters)
    code = Code(table=_table_symbol(launcher_symbol))
    grid = [code.integer(code.argument(axis)) for axis in range(3)]
    for size in grid:
        code.guard(code.value(f"icmp ult i64 {size}, {2**31}"))
    slot, entry = 0, len(Table)
    for position, parameter in enumerate(parameters):
        packed = _guarded(code, parameter, code.argument(position + 3), entry)
        entry += sum(1 for _ in _constants(parameter))
        if packed is not None:
            code.store_slot(slot, packed)
            slot += 1
    return HEADER + code.launcher(
        name=launcher_symbol,
        kernel=kernel_symbol,
        argument_count=len(parameters) + 3,
        slots=runtime_count,
        entries=entry,
        grid=grid,
        scratch_bytes=scratch_bytes,
    )


def _table_symbol(launcher_symbol: str) -> str:
    return f"{launcher_symbol}.table"


def _guarded(code: Code, parameter: LaunchParameter, value: str, entry: int) -> str | None:
    """Check an argument; return its slot as an i64, or None for a constant."""
    match parameter:
        case ArrayParameter():
            address = code.array_address(value, entry, written=parameter.written)
            return _guarded_address(code, parameter, address)
        case AddressParameter():
            return _guarded_address(code, parameter, code.integer(value))
        case IntParameter():
            return _guarded_integer(code, parameter, value)
        case FloatParameter():
            return code.float_bits(value, parameter.bits)
        case BoolParameter():
            return code.boolean(value)
        case ConstantParameter():
            _guard_constant(code, parameter.value, value, itertools.count(entry))
            return None


def _guarded_address(code: Code, parameter: ArrayParameter | AddressParameter, address: str) -> str:
    code.guard_divisible(address, parameter.divisible_by_16)
    if not parameter.may_be_null:
        code.guard(code.value(f"icmp ne i64 {address}, 0"))
    return address


def _guarded_integer(code: Code, parameter: IntParameter, value: str) -> str:
    bits, signed = parameter.bits, parameter.signed
    if bits == 64 and not signed:
        number = code.unsigned_integer(value)
        if parameter.excludes_narrower:
            code.guard(code.value(f"icmp slt i64 {number}, 0"))
    else:
        number = code.integer(value)
        if bits < 64:
            lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
            code.guard_range(number, lowest, highest)
        if parameter.excludes_narrower:
            half = 2 ** (bits // 2 - 1)
            code.guard_range(number, -half, half, inside=False)
    if parameter.excludes_one:
        code.guard(code.value(f"icmp ne i64 {number}, 1"))
    code.guard_divisible(number, parameter.divisible_by_16)
    return number


def _guard_constant(code: Code, constant: Any, value: str, entries: Iterator[int]) -> None:
    # Equality is too weak for these: 0.0 == -0.0, (1,) == (True,).
    if type(constant) is tuple:
        for item in code.tuple_items(value, len(constant)):
            _guard_constant(code, constant[item.position], item.value, entries)
    elif type(constant) is float:
        bits = code.float_bits(value, 64)
        expected = struct.unpack("<q", struct.pack("<d", constant))[0]
        code.guard(code.value(f"icmp eq i64 {bits}, {expected}"))
        next(entries)
    else:
        code.guard_same(value, next(entries))


def _constants(parameter: LaunchParameter) -> Iterator[Any]:
    """The Python objects that the launcher compares with; None where there is no such object."""
    match parameter:
        case ArrayParameter():
            yield from _numpy_dtypes(parameter.dtype_name)
            yield _torch_dtype(parameter.dtype_name)
        case ConstantParameter():
            yield from _leaves(parameter.value)


def _leaves(constant: Any) -> Iterator[Any]:
    if type(constant) is tuple:
        for item in constant:
            yield from _leaves(item)
    else:
        yield constant


# ---- binding to this process ----------------------------------------------------------------


def bind_launcher(
    loaded: LoadedObject,
    parameters: Sequence[LaunchParameter],
    *,
    launcher_symbol: str,
    on_error: Callable[[int], object],
) -> Callable[..., object]:
    """Return the builtin `launcher(grid_x, grid_y, grid_z, *arguments)` of a loaded object.

    `on_error` is called with the code of a failed `device_assert`, and raises. The builtin keeps
    the object alive.
    """
    if object.__basicsize__ != 16:
        # A free-threaded or a tracing Python: objects have another layout.
        return _decline
    binding = _Binding(loaded, parameters, launcher_symbol, on_error)
    _Bindings.alive.add(binding)
    new_builtin = ctypes.pythonapi.PyCFunction_NewEx
    new_builtin.restype = ctypes.py_object
    new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    builtin: Callable[..., object] = new_builtin(
        loaded.address(f"{launcher_symbol}.method"), binding, None
    )
    return builtin


def accept_torch() -> None:
    """Let launchers that were bound before PyTorch was imported accept its tensors."""
    if _Bindings.torch_known or _torch_types() == (None, None):
        return
    for binding in list(_Bindings.alive):
        binding.fill()
    _Bindings.torch_known = True


def _decline(*arguments: object) -> object:
    return NotImplemented


class _Binding:
    """The table of one launcher: what it compares with, by address, and the references to it."""

    def __init__(
        self,
        loaded: LoadedObject,
        parameters: Sequence[LaunchParameter],
        launcher_symbol: str,
        on_error: Callable[[int], object],
    ) -> None:
        self._loaded = loaded
        self._parameters = parameters
        self._address = loaded.address(_table_symbol(launcher_symbol))
        self._raise = functools.partial(raise_status, on_error=on_error)
        self._references: list[object] = []
        self.fill()

    def fill(self) -> None:
        """Write the table."""
        tensor, parameter = _torch_types()
        fixed = {
            Table.RAISE: self._raise,
            Table.NDARRAY: np.ndarray if _numpy_layout_is_known() else None,
            Table.TENSOR: tensor,
            Table.PARAMETER: parameter,
            Table.DATA_PTR: sys.intern("data_ptr"),
            Table.DTYPE: sys.intern("dtype"),
            Table.IS_CPU: sys.intern("is_cpu"),
        }
        absent = object()
        entries: list[object] = [fixed.get(place, absent) for place in Table]
        # An unknown type is a null pointer, which no object has as its type.
        entries = [absent if entry is None else entry for entry in entries]
        for launch_parameter in self._parameters:
            entries.extend(_constants(launch_parameter))
        table = (ctypes.c_int64 * len(entries)).from_address(self._address)
        for position, entry in enumerate(entries):
            table[position] = 0 if entry is absent else id(entry)
        table[Table.LAUNCH] = pool().launch_address
        self._references = entries


class _Bindings:
    """Every launcher in use."""

    alive: ClassVar[weakref.WeakSet[_Binding]] = weakref.WeakSet()
    torch_known = False


def _torch_types() -> tuple[type | None, type | None]:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor, getattr(getattr(torch, "nn", None), "Parameter", tensor)


def _torch_dtype(name: str) -> object:
    # NumPy and ml_dtypes use PyTorch's names.
    return getattr(sys.modules.get("torch"), DTYPES[name].numpy.name, None)


@functools.cache
def _numpy_dtypes(name: str) -> tuple[object, object]:
    """Return the two dtype objects of an element type: C has two 64-bit integer types."""
    dtype = DTYPES[name].numpy
    others = (other for code in "lqLQ" if (other := np.dtype(code)) == dtype)
    return dtype, next((other for other in others if other is not dtype), dtype)


@functools.cache
def _numpy_layout_is_known() -> bool:
    """Whether arrays lie in memory as the launchers assume."""
    for array in (np.zeros(3, np.float32), np.broadcast_to(np.int16(1), (2, 5))):
        data = ctypes.c_void_p.from_address(id(array) + 16).value
        dtype = ctypes.c_void_p.from_address(id(array) + 56).value
        flags = ctypes.c_int32.from_address(id(array) + 64).value
        if (data, dtype, flags) != (array.ctypes.data, id(array.dtype), array.flags.num):
            return False
    return True
