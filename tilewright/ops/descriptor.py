"""Blocks of an array that is described by its base, sizes and strides: tensor descriptors.

A descriptor is no value of the IR. Each op names the array by its parts: a scalar pointer `base`
that 16 bytes divide, `sizes` (i32, one for each axis) and `strides` in elements (i64, one for each
axis but the last, whose stride is 1; 16 bytes divide them). Two ops whose parts are the same values
access the same array. Parts that are parameters of the function, or products of them, are known
before the launch.

A size below 0 counts as 0. Indices count elements along each axis and may lie outside the array,
below 0 too: such elements are loaded as `padding`, and neither stored nor changed.
"""

from __future__ import annotations

import enum
import math
from typing import ClassVar

import numpy as np

from tilewright.ir.core import Effect, MachineOp, Value, require
from tilewright.ir.types import DTYPES, DType, PointerType, TileType
from tilewright.ops.machine import Machine
from tilewright.ops.memory import AtomicKind, atomic_update, check_atomic, pointee
from tilewright.ops.numerics import Array
from tilewright.ops.shape import Full, check_shape

__all__ = [
    "ALIGNMENT_BYTES", "MAX_DESCRIPTOR_RANK", "PAD_ROWS", "DescriptorGather", "DescriptorLoad",
    "DescriptorOp", "DescriptorReduce", "DescriptorScatter", "DescriptorStore", "Padding",
    "stride_mistake",
]  # fmt: skip

MAX_DESCRIPTOR_RANK = 5
ALIGNMENT_BYTES = 16
PAD_ROWS = "allocate the rows wider and pass a view of them, or read the array through pointers"

Arrays = tuple[Array, ...]

_I32, _I64 = TileType(DTYPES["i32"]), TileType(DTYPES["i64"])


class Padding(enum.StrEnum):
    """What is loaded for elements outside the array."""

    ZERO = "zero"
    NAN = "nan"


def stride_mistake(axis: int, stride: int, element: DType) -> str:
    """Return what is wrong with the stride of an axis in elements, "" if nothing is."""
    if stride * element.itemsize % ALIGNMENT_BYTES == 0:
        return ""
    return (
        f"the stride of axis {axis}, {stride} elements of {element}, is not a multiple of "
        f"{ALIGNMENT_BYTES} bytes"
    )


