"""Tiles that stay in shared memory: how they are laid out there, and reading them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.gpu.shared_area import SharedArea, Writer
from tilewright.codegen.gpu.threads import register_offset, thread_columns
from tilewright.codegen.gpu.views import cut
from tilewright.codegen.gpu.words import to_words
from tilewright.ir.types import ElementType
from tilewright.layout import LinearLayout, plan_access
from tilewright.layout.access import Access
from tilewright.layout.blocked import axis_names
from tilewright.layout.f2 import dependencies, independent, span
from tilewright.layout.shared import nvmma_alignment, nvmma_shared, swizzled

__all__ = ["SharedTile", "TileMemory", "block_memory", "memory_of", "put_in_shared"]

_SWIZZLES = (128, 64, 32)
_ROWS = 8
_ALIGNMENT = 128


@dataclass(frozen=True)
class TileMemory:
    """How a tile lies in shared memory.

    `layout` maps the offset, in elements, to coordinates. `inner` is the axis along which elements
    are contiguous. `swizzle` is the number of bytes within which the pieces of 16 bytes are
    exchanged, as matrix instructions and tensor copies know it; 0 stands for none.
    """

    layout: LinearLayout
    element_bits: int
    inner: int
    swizzle: int

    @property
    def size_bytes(self) -> int:
        """The size of the tile."""
        return self.layout.input_size("offset") * self.element_bits // 8

    @property
    def alignment(self) -> int:
        """What the address of the tile must be a multiple of."""
        return max(_ALIGNMENT, nvmma_alignment(self.swizzle)) if self.swizzle else _ALIGNMENT

    @property
    def stride_bytes(self) -> int:
        """How far such tiles are apart where several lie one behind the other."""
        return -(-self.size_bytes // self.alignment) * self.alignment

    def offset_bytes(self, *coordinates: int) -> int:
        """Return where an element lies."""
        names = axis_names(len(coordinates))
        place = self.layout.inverse()(**dict(zip(names, coordinates, strict=True)))
        return place["offset"] * self.element_bits // 8

    def without_axes(self) -> TileMemory:
        """Return the memory of the matrix that a tile is whose first axes have size 1."""
        more = len(self.layout.outputs) - 2
        names = axis_names(more + 2)
        kept = self.layout.sublayout(self.layout.input_names, names[more:])
        layout = kept.rename({names[more]: "dim0", names[more + 1]: "dim1"})
        return TileMemory(layout, self.element_bits, self.inner - more, self.swizzle)

    def is_operand(self, depth_axis: int) -> bool:
        """Whether products of warpgroups read it; only 16 bits need not be contiguous along k."""
        return self.swizzle > 0 and (self.inner == depth_axis or self.element_bits == 16)

    def transposed(self) -> TileMemory:
        """Return the memory of the matrix with rows and columns exchanged."""
        swapped = self.layout.rename({"dim0": "dim1", "dim1": "dim0"})
        layout = swapped.transpose_outputs(["dim0", "dim1"])
        return TileMemory(layout, self.element_bits, 1 - self.inner, self.swizzle)

    def access(self, registers: LinearLayout, *, by_matrices: bool) -> Access:
        """Return how registers of a layout are loaded from it."""
        return plan_access(registers, self.layout, self.element_bits, matrix=by_matrices)


@dataclass(frozen=True)
class SharedTile:
    """A tile that lies in shared memory from the address `start` on."""

    memory: TileMemory
    start: str

    def without_axes(self) -> SharedTile:
        """Return the same bytes as a matrix, where the other axes have size 1."""
        return SharedTile(self.memory.without_axes(), self.start)

    def transposed(self) -> SharedTile:
        """Return the same bytes as the matrix with rows and columns exchanged."""
        return SharedTile(self.memory.transposed(), self.start)


def memory_of(shape: Sequence[int], order: Sequence[int], element_bits: int) -> TileMemory:
    """Return how to lay out a tile that is written and read along `order[0]`, and across it.

    A matrix is swizzled, so that neither finds its elements in few banks.
    """
    inner = order[0]
    if len(shape) > 2 and math.prod(shape[:-2]) == 1:
        return _with_axes(
            memory_of(
                shape[-2:],
                [axis - len(shape) + 2 for axis in order if axis >= len(shape) - 2],
                element_bits,
            ),
            len(shape),
        )
    row_bytes = shape[inner] * element_bits // 8
    fitting = [swizzle for swizzle in _SWIZZLES if not row_bytes % swizzle]
    if len(shape) == 2 and fitting and shape[1 - inner] >= _ROWS:
        layout = nvmma_shared(shape, element_bits, fitting[0], transposed=inner == 0)
        return TileMemory(layout, element_bits, inner, fitting[0])
    return TileMemory(swizzled(shape, 1, 1, 1, order), element_bits, inner, 0)


def block_memory(op: ops.DescriptorOp) -> TileMemory:
    """Return how the block of a descriptor is laid out that one thread lets be copied."""
    order = tuple(reversed(range(len(op.block_shape))))
    return memory_of(op.block_shape, order, op.element.primitive_bitwidth)


def put_in_shared(
    writer: Writer,
    texts: Sequence[str],
    element: ElementType,
    source: LinearLayout,
    tile: SharedTile,
    axis: int = 0,
    start: int = 0,
) -> None:
    """Write the registers of a layout to a tile in shared memory.

    Where the memory is smaller along an axis, those are written that are in it if it begins at
    `start`, a multiple of its size there.
    """
    memory, bits = tile.memory, tile.memory.element_bits
    raw = [to_words(writer.code, [text], element, bits)[0] for text in texts]
    shape = tuple(output.size for output in memory.layout.outputs)
    stores = plan_access(
        cut(source, shape), memory.layout, bits, is_store=True,
        matrix=writer.machine.has_matrix_stores,
    )  # fmt: skip
    area = SharedArea(writer, tile.start, bits)
    for further, flag in _holders(writer, source, shape, axis, start):
        for move in stores.moves:
            words = [raw[register ^ further] for register in move.registers]
            area.store(stores, move, words, flag)


def _holders(
    writer: Writer, source: LinearLayout, shape: tuple[int, ...], axis: int, start: int
) -> Iterator[tuple[int, str | None]]:
    """Where the elements of a part of a tile are: in registers by how much further, and if what.

    A thread has the part if the flag holds, if there is one, and is no copy of another one.
    """
    free, code = source.free_masks(), writer.code
    first = writer.threads.has_none_of(free["lane"], free["warp"])
    is_first = first.text if first is not None else None
    columns = [column & -shape[axis] for column in thread_columns(source, axis)]
    reachable = span(independent(columns))
    seen = set()
    for further in span(dependencies(cut(source, shape).columns_of("register"))):
        wanted = start ^ register_offset(source, axis, further)
        if wanted in seen or wanted not in reachable:
            continue
        seen.add(wanted)
        flag = is_first
        if any(columns):
            place = writer.threads.linear(columns).text
            flag = code.assign(f"icmp eq i32 {place}, {wanted}")
            if is_first is not None:
                flag = code.assign(f"and i1 {flag}, {is_first}")
        yield further, flag


def _with_axes(matrix: TileMemory, rank: int) -> TileMemory:
    """The memory of a matrix as that of a tile with more axes, of size 1, in front."""
    names = axis_names(rank)
    more = rank - 2
    moved = matrix.layout.rename({f"dim{axis}": names[axis + more] for axis in (1, 0)})
    layout = LinearLayout.empty((), names[:more]) * moved
    return TileMemory(
        layout.transpose_outputs(names), matrix.element_bits, matrix.inner + more, matrix.swizzle
    )
