"""What the launchers of all kinds of devices have in common; see `launcher.py`.

All launchers of a kind share one piece of code, which reads what to check from a program of the
kernel's: a kernel costs no machine code besides its own.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tilewright.codegen.loading import LoadedObject
from tilewright.interpreter import FIRST_PAGE_BYTES
from tilewright.ir.types import DTYPES
from tilewright.locks import Lock
from tilewright.ops.descriptor import ALIGNMENT_BYTES
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.fingerprint import cached_object
from tilewright.runtime.host import host, load_object
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    ArrayParameter,
    BoolParameter,
    ConstantParameter,
    DescriptorParameter,
    FloatParameter,
    IntParameter,
    Launcher,
    LaunchParameter,
    TupleParameter,
)
from tilewright.runtime.launcher_table import (
    ENTRIES_PER_DTYPE,
    RECORD_WORDS,
    DescriptorField,
    Kind,
    Self,
    Table,
)
from tilewright.runtime.pool import keep_forever
from tilewright.runtime.tensor_descriptor import LARGEST_SIZE, TensorDescriptor
from tilewright.runtime.torch_interface import TensorKeys, tensor_keys, torch_interface
from tilewright.target import Host

if TYPE_CHECKING:
    from tilewright.codegen import llvm
    from tilewright.runtime import launcher_code
else:
    llvm = Deferred("tilewright.codegen.llvm")
    launcher_code = Deferred("tilewright.runtime.launcher_code")

_T = TypeVar("_T")

__all__ = [
    "TABLE_SIZE",
    "OncePerProcess",
    "Program",
    "SharedCode",
    "bind_program",
    "contents",
    "declining_launcher",
    "first_entry",
    "load_shared",
    "new_builtin",
    "python_layout_is_known",
    "slot_sizes",
]

# The number of entries of a table.
TABLE_SIZE = len(Table) + ENTRIES_PER_DTYPE * len(DTYPES)


def first_entry(dtype_name: str) -> int:
    """Return the number of the first entry of an element type."""
    return len(Table) + ENTRIES_PER_DTYPE * list(DTYPES).index(dtype_name)


# ---- what a launcher checks ------------------------------------------------------------------

# Offset of the items of a tuple.
FIRST_ITEM = 24
_ANY = 2**64 - 1
_RECORD = struct.Struct(f"<{RECORD_WORDS}Q")
_GRID_SIZES = 3
_ARGUMENTS = 0  # the number of the first sequence
_Place = tuple[int, int]  # the number of a sequence, and of an item in it


class Program:
    """The records of a launcher and the objects that they compare with; see `Kind`.

    `array_words` gives the first two words of the record of an array.
    """

    def __init__(
        self,
        parameters: Sequence[LaunchParameter],
        array_words: Callable[[ArrayParameter], tuple[int, int]],
    ) -> None:
        self.records: list[bytes] = []
        self.constants: list[object] = []
        self.count = len(parameters) + _GRID_SIZES
        self.slots = len(slot_sizes(parameters))
        self.sequences = 1
        self._array_words = array_words
        for number, parameter in enumerate(parameters, _GRID_SIZES):
            self._add_parameter((_ARGUMENTS, number), parameter)
        self._add((_ARGUMENTS, 0), Kind.END)

    def _add(self, place: _Place, kind: Kind, *words: int) -> None:
        padding = [0] * (RECORD_WORDS - 2 - len(words))
        sequence, item = place
        where = sequence | item << 32
        self.records.append(_RECORD.pack(kind, *(word % 2**64 for word in words), *padding, where))

    def _add_parameter(self, place: _Place, parameter: LaunchParameter) -> None:
        match parameter:
            case ArrayParameter(_, divisible):
                words = *self._array_words(parameter), *_no_addresses(parameter)
                self._add(place, Kind.ARRAY, *words, *_alignment(divisible))
            case AddressParameter(divisible):
                without = _no_addresses(parameter)
                self._add(place, Kind.INTEGER, -(2**63), _ANY, *without, *_alignment(divisible))
            case IntParameter():
                self._add_integer(place, parameter)
            case FloatParameter(bits):
                self._add(place, Kind.SINGLE if bits == 32 else Kind.DOUBLE)
            case BoolParameter():
                self._add(place, Kind.BOOLEAN)
            case ConstantParameter(value):
                self._add_constant(place, value)
            case DescriptorParameter():
                self._add_descriptor(place, parameter)
            case TupleParameter(kind, items):
                self._add(place, Kind.TUPLE, len(items), self.sequences, self._kept(kind))
                for own, item in zip(self._places(), items, strict=False):
                    self._add_parameter(own, item)

    def _places(self) -> Iterator[_Place]:
        """Return the places in one more sequence."""
        sequence = self.sequences
        self.sequences += 1
        return ((sequence, item) for item in itertools.count())

    def _kept(self, value: object) -> int:
        """Keep an object to compare with, and return its offset in `self`."""
        self.constants.append(value)
        return FIRST_ITEM + 8 * (len(Self) + len(self.constants) - 1)

    def _add_descriptor(self, place: _Place, parameter: DescriptorParameter) -> None:
        """Add the records of the parts, in the order in which the code opens a descriptor."""
        base, block_shape = parameter.base, parameter.block_shape
        unit = max(1, ALIGNMENT_BYTES // DTYPES[base.dtype_name].itemsize)
        self._add(place, Kind.DESCRIPTOR, len(block_shape), self.sequences)
        places = self._places()
        self._add_parameter(next(places), base)
        for _ in block_shape[1:]:
            self._add(next(places), Kind.INTEGER, 0, LARGEST_SIZE, 0, 0, 0, 1)
        last = 0, LARGEST_SIZE, 0, 0, unit - 1, int(parameter.whole_rows)
        self._add(next(places), Kind.INTEGER, *last)
        for _ in block_shape[1:]:
            self._add(next(places), Kind.INTEGER, -(2**63), _ANY, 0, 0, unit - 1, 1)
        for constant in (1, *block_shape, parameter.padding, parameter.round_f32_to_tf32):
            self._add_constant(next(places), constant)

    def _add_integer(self, place: _Place, parameter: IntParameter) -> None:
        bits, signed = parameter.bits, parameter.signed
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        excluded, count = 1, int(parameter.excludes_one)
        if parameter.excludes_narrower and signed:
            excluded, count = -(2 ** (bits // 2 - 1)), 2 ** (bits // 2)
        elif parameter.excludes_narrower:
            low = 2 ** (bits - 1)
        kind = Kind.UNSIGNED if bits == 64 and not signed else Kind.INTEGER
        aligned = _alignment(parameter.divisible_by_16)
        self._add(place, kind, low, high - low, excluded, count, *aligned)

    def _add_constant(self, place: _Place, constant: Any) -> None:
        # Equality is too weak for these: 0.0 == -0.0, (1,) == (True,).
        kind = type(constant)
        if kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            self._add(place, Kind.CONSTANTS, len(constant), self._kept(kind))
            for item in constant:
                self._add_constant(place, item)
        elif kind is float:
            self._add(place, Kind.FLOAT, *struct.unpack("<Q", struct.pack("<d", constant)))
        else:
            self._add(place, Kind.OBJECT, self._kept(constant))


def slot_sizes(parameters: Sequence[LaunchParameter]) -> list[int]:
    """Return how many bytes of each slot count: of what the parameters become for the kernel."""
    return [size for parameter in parameters for size in _slot_sizes(parameter)]


def _slot_sizes(parameter: LaunchParameter) -> tuple[int, ...]:
    match parameter:
        case ConstantParameter():
            return ()
        case DescriptorParameter():
            # The address, sizes of 4 bytes, and all strides but the last, which is 1.
            rank = len(parameter.block_shape)
            return (8, *[4] * rank, *[8] * (rank - 1))
        case IntParameter() | FloatParameter():
            return (parameter.bits // 8,)
        case BoolParameter():
            return (1,)
        case ArrayParameter() | AddressParameter():
            return (8,)
        case TupleParameter(_, items):
            return tuple(slot_sizes(items))


def _no_addresses(parameter: ArrayParameter | AddressParameter) -> tuple[int, int]:
    """The first number that is no address, and how many follow: an offset into no memory."""
    first = int(parameter.may_be_null)
    return first, FIRST_PAGE_BYTES - first


def _alignment(divisible_by_16: bool | None) -> tuple[int, int]:
    """The mask, and whether what it leaves must be zero."""
    return (0, 1) if divisible_by_16 is None else (15, int(divisible_by_16))


# ---- the code ---------------------------------------------------------------------------------


def load_shared(name: str, text: Callable[[Host], str]) -> LoadedObject:
    """Load code that is there once in a process, from the disk cache if it is in there."""
    machine = host()

    def make() -> bytes:
        return llvm.compile_to_object(text(machine), host=machine, level=1)

    loaded = load_object(cached_object(f"{name};{machine.fingerprint}", make))
    keep_forever(loaded)
    return loaded


class SharedCode(ABC):
    """The code of all launchers of a kind of device, and its table: what no kernel changes."""

    def __init__(self, kind: str, part: Callable[[], launcher_code.LauncherPart]) -> None:
        name = f"launcher;{kind};{TABLE_SIZE}"
        loaded = load_shared(name, lambda host: launcher_code.module_text(host, TABLE_SIZE, part()))
        self.address = loaded.address("tilewright_launcher")
        place = loaded.address("tilewright_table")
        self.table = (ctypes.c_void_p * TABLE_SIZE).from_address(place)
        self.fill()

    def fill(self) -> None:
        """Enter what there is in this process."""
        self._torch = _torch_types()
        self._enter_ints()
        self._enter_descriptors()
        keys = tensor_keys()
        self._enter_keys(keys)
        takes_tensors = self._fill_own() and keys is not None
        # Last, since other threads may launch: what is known of tensors is there before they are.
        types = self._torch if takes_tensors else (None, None)
        self.enter_objects(dict(zip((Table.TENSOR, Table.PARAMETER), types, strict=True)))

    @abstractmethod
    def _usual(self, keys: TensorKeys) -> int:
        """The keys that tensors on this kind of device may have."""

    @abstractmethod
    def _fill_own(self) -> bool:
        """Enter what only this kind has; return whether PyTorch's tensors can be taken."""

    def accept_torch(self) -> None:
        """Enter PyTorch's types, once it has been imported."""
        if self._torch != _torch_types():
            self.fill()

    def enter_addresses(self, entries: Mapping[int, int]) -> None:
        """Enter addresses, and what else is a number."""
        for place, entry in entries.items():
            self.table[place] = entry

    def enter_objects(self, entries: Mapping[int, object]) -> None:
        """Enter objects. One that is absent is a null pointer: no object has it as its type."""
        for place, entry in entries.items():
            if entry is not None:
                keep_forever(entry)
            self.table[place] = None if entry is None else id(entry)

    def _enter_keys(self, keys: TensorKeys | None) -> None:
        """Enter where tensors have their keys, and which these may be."""
        if keys is None:
            return
        functions = torch_interface()
        self.enter_addresses(
            {
                Table.TENSOR_OFFSET: keys.handle_offset,
                Table.KEYS_OFFSET: keys.keys_offset,
                Table.UNUSUAL_KEYS: ~self._usual(keys) % 2**64,
                Table.GET_NUMEL: 0 if functions is None else functions.get_numel,
            }
        )

    def _enter_ints(self) -> None:
        """Enter how small ints look in this Python."""
        self.table[Table.ONE_DIGIT] = _one_digit_tag()

    def _enter_descriptors(self) -> None:
        """Enter the type of tensor descriptors, and of PyTorch's shapes."""
        known = _descriptor_layout_is_known()
        shape = getattr(sys.modules.get("torch"), "Size", None)
        self.enter_objects(
            {Table.DESCRIPTOR: TensorDescriptor if known else None, Table.SHAPE: shape}
        )


