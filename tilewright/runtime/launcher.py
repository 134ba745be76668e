"""Launchers: for each specialised kernel a builtin function in machine code.

`launcher(grid_x, grid_y, grid_z, *arguments)` is a guarded fast path. It checks that every argument
is what the kernel was specialised for, packs them, releases the GIL, and lets the pool run the
grid. Where an argument does not fit it returns `NotImplemented`, and Python code finds or compiles
the kernel that does. The argument block has 8 bytes for each parameter that is not a constant:
integers and addresses as i64, fp32 in the low 4 bytes, bools as 0 or 1.

All launchers share one piece of code, which reads what to check from a table of the kernel's: a
kernel costs no machine code besides its own. The code knows the memory layout of a few CPython and
NumPy objects, which is checked before it is relied on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.loading import LoadedObject
from tilewright.ir.types import DTYPES
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.fingerprint import cached_object
from tilewright.runtime.host import host, load_object
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    ArrayParameter,
    BoolParameter,
    ConstantParameter,
    FloatParameter,
    IntParameter,
    LaunchParameter,
)
from tilewright.runtime.launcher_table import (
    ENTRIES_PER_DTYPE,
    RECORD_WORDS,
    Kind,
    Self,
    Table,
)
from tilewright.runtime.pool import keep_forever, pool, raise_status

if TYPE_CHECKING:
    from tilewright.codegen import llvm
    from tilewright.runtime import launcher_code
else:
    llvm = Deferred("tilewright.codegen.llvm")
    launcher_code = Deferred("tilewright.runtime.launcher_code")

__all__ = ["accept_torch", "bind_launcher"]


# ---- what a launcher checks ------------------------------------------------------------------

_ANY = 2**64 - 1
_HEAD = struct.Struct("<4Q")
_RECORD = struct.Struct(f"<{RECORD_WORDS}Q")
_FIRST_ITEM = 24
_NUMPY_ALIGNED = 0x0100
_NUMPY_WRITEABLE = 0x0400


class _Program:
    """The records of a launcher and the objects that they compare with; see `Kind`."""

    def __init__(self, parameters: Sequence[LaunchParameter]) -> None:
        self.records: list[bytes] = []
        self.constants: list[object] = []
        for parameter in parameters:
            self._add_parameter(parameter)

    def _add(self, kind: Kind, *words: int) -> None:
        padding = [0] * (RECORD_WORDS - 1 - len(words))
        self.records.append(_RECORD.pack(kind, *(word % 2**64 for word in words), *padding))

    def _add_parameter(self, parameter: LaunchParameter) -> None:
        match parameter:
            case ArrayParameter(name, divisible):
                flags = _NUMPY_ALIGNED | (_NUMPY_WRITEABLE if parameter.written else 0)
                offset = 8 * (len(Table) + ENTRIES_PER_DTYPE * list(DTYPES).index(name))
                without_null = 0, int(not parameter.may_be_null)
                self._add(Kind.ARRAY, flags, offset, *without_null, *_alignment(divisible))
            case AddressParameter(divisible):
                without_null = 0, int(not parameter.may_be_null)
                self._add(Kind.INTEGER, -(2**63), _ANY, *without_null, *_alignment(divisible))
            case IntParameter():
                self._add_integer(parameter)
            case FloatParameter(bits):
                self._add(Kind.SINGLE if bits == 32 else Kind.DOUBLE)
            case BoolParameter():
                self._add(Kind.BOOLEAN)
            case ConstantParameter(value):
                self._add_constant(value)

    def _add_integer(self, parameter: IntParameter) -> None:
        bits, signed = parameter.bits, parameter.signed
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        excluded, count = 1, int(parameter.excludes_one)
        if parameter.excludes_narrower and signed:
            excluded, count = -(2 ** (bits // 2 - 1)), 2 ** (bits // 2)
        elif parameter.excludes_narrower:
            low = 2 ** (bits - 1)
        kind = Kind.UNSIGNED if bits == 64 and not signed else Kind.INTEGER
        aligned = _alignment(parameter.divisible_by_16)
        self._add(kind, low, high - low, excluded, count, *aligned)

    def _add_constant(self, constant: Any) -> None:
        # Equality is too weak for these: 0.0 == -0.0, (1,) == (True,).
        if type(constant) is tuple:
            self._add(Kind.TUPLE, len(constant))
            for item in constant:
                self._add_constant(item)
        elif type(constant) is float:
            self._add(Kind.FLOAT, *struct.unpack("<Q", struct.pack("<d", constant)))
        else:
            self._add(Kind.OBJECT, _FIRST_ITEM + 8 * (len(Self) + len(self.constants)))
            self.constants.append(constant)


def _alignment(divisible_by_16: bool | None) -> tuple[int, int]:
    """The mask, and whether what it leaves must be zero."""
    return (0, 1) if divisible_by_16 is None else (15, int(divisible_by_16))


# ---- binding to this process ----------------------------------------------------------------


def bind_launcher(
    loaded: LoadedObject,
    kernel_symbol: str,
    parameters: Sequence[LaunchParameter],
    *,
    scratch_bytes: int,
    on_error: Callable[[int], object],
) -> Callable[..., object]:
    """Return the builtin `launcher(grid_x, grid_y, grid_z, *arguments)` of a kernel.

    `on_error` is called with the code of a failed `device_assert`, and raises. The builtin keeps
    the object alive.
    """
    if not _python_layout_is_known():
        return _decline
    program = _Program(parameters)
    runtime_count = sum(not isinstance(p, ConstantParameter) for p in parameters)
    head = _HEAD.pack(
        loaded.address(kernel_symbol), scratch_bytes, len(parameters) + 3, max(runtime_count, 1)
    )
    # A builtin reads its definition while it is being deleted, before it lets go of `self`. Bytes
    # and tuples are what the garbage collector does not empty before that.
    name = kernel_symbol.encode() + b"\0"
    definition = _METHOD.pack(_contents(name), _shared().address, _METH_FASTCALL, 0)
    this = (
        head + b"".join(program.records),
        functools.partial(raise_status, on_error=on_error),
        *program.constants,
        *(loaded, definition, name),
    )
    new_builtin = ctypes.pythonapi.PyCFunction_NewEx
    new_builtin.restype = ctypes.py_object
    new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    builtin: Callable[..., object] = new_builtin(_contents(definition), this, None)
    return builtin


_METH_FASTCALL = 0x80
# PyMethodDef: the name, the function, flags, the documentation.
_METHOD = struct.Struct("<QQi4xQ")


def _contents(data: bytes) -> int:
    """Return the address of the contents of a bytes object."""
    return id(data) + bytes.__basicsize__ - 1


def _decline(*arguments: object) -> object:
    return NotImplemented


def accept_torch() -> None:
    """Let launchers that were made before PyTorch was imported accept its tensors."""
    if _State.shared is not None:
        _State.shared.accept_torch()


class _Shared:
    """The code of all launchers, and its table: what does not depend on the kernel."""

    def __init__(self) -> None:
        machine = host()
        size = self.size()

        def make() -> bytes:
            text = launcher_code.module_text(machine, size)
            return llvm.compile_to_object(text, host=machine, level=1)

        loaded = load_object(cached_object(f"launcher;{size};{machine.fingerprint}", make))
        keep_forever(loaded)
        self.address = loaded.address("tilewright_launcher")
        place = loaded.address("tilewright_table")
        self._table = (ctypes.c_void_p * self.size()).from_address(place)
        self._torch: tuple[type | None, type | None] = (None, None)
        self._fill()

    @staticmethod
    def size() -> int:
        """The number of entries."""
        return len(Table) + ENTRIES_PER_DTYPE * len(DTYPES)

    def accept_torch(self) -> None:
        """Enter PyTorch's types, once it has been imported."""
        if self._torch != _torch_types():
            self._fill()

    def _fill(self) -> None:
        tensor, parameter = self._torch = _torch_types()
        entries = {
            Table.NDARRAY: np.ndarray if _numpy_layout_is_known() else None,
            Table.TENSOR: tensor,
            Table.PARAMETER: parameter,
            Table.DATA_PTR: sys.intern("data_ptr"),
            Table.DTYPE: sys.intern("dtype"),
            Table.IS_CPU: sys.intern("is_cpu"),
        }
        self._table[Table.LAUNCH] = pool().launch_address
        self._table[Table.ONE_DIGIT] = _one_digit_tag()
        for place, entry in entries.items():
            self._enter(place, entry)
        for number, name in enumerate(DTYPES):
            first = len(Table) + ENTRIES_PER_DTYPE * number
            for offset, dtype in enumerate((*_numpy_dtypes(name), _torch_dtype(name))):
                self._enter(first + offset, dtype)

    def _enter(self, place: int, entry: object) -> None:
        # What is absent is a null pointer: no object has it as its type.
        if entry is not None:
            keep_forever(entry)
        self._table[place] = None if entry is None else id(entry)


