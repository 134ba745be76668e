"""Types of the tile IR: element types, pointers, and tiles of either.

A scalar is a tile of shape `()`; there is no second notion of type. `DType` objects are singletons
and are also what the language exports (`tl.float32`), so a dtype is the same object in a kernel, in
the IR and in the runtime.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.locks import cached_property

__all__ = ["DTYPES", "DType", "ElementType", "Kind", "PointerType", "TileType", "dtype_of_numpy"]


class Kind(enum.Enum):
    """What the bits of an element mean."""

    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"


class _ByName(type):
    def __call__(cls, name: str, *facts: Any) -> Any:
        """Make a type; without facts, find the one of this name."""
        if facts:
            return super().__call__(name, *facts)
        found = _BY_ANY_NAME.get(name)
        if found is None:
            listed = ", ".join(sorted(_BY_ANY_NAME))
            raise ValueError(f"there is no type {name!r}: the types are {listed}")
        return found


@dataclass(frozen=True, eq=False)
class DType(metaclass=_ByName):
    """An element type; `short_name` is what signatures use (`fp32`, `i8`, `u16`).

    `DType(name)` is the type of that name, short or long: there is one object for each.
    """

    class SIGNEDNESS(enum.Enum):
        """Whether integers have a sign."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(enum.Enum):
        """What an element is; a bool is below an integer, an integer below a float."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    short_name: str
    element_kind: Kind
    primitive_bitwidth: int
    numpy: np.dtype[Any]
    long_name: str
    mantissa_bits: int = 0
    exponent_bias: int = 0

    def __str__(self) -> str:
        return self.short_name

    def __repr__(self) -> str:
        return f"tilewright.language.{self.long_name}"

    def __reduce__(self) -> tuple[object, ...]:
        return _dtype_by_name, (self.short_name,)

    @property
    def name(self) -> str:
        """The name in Triton: `int32`, `uint8`, but `fp16`, `bf16`, `fp8e5`."""
        return self.short_name if self.is_floating() else self.long_name

    @property
    def int_signedness(self) -> SIGNEDNESS:
        """Whether an integer type has a sign; a bool has none."""
        if self.is_floating():
            raise AttributeError(f"{self.name} is no integer type: it has no int_signedness")
        return self.SIGNEDNESS.SIGNED if self.is_int_signed() else self.SIGNEDNESS.UNSIGNED

    def kind(self) -> KIND:
        """Return whether this is a bool, an integer or a float."""
        if self.is_bool():
            return self.KIND.BOOLEAN
        return self.KIND.FLOATING if self.is_floating() else self.KIND.INTEGRAL

    @property
    def fp_mantissa_width(self) -> int:
        """The bits of a float behind the point."""
        return self.mantissa_bits

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (a bool takes one)."""
        return self.storage_bits // 8

    @property
    def storage_bits(self) -> int:
        """Bits of one element in memory."""
        return max(8, self.primitive_bitwidth)

    @property
    def scalar(self) -> DType:
        """The element type itself (tiles have a `scalar` too)."""
        return self

    def is_bool(self) -> bool:
        return self.element_kind is Kind.BOOL

    is_int1 = is_bool

    def is_floating(self) -> bool:
        return self.element_kind is Kind.FLOAT

    def is_int(self) -> bool:
        """Whether this is an integer or bool type."""
        return self.element_kind is not Kind.FLOAT

    def is_int_signed(self) -> bool:
        return self.element_kind is Kind.SIGNED

    def is_int_unsigned(self) -> bool:
        return self.element_kind in {Kind.UNSIGNED, Kind.BOOL}

    def is_fp8(self) -> bool:
        return self.element_kind is Kind.FLOAT and self.primitive_bitwidth == 8

    def is_standard_floating(self) -> bool:
        return self.element_kind is Kind.FLOAT and not self.is_fp8()

    def is_ptr(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def is_void(self) -> bool:
        return False

    @staticmethod
    def is_dtype(name: str) -> bool:
        """Return whether there is a type of that name."""
        return name in _BY_ANY_NAME

    def __getattr__(self, name: str) -> Any:
        # is_fp16(), is_int32(), is_uint8() ...: one predicate for each dtype, as in Triton.
        other = _PREDICATES.get(name)
        if other is None:
            message = f"dtype has no attribute {name!r}"
            raise AttributeError(message)
        return lambda: self is DTYPES[other]

    @cached_property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        bits = self.primitive_bitwidth
        if self.is_int_signed():
            return -(1 << bits - 1), (1 << bits - 1) - 1
        return 0, (1 << bits) - 1

    def get_int_max_value(self) -> int:
        return self.integer_range[1]

    def get_int_min_value(self) -> int:
        return self.integer_range[0]


def _dtype_by_name(name: str) -> DType:
    return DTYPES[name]


def _integer(name: str, kind: Kind, bits: int, long_name: str) -> DType:
    return DType(name, kind, bits, np.dtype(long_name), long_name)


# Five fp8 formats: e4nv = e4m3fn, e5 = e5m2, e4b8 = e4m3fnuz, e5b16 = e5m2fnuz; e4b15 has no NumPy
# type and is kept as its bits.
DTYPES: dict[str, DType] = {
    dtype.short_name: dtype
    for dtype in [
        DType("i1", Kind.BOOL, 1, np.dtype(np.bool_), "int1"),
        *(_integer(f"i{b}", Kind.SIGNED, b, f"int{b}") for b in (8, 16, 32, 64)),
        *(_integer(f"u{b}", Kind.UNSIGNED, b, f"uint{b}") for b in (8, 16, 32, 64)),
        DType("fp16", Kind.FLOAT, 16, np.dtype(np.float16), "float16", 10, 15),
        DType("bf16", Kind.FLOAT, 16, np.dtype(ml_dtypes.bfloat16), "bfloat16", 7, 127),
        DType("fp32", Kind.FLOAT, 32, np.dtype(np.float32), "float32", 23, 127),
        DType("fp64", Kind.FLOAT, 64, np.dtype(np.float64), "float64", 52, 1023),
        DType("fp8e4nv", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e4m3fn), "float8e4nv", 3, 7),
        DType("fp8e5", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e5m2), "float8e5", 2, 15),
        DType("fp8e4b8", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e4m3fnuz), "float8e4b8", 3, 8),
        DType("fp8e5b16", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e5m2fnuz), "float8e5b16", 2, 16),
        DType("fp8e4b15", Kind.FLOAT, 8, np.dtype(np.uint8), "float8e4b15", 3, 15),
    ]
}