# ---- binding to this process ----------------------------------------------------------------


def bind_program(
    code: SharedCode,
    name: str,
    head: Sequence[int],
    program: Program,
    on_status: Callable[[int], object],
    owner: object,
) -> Launcher:
    """Return the builtin `launcher(grid_x, grid_y, grid_z, *arguments)` of a kernel.

    `head` are the words after those that all programs have. `on_status` is called with what a
    launch that went wrong returned, and raises. The builtin keeps `owner` alive.
    """
    words = program.count, max(program.slots, 1), program.sequences, *head
    this = (
        struct.pack(f"<{len(words)}Q", *words) + b"".join(program.records),
        on_status,
        *program.constants,
        owner,
    )
    return new_builtin(name, code.address, this)


def new_builtin(
    name: str, address: int, this: tuple[object, ...], *, takes_keywords: bool = False
) -> Callable[..., Any]:
    """Return a builtin function, whose machine code is given a tuple that begins with `this`."""
    # A builtin reads its definition while it is being deleted, before it lets go of `self`. Bytes
    # and tuples are what the garbage collector does not empty before that.
    text = name.encode() + b"\0"
    flags = _METH_FASTCALL | (_METH_KEYWORDS if takes_keywords else 0)
    definition = _METHOD.pack(contents(text), address, flags, 0)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    builtin: Callable[..., Any] = new(contents(definition), (*this, definition, text), None)
    return builtin


