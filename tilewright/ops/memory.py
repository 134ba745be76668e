"""Pointers, loads, stores and atomics.

A masked-out lane touches no memory: a load gives `other` there (0 where there is none), an atomic
gives 0.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import numpy as np

from tilewright.errors import CompileError
from tilewright.ir.core import Effect, MachineOp, Op, Value, require
from tilewright.ir.types import DTYPES, DType, PointerType, TileType
from tilewright.ops.elementwise import larger, smaller
from tilewright.ops.machine import Machine
from tilewright.ops.numerics import Array, widen, with_dtype

__all__ = [
    "AtomicCas", "AtomicKind", "AtomicRmw", "Load", "PointerAdd", "Store", "atomic_update",
    "check_atomic", "pointee",
]  # fmt: skip


def pointee(op: Op, pointer: Value) -> DType:
    """Return the element type behind a pointer operand, or raise."""
    element = pointer.type.element
    if not isinstance(element, PointerType):
        raise CompileError(
            f"{op.op_name}: expected a pointer, got {pointer.type}",
            hint="pass an array, or annotate the parameter as a pointer: `x_ptr: '*fp32'`",
        )
    return element.element_ty


def _require_mask(op: Op, pointer: Value, mask: Value | None) -> None:
    if mask is not None:
        require(
            mask.type == TileType(DTYPES["i1"], pointer.shape),
            f"{op.op_name}: the mask must be i1{list(pointer.shape)}, got {mask.type}",
        )


def _require_value(op: Op, pointer: Value, value: Value, what: str = "value") -> None:
    expected = TileType(pointee(op, pointer), pointer.shape)
    require(
        value.type == expected, f"{op.op_name}: the {what} must be {expected}, got {value.type}"
    )


def _require_writable(op: Op, pointer: Value) -> None:
    element = pointer.type.element
    require(
        not (isinstance(element, PointerType) and element.const),
        f"{op.op_name}: the pointer is declared const",
        hint="take `const` from the parameter's type",
    )


def _active(pointer: Array, mask: Array | None) -> Array:
    return np.ones(pointer.shape, np.bool_) if mask is None else mask


class PointerAdd(Op):
    """Advance a pointer by `offset` elements; a narrow offset is extended by its own sign."""

    pointer: Value
    offset: Value

    def infer(self) -> TileType:
        pointee(self, self.pointer)
        element = self.offset.type.element
        require(
            isinstance(element, DType) and element.is_int(),
            f"pointer_add: the offset must be of integers, got {self.offset.type}",
        )
        require(
            self.pointer.shape == self.offset.shape,
            f"pointer_add: shapes differ: {self.pointer.type} and {self.offset.type}",
        )
        return self.pointer.type

    def evaluate(self, pointer: Array, offset: Array) -> Array:
        return pointer + offset.astype(np.int64) * pointee(self, self.pointer).itemsize


class Load(MachineOp):
    """The elements at `pointer` where `mask` holds; elsewhere `other`, or 0."""

    effect: ClassVar[Effect] = Effect.READ
    pointer: Value
    mask: Value | None = None
    other: Value | None = None
    cache_modifier: str = ""
    eviction_policy: str = ""
    volatile: bool = False

    def infer(self) -> TileType:
        dtype = pointee(self, self.pointer)
        _require_mask(self, self.pointer, self.mask)
        if self.other is not None:
            require(self.mask is not None, "load: `other` needs a mask")
            _require_value(self, self.pointer, self.other, "`other`")
        return TileType(dtype, self.pointer.shape)

    @property
    def effects(self) -> Effect:
        """A volatile load stays where it is, like a store."""
        return Effect.READ | Effect.WRITE if self.volatile else Effect.READ

    def evaluate(
        self, machine: Machine, pointer: Array, mask: Array | None, other: Array | None
    ) -> Array:
        dtype = pointee(self, self.pointer)
        active = _active(pointer, mask)
        result = np.zeros(pointer.shape, dtype.numpy) if other is None else np.array(other)
        result[active] = machine.read(pointer[active], dtype)
        return result


class Store(MachineOp):
    """Write `value` to `pointer` where `mask` holds. Of lanes with one address, any may win."""

    effect: ClassVar[Effect] = Effect.WRITE
    pointer: Value
    value: Value
    mask: Value | None = None
    cache_modifier: str = ""
    eviction_policy: str = ""

    def infer(self) -> tuple[TileType, ...]:
        _require_value(self, self.pointer, self.value)
        _require_mask(self, self.pointer, self.mask)
        _require_writable(self, self.pointer)
        return ()

    def evaluate(self, machine: Machine, pointer: Array, value: Array, mask: Array | None) -> None:
        active = _active(pointer, mask)
        machine.write(pointer[active], value[active])


class AtomicKind(enum.StrEnum):
    """What an atomic read-modify-write stores."""

    ADD = "add"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"
    XCHG = "xchg"


def _modified(kind: AtomicKind, dtype: DType, old: Array, value: Array) -> Array:
    x, y = widen(old, dtype), widen(value, dtype)
    result: Any
    match kind:
        case AtomicKind.ADD:
            result = x + y
        case AtomicKind.MAX:
            result = larger(x, y)
        case AtomicKind.MIN:
            result = smaller(x, y)
        case AtomicKind.AND:
            result = x & y
        case AtomicKind.OR:
            result = x | y
        case AtomicKind.XOR:
            result = x ^ y
        case AtomicKind.XCHG:
            return value
    return with_dtype(result, dtype)


def check_atomic(name: str, kind: AtomicKind, dtype: DType) -> None:
    """Raise `CompileError` where elements of a type have no such read-modify-write."""
    bitwise = kind in {AtomicKind.AND, AtomicKind.OR, AtomicKind.XOR}
    wide = dtype.primitive_bitwidth >= 32 or dtype.short_name in {"fp16", "bf16"}
    require(
        wide and not (bitwise and dtype.is_floating()),
        f"{name}: not defined on {dtype}",
        hint="atomics work on 32- and 64-bit integers and on fp16, bf16, fp32, fp64",
    )


def atomic_update(
    machine: Machine, kind: AtomicKind, dtype: DType, pointer: Array, value: Array, active: Array
) -> Array:
    """Modify the elements at the active pointers one after the other and return the old ones."""
    result = np.zeros(pointer.shape, dtype.numpy)
    for lane in np.argwhere(active):
        place = tuple(lane)
        address = pointer[place].reshape(1)
        old = machine.read(address, dtype)
        machine.write(address, _modified(kind, dtype, old, value[place].reshape(1)))
        result[place] = old[0]
    return result


class AtomicRmw(MachineOp):
    """Replace each element by `kind(element, value)` in one step; the result is the old element.

    Lanes act one after the other. Floats take add, max, min and xchg; min and max as in `Minimum`
    and `Maximum`.
    """

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE
    kind: AtomicKind
    pointer: Value
    value: Value
    mask: Value | None = None
    sem: str = "acq_rel"
    scope: str = "gpu"

    def infer(self) -> TileType:
        dtype = pointee(self, self.pointer)
        _require_value(self, self.pointer, self.value)
        _require_mask(self, self.pointer, self.mask)
        _require_writable(self, self.pointer)
        check_atomic(f"atomic_{self.kind}", self.kind, dtype)
        return self.value.type

    def evaluate(self, machine: Machine, pointer: Array, value: Array, mask: Array | None) -> Array:
        dtype = pointee(self, self.pointer)
        return atomic_update(machine, self.kind, dtype, pointer, value, _active(pointer, mask))


class AtomicCas(MachineOp):
    """Replace the element by `value` if its bits equal `compare`; the result is the old one."""

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE
    pointer: Value
    compare: Value
    value: Value
    sem: str = "acq_rel"
    scope: str = "gpu"

    def infer(self) -> TileType:
        dtype = pointee(self, self.pointer)
        _require_value(self, self.pointer, self.compare, "comparand")
        _require_value(self, self.pointer, self.value)
        _require_writable(self, self.pointer)
        require(
            dtype.primitive_bitwidth in {16, 32, 64},
            f"atomic_cas: not defined on {dtype}",
            hint="compare-and-swap works on elements of 16, 32 and 64 bits",
        )
        return self.value.type

    def evaluate(self, machine: Machine, pointer: Array, compare: Array, value: Array) -> Array:
        dtype = pointee(self, self.pointer)
        result = np.zeros(pointer.shape, dtype.numpy)
        for place in np.ndindex(pointer.shape):
            address = pointer[place].reshape(1)
            old = machine.read(address, dtype)
            if old.tobytes() == compare[place].tobytes():
                machine.write(address, value[place].reshape(1))
            result[place] = old[0]
        return result