class _State:
    """The one code of this process."""

    lock = threading.Lock()
    shared: _Shared | None = None


def _shared() -> _Shared:
    if _State.shared is None:
        with _State.lock:
            if _State.shared is None:
                _State.shared = _Shared()
    return _State.shared


def _after_fork_in_child() -> None:
    _State.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _torch_types() -> tuple[type | None, type | None]:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor, getattr(getattr(torch, "nn", None), "Parameter", tensor)


def _torch_dtype(name: str) -> object:
    # NumPy and ml_dtypes use PyTorch's names.
    return getattr(sys.modules.get("torch"), DTYPES[name].numpy.name, None)


def _numpy_dtypes(name: str) -> tuple[object, object]:
    """Return the two dtype objects of an element type: C has two 64-bit integer types."""
    dtype = DTYPES[name].numpy
    others = (other for code in "lqLQ" if (other := np.dtype(code)) == dtype)
    return dtype, next((other for other in others if other is not dtype), dtype)


def _python_layout_is_known() -> bool:
    """Whether objects lie in memory as the launchers assume: a tracing Python has other ones."""
    sizes = (object.__basicsize__, tuple.__basicsize__, bytes.__basicsize__)
    return sizes == (16, _FIRST_ITEM, 33)


def _one_digit_tag() -> int:
    """Return what marks an int of one positive digit, or a mark that none has."""
    tags = {number: ctypes.c_int64.from_address(id(number) + 16).value for number in _INTS}
    digits = [ctypes.c_int32.from_address(id(number) + 24).value for number in _INTS[:3]]
    marks = {tags[number] for number in _INTS[:3]}
    is_known = digits == list(_INTS[:3]) and len(marks) == 1
    others = {tags[number] for number in _INTS[3:]}
    return marks.pop() if is_known and not marks & others else 2**63 - 1


# Of one positive digit, and not.
_INTS = (1, 5, 2**30 - 1, 0, -1, -(2**30 - 1), 2**30, 2**60)


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