_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
# PyMethodDef: the name, the function, flags, the documentation.
_METHOD = struct.Struct("<QQi4xQ")


def contents(data: bytes) -> int:
    """Return the address of the contents of a bytes object."""
    return id(data) + bytes.__basicsize__ - 1


def declining_launcher(*arguments: object) -> object:
    """Leave every launch to Python."""
    return NotImplemented


def _torch_types() -> tuple[type | None, type | None]:
    """Return PyTorch's types of tensors, once it has been imported."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor, getattr(getattr(torch, "nn", None), "Parameter", tensor)


def python_layout_is_known() -> bool:
    """Whether objects lie in memory as the launchers assume: a tracing Python has other ones."""
    sizes = (object.__basicsize__, tuple.__basicsize__, bytes.__basicsize__)
    return sizes == (16, FIRST_ITEM, 33)


def _descriptor_layout_is_known() -> bool:
    """Whether descriptors and lists lie in memory as the launchers assume."""

    def pointer(place: int) -> int | None:
        return ctypes.c_void_p.from_address(place).value

    # Where objects keep their weak references differs from one version of Python to the next.
    if TensorDescriptor.__basicsize__ < max(DescriptorField) + 8 or list.__basicsize__ != 40:
        return False
    probe = TensorDescriptor.__new__(TensorDescriptor)
    values = {field: [object()] for field in DescriptorField}
    for field, value in values.items():
        setattr(probe, field.name.lower(), value)
    return all(
        pointer(id(probe) + field) == id(value)
        and pointer(pointer(id(value) + 24) or id(value)) == id(value[0])
        for field, value in values.items()
    )


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


class OncePerProcess(Generic[_T]):
    """What is made when it is first asked for, by one thread; `made` is None before."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._lock = Lock()
        self.made: _T | None = None

    def __call__(self) -> _T:
        if self.made is None:
            with self._lock:
                if self.made is None:
                    self.made = self._make()
        return self.made
