"""Copies of whole tiles by tensor maps: one thread asks for a tile, and it arrives by itself.

A tensor map describes the array; it is made at the launch, from the values of the kernel's
parameters, so only ops on descriptors whose parts are parameters, constants or products of those
are copied so. Each
tile that is loaded has a barrier in shared memory on which its bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import dtype
from tilewright.codegen.gpu.atomics import Atomics
from tilewright.codegen.gpu.barriers import BarrierMachine, BarrierTable
from tilewright.codegen.gpu.element_stores import ElementStores, Written
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared import SHARED
from tilewright.codegen.gpu.shared_tile import SharedTile, TileMemory, block_memory, put_in_shared
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.nvidia.tensor_map import (
    MOST_FACTORS,
    Extent,
    Parameter,
    Product,
    TensorMap,
)
from tilewright.ir.core import Function, Param, Value
from tilewright.ir.types import ElementType
from tilewright.passes.axis_info import AxisInfo

__all__ = [
    "TensorCopies",
    "TensorMachine",
    "is_tensor_copy",
]

_PIECE_BYTES = 16
_MOST_ROWS = 256  # of one box, along any axis
TensorOp = ops.DescriptorLoad | Written
# What copies combine with the elements of the array (CUDA, "TMA": reductions).
_SUMMED = frozenset({"i32", "u32", "u64", "fp16", "bf16", "fp32"})
_COMPARED = frozenset({"i32", "u32", "i64", "u64", "fp16", "bf16"})
_BITWISE = frozenset({"i32", "u32", "i64", "u64"})
_REDUCED = {
    ops.AtomicKind.ADD: _SUMMED,
    ops.AtomicKind.MIN: _COMPARED,
    ops.AtomicKind.MAX: _COMPARED,
    ops.AtomicKind.AND: _BITWISE,
    ops.AtomicKind.OR: _BITWISE,
    ops.AtomicKind.XOR: _BITWISE,
}


class TensorMachine(BarrierMachine, Protocol):
    """Writes copies by tensor maps."""

    def copy_box_to_shared(
        self, to: str, tensor_map: str, offsets: Sequence[str], barrier: str, flag: str
    ) -> None:
        """Start the copy of a box where the flag holds; a barrier counts its bytes.

        Offsets are innermost first.
        """

    def copy_row_to_shared(
        self, to: str, origin: str, size_bytes: int, barrier: str, flag: str
    ) -> None:
        """Start the copy of consecutive bytes where the flag holds; a barrier counts them.

        16 divides all places.
        """

    def copy_box_from_shared(
        self, origin: str, tensor_map: str, offsets: Sequence[str], reduction: str, flag: str
    ) -> None:
        """Start the copy of a box to the user's memory where the flag holds.

        Offsets are innermost first. It is combined with what is there as `reduction` says, "" for
        written over.
        """

    def commit_stores(self) -> None:
        """End a group of this thread's copies to the user's memory."""


def is_tensor_copy(op: ops.DescriptorOp, function: Function, facts: AxisInfo) -> bool:
    """Whether an op on a descriptor is made by a tensor map, where a target has them.

    The hardware takes no copy whose rows begin within 16 bytes, and has no NaN of one byte.
    """
    if not isinstance(op, TensorOp):
        return False
    if isinstance(op, ops.DescriptorReduce) and op.element.short_name not in _REDUCED[op.kind]:
        return False
    shape, bits = op.block_shape, op.element.primitive_bitwidth
    if isinstance(op, ops.DescriptorLoad) and op.padding is ops.Padding.NAN and bits == 8:
        return False
    parts = [_extent(value, function) for value in (*op.sizes, *op.strides)]
    return (
        isinstance(op.base, Param)
        and op.base in function.params
        and None not in parts
        and padded(shape) == tuple(shape)
        and bits >= 8
        and not shape[-1] * bits % (8 * _PIECE_BYTES)
        and not facts.divisibility(op.offsets[-1]) * bits % (8 * _PIECE_BYTES)
    )


def _extent(value: Value, function: Function) -> Extent | None:
    """What a size or a stride is before the launch; None for what only the kernel knows."""
    match value:
        case Param() if value in function.params:
            return Parameter(function.params.index(value))
        case ops.Full(value=number):
            return int(number)
        case ops.Hint(x=x):
            return _extent(x, function)
        case ops.Cast(x=x) if x.type.element.is_int():
            return _converted(_extent(x, function), x.type.element, value.type.element)
        case ops.Mul(x=x, y=y) if value.type.element.is_int():
            bits = value.type.element.primitive_bitwidth
            return _product(_extent(x, function), _extent(y, function), bits)
    return None


def _converted(extent: Extent | None, source: ElementType, target: ElementType) -> Extent | None:
    """Return an extent as a number of another type."""
    if not isinstance(extent, Product):
        return extent
    bits = target.primitive_bitwidth
    if bits > source.primitive_bitwidth and source.is_int_unsigned():
        return None
    return replace(extent, bits=min(bits, extent.bits))


def _product(x: Extent | None, y: Extent | None, bits: int) -> Extent | None:
    """Return the product of two extents in numbers of so many bits."""
    numbers: tuple[int, ...] = ()
    factor = 1
    for extent in (x, y):
        match extent:
            case int():
                factor *= extent
            case Parameter(number):
                numbers += (number,)
            case Product(more, own_factor, own_bits) if own_bits >= bits:
                numbers, factor = numbers + more, factor * own_factor
            case _:
                return None
    return (
        Product(tuple(sorted(numbers)), factor, bits) if 0 < len(numbers) <= MOST_FACTORS else None
    )


@dataclass(frozen=True)
class _Box:
    """One copy: where it lies in the tile, in elements, and in shared memory, in bytes."""

    corner: tuple[int, ...]
    offset: int


class TensorCopies:
    """Writes the tensor copies of one function; `maps` are the tensor maps that they need."""

    def __init__(
        self, puller: Puller, machine: TensorMachine, function: Function, atomics: Atomics
    ) -> None:
        self.puller, self.machine, self.function = puller, machine, function
        self.code = puller.code
        self.element_stores = ElementStores(puller, machine, atomics)
        self.barriers = BarrierTable(self.code)
        self.maps: list[TensorMap] = []

    # -- loads ------------------------------------------------------------------------------------

    def start_load(
        self, op: ops.DescriptorLoad | ops.Load, tile: SharedTile, barrier: str, flag: str
    ) -> None:
        """Let the thread in which a flag holds ask for a tile."""
        if isinstance(op, ops.Load):
            layout = self.puller.placement.in_every_thread(op)
            origin = self.puller.pull(op.pointer, layout, 0).text
            size = tile.memory.size_bytes
            self.machine.copy_row_to_shared(tile.start, origin, size, barrier, flag)
            return
        for box in _boxes(tile.memory, self._box_shape(tile.memory)):
            to = self.code.assign(f"getelementptr i8, {SHARED} {tile.start}, i32 {box.offset}")
            offsets = self._offsets(op, box)
            tensor_map = self._map(op, tile.memory)
            self.machine.copy_box_to_shared(to, tensor_map, offsets, barrier, flag)

    @contextmanager
    def loaded(self, op: ops.DescriptorLoad) -> Iterator[None]:
        """Inside, a tile that is loaded here lies in shared memory."""
        puller, memory = self.puller, block_memory(op)
        barrier = self.barriers.reserve(1).address()
        phase = self.code.alloca("i32")
        with self.code.entered():
            self.code.line(f"store i32 0, ptr {phase}")
        with puller.shared.ring(memory.size_bytes, memory.alignment) as span:
            tile = SharedTile(memory, span.address)
            puller.shared.before_access(op.base, writes=False, is_asynchronous=True)
            self.machine.fence_async_proxy()
            puller.shared.barrier()
            with self.by_first_warp():
                elected = self.machine.elected()
                self.machine.expect_bytes(barrier, memory.size_bytes, elected)
                self.start_load(op, tile, barrier, elected)
            known = self.code.assign(f"load i32, ptr {phase}")
            self.machine.await_phase(barrier, known)
            self.code.line(f"store i32 {self.code.assign(f'xor i32 {known}, 1')}, ptr {phase}")
            puller.tiles[op] = tile
            yield
            del puller.tiles[op]

    @contextmanager
    def by_first_warp(self) -> Iterator[None]:
        """Write what only one warp of the program runs.

        What only one of its threads does has a flag: the assembler keeps what is the same in all
        threads of a warp in registers of the warp only where these stay together.
        """
        first = self.code.assign(f"icmp eq i32 {self.puller.warp_number()}, 0")
        with self.code.guarded(first):
            yield

    # -- stores -----------------------------------------------------------------------------------

    def store(self, op: Written) -> None:
        """Write a tile to shared memory, from where one thread lets it be copied.

        Copies from shared memory fault where they begin below 0, and write whole pieces of 16
        bytes: where such a piece may reach beyond the end of a row, or an offset below 0, the
        threads store the elements instead.
        """
        puller, memory = self.puller, block_memory(op)
        kind = op.kind if isinstance(op, ops.DescriptorReduce) else None
        elements = puller.pull_all(op.value, puller.placement.of_elements(op.value))
        span = puller.shared.reserve(memory.size_bytes, memory.alignment)
        tile = SharedTile(memory, span.address)
        source = puller.placement.of_elements(op.value)
        put_in_shared(puller, [e.text for e in elements], op.element, source, tile)
        with puller.shared.held(span):
            puller.shared.before_copy(op, kind)
            self.machine.fence_async_proxy()
            puller.shared.barrier()
        with self._only_where(self._is_copyable(op), lambda: self.element_stores.write(op, tile)):
            self._start_store(op, tile, kind or "")
        puller.shared.copy_reads(span)

    def _start_store(self, op: Written, tile: SharedTile, reduction: str) -> None:
        code, memory = self.code, tile.memory
        with self.by_first_warp():
            elected = self.machine.elected()
            for box in _boxes(memory, self._box_shape(memory)):
                origin = code.assign(f"getelementptr i8, {SHARED} {tile.start}, i32 {box.offset}")
                offsets = self._offsets(op, box)
                tensor_map = self._map(op, memory)
                self.machine.copy_box_from_shared(origin, tensor_map, offsets, reduction, elected)
            self.machine.commit_stores()

    def _is_copyable(self, op: Written) -> str | None:
        """Whether copies store what an op says and no more; None where they surely do."""
        code, facts, scalar = self.code, self.puller.uses.facts, self.puller.scalar
        flags: list[str] = []
        # The sign of the or of numbers is that of any.
        signs = [scalar(v).text for v in op.offsets if not facts.is_non_negative(v)]
        if signs:
            signed = reduce(lambda x, y: code.assign(f"or i32 {x}, {y}"), signs)
            flags.append(code.assign(f"icmp sge i32 {signed}, 0"))
        piece = 8 * _PIECE_BYTES // op.element.primitive_bitwidth
        if facts.divisibility(op.sizes[-1]) % piece:
            size, first = scalar(op.sizes[-1]).text, scalar(op.offsets[-1]).text
            rest = code.assign(f"and i32 {size}, {piece - 1}")
            is_whole = code.assign(f"icmp eq i32 {rest}, 0")
            last = code.assign(f"sub i32 {size}, {op.block_shape[-1]}")
            ends_before = code.assign(f"icmp sle i32 {first}, {last}")
            flags.append(code.assign(f"or i1 {is_whole}, {ends_before}"))
        return reduce(lambda x, y: code.assign(f"and i1 {x}, {y}"), flags) if flags else None

    @contextmanager
    def _only_where(self, flag: str | None, otherwise: Callable[[], None]) -> Iterator[None]:
        """Write inside what runs where a flag of the whole program holds; None always does."""
        if flag is None:
            yield
            return
        code = self.code
        chosen, other, done = code.label("copied"), code.label("stored"), code.label("written")
        with code.section():  # outer values are computed before the branch, for both its sides
            code.line(f"br i1 {flag}, label %{chosen}, label %{other}")
            code.place(chosen)
            with code.section():
                yield
            code.line(f"br label %{done}")
            code.place(other)
            with code.section():
                otherwise()
            code.line(f"br label %{done}")
            code.place(done)

    # -- tensor maps ------------------------------------------------------------------------------

    def _box_shape(self, memory: TileMemory) -> tuple[int, ...]:
        sizes = [d.size for d in memory.layout.outputs]
        shape = [min(size, _MOST_ROWS) for size in sizes]
        if memory.swizzle:
            shape[memory.inner] = memory.swizzle * 8 // memory.element_bits
        return tuple(shape)

    def _offsets(self, op: TensorOp, box: _Box) -> list[str]:
        offsets = []
        for value, step in zip(op.offsets, box.corner, strict=True):
            first = self.puller.scalar(value).text
            offsets.append(self.code.assign(f"add i32 {first}, {step}") if step else first)
        return offsets[::-1]

    def _map(self, op: TensorOp, memory: TileMemory) -> str:
        """The parameter of the kernel that is the tensor map of an op."""
        extents = [_extent(value, self.function) for value in (*op.sizes, *op.strides)]
        known = [extent for extent in extents if extent is not None]
        rank = len(op.sizes)
        made = TensorMap(
            self.function.params.index(op.base),
            tuple(known[:rank]),
            tuple(known[rank:]),
            self._box_shape(memory),
            dtype(op.element),
            memory.swizzle,
            isinstance(op, ops.DescriptorLoad) and op.padding is ops.Padding.NAN,
        )
        if made not in self.maps:
            self.maps.append(made)
        return f"%map{self.maps.index(made)}"


def _boxes(memory: TileMemory, shape: tuple[int, ...]) -> Iterator[_Box]:
    sizes = [d.size for d in memory.layout.outputs]
    for corner in product(*(range(0, s, step) for s, step in zip(sizes, shape, strict=True))):
        yield _Box(corner, memory.offset_bytes(*corner))