class DescriptorOp(MachineOp, abstract=True):
    """An op on a block of an array that is described by its parts."""

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]

    @property
    def element(self) -> DType:
        """The type of the array's elements."""
        return pointee(self, self.base)

    @property
    def indices(self) -> tuple[Value, ...]:
        """For each axis the index of the block's first element, or a 1-d tile of all of them."""
        raise NotImplementedError

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The sizes of the block."""
        raise NotImplementedError

    def check_parts(self, rank: int, *, writes: bool = False) -> None:
        """Raise `CompileError` unless the parts describe an array of `rank` axes."""
        name = self.op_name
        require(
            1 <= rank <= MAX_DESCRIPTOR_RANK,
            f"{name}: an array of a descriptor has 1 to {MAX_DESCRIPTOR_RANK} axes, not {rank}",
            hint="join axes: describe the array by fewer, larger ones",
        )
        require(not self.base.shape, f"{name}: the base must be a scalar, got {self.base.type}")
        pointee(self, self.base)
        pointer = self.base.type.element
        require(
            not (writes and isinstance(pointer, PointerType) and pointer.const),
            f"{name}: the pointer is declared const",
            hint="take `const` from the parameter's type",
        )
        counts = len(self.sizes), len(self.strides) + 1
        require(
            counts == (rank, rank), f"{name}: {rank} axes need as many sizes and strides: {counts}"
        )
        require(all(v.type == _I32 for v in self.sizes), f"{name}: sizes are scalars of i32")
        require(all(v.type == _I64 for v in self.strides), f"{name}: strides are scalars of i64")

    def check_offsets(self, offsets: tuple[Value, ...], block_shape: tuple[int, ...]) -> None:
        """Raise `CompileError` unless the offsets are scalars of i32, one for each axis."""
        check_shape(self.op_name, block_shape)
        require(
            len(offsets) == len(block_shape),
            f"{self.op_name}: a block of shape {list(block_shape)} needs {len(block_shape)} "
            f"offsets, got {len(offsets)}",
        )
        require(all(v.type == _I32 for v in offsets), f"{self.op_name}: offsets are scalars of i32")

    def check_rows(self, rows: Value, column: Value) -> None:
        """Raise `CompileError` unless these are a 1-d tile and a scalar of i32."""
        require(
            rows.type == _I32.with_shape(rows.shape[:1]) and rows.shape,
            f"{self.op_name}: the rows are a 1-d tile of i32, got {rows.type}",
        )
        require(column.type == _I32, f"{self.op_name}: the column is a scalar of i32")

    def addresses(
        self, base: Array, sizes: Arrays, strides: Arrays, firsts: Arrays
    ) -> tuple[Array, Array]:
        """Return the address of each element of the block, and whether it is in the array."""
        indices = [
            first.astype(np.int64) + (0 if first.ndim else np.arange(size))
            for first, size in zip(firsts, self.block_shape, strict=True)
        ]
        address: Array = base.astype(np.int64)
        inside: Array = np.ones((), np.bool_)
        steps = (*strides, np.ones((), np.int64))
        for index, size, step in zip(np.ix_(*indices), sizes, steps, strict=True):
            address = address + index * step * self.element.itemsize
            inside = inside & (index >= 0) & (index < size)
        return address, inside


class DescriptorWrite(DescriptorOp, abstract=True):
    """An op that changes the block whose first element is at `offsets` by a tile."""

    offsets: tuple[Value, ...]
    value: Value

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.offsets

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.value.shape

    def check_tile(self) -> None:
        """Raise `CompileError` unless the array can be written, by this tile."""
        self.check_parts(self.value.type.rank, writes=True)
        self.check_offsets(self.offsets, self.value.shape)
        _check_value(self, self.value)


class DescriptorLoad(DescriptorOp):
    """The block of shape `block` whose first element is at `offsets`; outside, the padding."""

    effect: ClassVar[Effect] = Effect.READ
    offsets: tuple[Value, ...]
    block: tuple[int, ...]
    padding: Padding = Padding.ZERO

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.offsets

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.block

    def infer(self) -> TileType:
        self.check_parts(len(self.block))
        self.check_offsets(self.offsets, self.block)
        _check_padding(self, self.padding)
        return TileType(self.element, self.block)

    def evaluate(
        self, machine: Machine, base: Array, sizes: Arrays, strides: Arrays, offsets: Arrays
    ) -> Array:
        places = self.addresses(base, sizes, strides, offsets)
        return _loaded(machine, self, self.padding, *places)


class DescriptorStore(DescriptorWrite):
    """Write `value` to the block whose first element is at `offsets`."""

    effect: ClassVar[Effect] = Effect.WRITE

    def infer(self) -> tuple[TileType, ...]:
        self.check_tile()
        return ()

    def evaluate(
        self,
        machine: Machine,
        base: Array,
        sizes: Arrays,
        strides: Arrays,
        offsets: Arrays,
        value: Array,
    ) -> None:
        address, inside = self.addresses(base, sizes, strides, offsets)
        machine.write(address[inside], value[inside])


class DescriptorReduce(DescriptorWrite):
    """Replace each element by `kind(element, value)`, each in one step: an atomic on a block."""

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE
    kind: AtomicKind

    def infer(self) -> tuple[TileType, ...]:
        self.check_tile()
        require(
            self.kind is not AtomicKind.XCHG,
            f"{self.op_name}: there is no exchange",
            hint="store the block, or tl.atomic_xchg on pointers",
        )
        check_atomic(f"descriptor atomic_{self.kind}", self.kind, self.element)
        return ()

    def evaluate(
        self,
        machine: Machine,
        base: Array,
        sizes: Arrays,
        strides: Arrays,
        offsets: Arrays,
        value: Array,
    ) -> None:
        address, inside = self.addresses(base, sizes, strides, offsets)
        atomic_update(machine, self.kind, self.element, address, value, inside)


class DescriptorGather(DescriptorOp):
    """Of the rows `rows` of a matrix the `columns` elements from `column` on."""

    effect: ClassVar[Effect] = Effect.READ
    rows: Value
    column: Value
    columns: int
    padding: Padding = Padding.ZERO

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.rows, self.column

    @property
    def block_shape(self) -> tuple[int, ...]:
        return (*self.rows.shape, self.columns)

    def infer(self) -> TileType:
        self.check_parts(2)
        self.check_rows(self.rows, self.column)
        check_shape(self.op_name, self.block_shape)
        _check_padding(self, self.padding)
        return TileType(self.element, self.block_shape)

    def evaluate(
        self,
        machine: Machine,
        base: Array,
        sizes: Arrays,
        strides: Arrays,
        rows: Array,
        column: Array,
    ) -> Array:
        places = self.addresses(base, sizes, strides, (rows, column))
        return _loaded(machine, self, self.padding, *places)


class DescriptorScatter(DescriptorOp):
    """Write `value` to the rows `rows` of a matrix, from `column` on; of equal rows any may win."""

    effect: ClassVar[Effect] = Effect.WRITE
    rows: Value
    column: Value
    value: Value

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.rows, self.column

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.value.shape

    def infer(self) -> tuple[TileType, ...]:
        self.check_parts(2, writes=True)
        self.check_rows(self.rows, self.column)
        require(
            self.value.type.rank == 2 and self.value.shape[:1] == self.rows.shape,
            f"{self.op_name}: the value has a row for each of {self.rows.type}, not "
            f"{self.value.type}",
        )
        _check_value(self, self.value)
        return ()

    def evaluate(
        self,
        machine: Machine,
        base: Array,
        sizes: Arrays,
        strides: Arrays,
        rows: Array,
        column: Array,
        value: Array,
    ) -> None:
        address, inside = self.addresses(base, sizes, strides, (rows, column))
        machine.write(address[inside], value[inside])


def _check_padding(op: DescriptorOp, padding: Padding) -> None:
    require(
        padding is Padding.ZERO or op.element.is_floating(),
        f"{op.op_name}: {op.element} has no NaN to pad with",
        hint="leave the padding out: what is outside reads as zero",
    )


def _check_value(op: DescriptorOp, value: Value) -> None:
    require(
        value.type.element == op.element,
        f"{op.op_name}: the value must be of {op.element}, got {value.type}",
    )


def _loaded(
    machine: Machine, op: DescriptorOp, padding: Padding, address: Array, inside: Array
) -> Array:
    outside = math.nan if padding is Padding.NAN else 0
    result = np.array(Full(outside, TileType(op.element, op.block_shape)).evaluate())
    result[inside] = machine.read(address[inside], op.element)
    return result