_PREDICATES = {
    f"is_{name}": dtype.short_name
    for dtype in DTYPES.values()
    for name in {dtype.short_name, dtype.long_name}
    if name not in {"i1", "int1"}
}

_BY_ANY_NAME = {
    name: dtype for dtype in DTYPES.values() for name in (dtype.short_name, dtype.long_name)
}

_FROM_NUMPY = {d.numpy: d for d in DTYPES.values() if d.short_name != "fp8e4b15"}


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the element type of a NumPy array's dtype, or None where there is none."""
    return _FROM_NUMPY.get(dtype)


@dataclass(frozen=True, slots=True)
class PointerType:
    """The address of an element; `const` forbids stores through it."""

    element_ty: DType
    const: bool = False

    def __str__(self) -> str:
        return f"*{'k' if self.const else ''}{self.element_ty}"

    @property
    def primitive_bitwidth(self) -> int:
        return 64

    @property
    def itemsize(self) -> int:
        return 8

    @property
    def storage_bits(self) -> int:
        return 64

    @property
    def numpy(self) -> np.dtype[Any]:
        """Addresses are evaluated as 64-bit integers."""
        return np.dtype(np.int64)

    @property
    def short_name(self) -> str:
        return str(self)

    name = short_name

    @property
    def address_space(self) -> int:
        """Where it points to: 1, the memory of arrays."""
        return 1

    @property
    def scalar(self) -> PointerType:
        return self

    def is_ptr(self) -> bool:
        return True

    def is_floating(self) -> bool:
        return False

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_int_signed(self) -> bool:
        return False

    def is_int_unsigned(self) -> bool:
        return False

    def is_fp8(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_const(self) -> bool:
        return self.const

    def __getattr__(self, name: str) -> Any:
        # A pointer is none of the element types that it can be asked for.
        if name in _PREDICATES or name == "is_standard_floating":
            return lambda: False
        message = f"a pointer type has no attribute {name!r}"
        raise AttributeError(message)


ElementType = DType | PointerType


@dataclass(frozen=True, slots=True)
class TileType:
    """An n-dimensional block of elements; a scalar has shape `()`."""

    element: ElementType
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.element}[{', '.join(map(str, self.shape))}]"
            if self.shape
            else f"{self.element}"
        )

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    def with_element(self, element: ElementType) -> TileType:
        return TileType(element, self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> TileType:
        return TileType(self.element, shape)
