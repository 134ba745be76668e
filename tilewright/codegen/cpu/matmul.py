"""The tile product `acc = a @ b + acc` as one LLVM function, generated for its sizes.

The plan follows the usual layered scheme (Goto and van de Geijn, "Anatomy of High-Performance
Matrix Multiplication", 2008), with the cache blocking left to the kernel's own tile sizes: columns
are taken in panels two vectors wide, rows in blocks that fill the registers, and one element of A
is broadcast against the panel at a time. Operands are copied ("staged") first only where that pays:
to convert them or to transpose B, or where B is read often and its rows may collide in the
first-level cache. A is read where it is, transposed or not, straight from the user's memory too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.codegen.cpu.buffers import CACHE_LINE_BYTES
from tilewright.codegen.cpu.matmul_amx import AmxPlan, amx_applies, tile_configuration
from tilewright.codegen.cpu.matmul_bytes import Excess, flips_a, flips_b
from tilewright.codegen.cpu.matmul_lanes import LaneFormat, MultiplyAdd, lane_format
from tilewright.codegen.cpu.matmul_microkernel import Matrix, Microkernel, Sums
from tilewright.codegen.cpu.matmul_shape import (
    DotShape,
    DotTarget,
    DotType,
    preferred_row_stride,
    stride_of,
)
from tilewright.codegen.cpu.matmul_staging import Panels, Staging
from tilewright.codegen.cpu.matmul_writer import Index, Writer
from tilewright.errors import InternalError
from tilewright.locks import cached_property

__all__ = ["DotCode", "DotPlan", "dot_function"]

# Rows this many bytes apart fall into the same few sets of a 32 to 48 KB first-level cache.
ALIASING_BYTES = 512
# Independent sums that cover the latency of the arithmetic: 4 or 5 cycles, two units.
SUMS_IN_FLIGHT = 12
# Vectors shorter than 128 bits of 32-bit lanes have no pair instructions.
FEWEST_LANES = 4
# Row pointers that fit the general registers beside the loop's own.
MOST_ROW_POINTERS = 8
# Passes over B, one for each block of rows, after which packing it has paid.
PASSES_TO_PACK = 8


@dataclass(frozen=True)
class DotCode:
    """`text` defines the function; the caller provides `scratch_bytes`, 64-byte aligned."""

    text: str
    scratch_bytes: int


def dot_function(shape: DotShape, name: str, target: DotTarget) -> DotCode:
    """Generate `void @name(a, a_stride, b, b_stride, acc_in, .., acc_out, .., scratch)`.

    Pointers are to the first element, strides are `i64` counts of elements from row to row.
    `acc_in` may be `acc_out`; otherwise what is written may not overlap what is read.
    `scratch` is aligned to 64 bytes. The text needs no declarations besides it.
    """
    uses_amx = amx_applies(shape, target)
    plan = AmxPlan(shape, target, name) if uses_amx else DotPlan(shape, target)
    writer = Writer()
    plan.write(writer)
    body = "\n".join(writer.lines)
    parameters = ", ".join(
        f"ptr {attributes}%{operand}, i64 %{operand}_row_stride"
        for operand, attributes in (
            ("a", "noalias readonly "),
            ("b", "noalias readonly "),
            ("acc_in", ""),
            ("acc_out", ""),
        )
    )
    # Without the preference LLVM may split 512-bit vectors on processors that clock down for them.
    attributes = f'noinline nounwind "prefer-vector-width"="{target.vector_bits}"'
    text = tile_configuration(name) if uses_amx else ""
    text += (
        f"define internal void @{name}({parameters}, ptr noalias align {CACHE_LINE_BYTES} %scratch)"
        f" {attributes} {{\nentry:\n{body}\n  ret void\n}}\n"
    )
    return DotCode(text, plan.scratch_bytes)


@dataclass(frozen=True)
class DotPlan:
    """The decisions for one product: lanes, register block, what is staged and where."""

    shape: DotShape
    target: DotTarget

    @cached_property
    def lanes(self) -> LaneFormat:
        shape = self.shape
        lanes = lane_format(shape.a_type, shape.b_type, self.target)
        if shape.acc_type.llvm not in (lanes.sum, "half" if lanes.sum == "float" else ""):
            raise InternalError(f"dot: {shape.a_type} cannot be summed in {shape.acc_type}")
        return lanes

    @cached_property
    def steps(self) -> int:
        """Trips along k: each takes one lane's worth."""
        return -(-self.shape.k // self.lanes.group)

    @cached_property
    def width(self) -> int:
        """Lanes of a vector: the machine's, or fewer where there are fewer columns."""
        lanes = self.target.vector_bits // (8 * self.lanes.bytes)
        while lanes // 2 >= max(self.shape.n, FEWEST_LANES):
            lanes //= 2
        return lanes

    @cached_property
    def panel(self) -> int:
        """Columns of a panel: two vectors, more where few rows leave registers free."""
        most = self.target.vector_registers // 4
        wanted = max(2, min(most, 16 // self.shape.m))
        vectors = min(wanted, -(-self.shape.n // self.width))
        return vectors * self.width

    @cached_property
    def row_blocks(self) -> tuple[tuple[int, int], ...]:
        """(height, count) pairs, tallest first: an even split, so at most two heights.

        One height halves the code, and the time to compile it, at the same speed, as long as there
        are sums enough.
        """
        rows = self.shape.m
        vectors = self.panel // self.width
        spare = 1 if self.target.has_fma else 2
        tallest = (self.target.vector_registers - vectors - spare) // vectors
        if self.has_row_pointers:
            tallest = min(tallest, MOST_ROW_POINTERS)
        for height in range(min(rows, tallest), 0, -1):
            if rows % height == 0 and (height * vectors >= SUMS_IN_FLIGHT or height == rows):
                return ((height, rows // height),)
        blocks = -(-rows // tallest)
        low, extra = divmod(rows, blocks)
        return ((low + 1, extra), (low, blocks - extra))

    @property
    def stages_a(self) -> bool:
        is_in_lanes = self.lanes.is_memory_format(self.shape.a_type)
        return not (is_in_lanes or self.a_is_pairs_in_memory)

    @property
    def has_row_pointers(self) -> bool:
        """Whether the rows of A are a distance apart that is not known now."""
        shape = self.shape
        return not (self.stages_a or shape.a_transposed or shape.a_row_stride is not None)

    @property
    def a_is_pairs_in_memory(self) -> bool:
        """Rows of bf16 can be read as pairs along k, if they divide into pairs."""
        takes_bfloat = self.lanes.multiply_add is MultiplyAdd.PAIRS_BFLOAT
        return takes_bfloat and not self.shape.a_transposed and self.shape.k % 2 == 0

    @cached_property
    def stages_b(self) -> bool:
        shape = self.shape
        if shape.b_transposed or not self.lanes.is_memory_format(shape.b_type):
            return True
        has_masks = "avx512vl" in self.target.features
        if shape.n % self.width and not has_masks:
            return True
        if shape.m <= PASSES_TO_PACK * self.row_blocks[0][0]:
            return False
        stride = shape.b_row_stride
        return stride is None or stride * self.lanes.bytes % ALIASING_BYTES == 0

    @cached_property
    def a_staged_stride(self) -> int:
        along = self.shape.m if self.shape.a_transposed else self.steps
        whole = -(-along // self.width) * self.width
        return preferred_row_stride(whole, self.lanes.bytes)

    @cached_property
    def a_staged_bytes(self) -> int:
        if not self.stages_a:
            return 0
        rows = self.steps if self.shape.a_transposed else self.shape.m
        return rows * self.a_staged_stride * self.lanes.bytes

    @cached_property
    def b_panel_stride(self) -> int:
        """Elements from panel to panel: a line more than they need, or all start in one set."""
        return self.steps * self.panel + CACHE_LINE_BYTES // self.lanes.bytes

    @cached_property
    def b_staged_bytes(self) -> int:
        if not self.stages_b:
            return 0
        panels = -(-self.shape.n // self.panel)
        return panels * self.b_panel_stride * self.lanes.bytes

    @cached_property
    def excess_bytes(self) -> int:
        """Room for one number for each column, or each row, in whole vectors."""
        shape = self.shape
        if flips_a(self.lanes, shape.a_type):
            return (shape.n + self.width) * self.lanes.bytes
        if flips_b(self.lanes, shape.b_type):
            return (shape.m + self.width) * self.lanes.bytes
        return 0

    @property
    def scratch_bytes(self) -> int:
        return self.a_staged_bytes + self.b_staged_bytes + self.excess_bytes

    def write(self, writer: Writer) -> None:
        a = self._prepare_a(writer)
        b, panel_stride = self._prepare_b(writer)
        sums = self._prepare_sums(writer)

        def write_panel(panel: Index, count: int) -> None:
            pointer = writer.element(b.pointer, b.element, writer.multiply(panel, panel_stride))
            b_panel = replace(b, pointer=pointer)
            column = writer.multiply(panel, self.panel)
            self._write_panel(writer, count, a, b_panel, sums.at(writer, 0, column))

        writer.pieces(self.shape.n, self.panel, write_panel)

    def _write_panel(self, writer: Writer, columns: int, a: Matrix, b: Matrix, sums: Sums) -> None:
        """All rows of one panel of the result."""
        before = 0
        for height, count in self.row_blocks:
            kernel = Microkernel(
                self.target,
                self.lanes,
                self.width,
                height,
                columns,
                self.steps,
                self.stages_b,
                self.shape.acc_type,
            )
            first = before

            def write_block(
                block: Index, height: int, kernel: Microkernel = kernel, first: int = first
            ) -> None:
                row = writer.add(writer.multiply(block, height), first)
                kernel.write(writer, a.at(writer, row, 0), b, sums.at(writer, row, 0))

            writer.pieces(height * count, height, write_block)
            before += height * count

    def _prepare_sums(self, writer: Writer) -> Sums:
        """The accumulator, and the excess of byte products over the true ones."""
        shape, kind = self.shape, self.shape.acc_type.llvm
        start = None
        if not shape.acc_is_zero:
            start = Matrix("%acc_in", kind, stride_of("acc_in", shape.acc_in_row_stride), 1)
        end = Matrix("%acc_out", kind, stride_of("acc_out", shape.acc_out_row_stride), 1)
        if not self.excess_bytes:
            return Sums(start, end, None)
        to = writer.element("%scratch", "i8", self.a_staged_bytes + self.b_staged_bytes)
        a_flipped = flips_a(self.lanes, shape.a_type)
        excess = Excess(self.lanes, self.width, self.steps, is_left=not a_flipped)
        if a_flipped:
            excess.of_columns(writer, self._b_panels(writer), shape.n, to)
            return Sums(start, end, Matrix(to, "i32", 0, 1))
        if shape.a_transposed:
            excess.of_columns(writer, self._a_panels(), shape.m, to)
        else:
            excess.of_rows(writer, self._a_rows(), shape.m, to)
        return Sums(start, end, Matrix(to, "i32", 1, 0))

    def _a_panels(self) -> Panels:
        """Where a transposed A is staged: rows of one step each."""
        return Panels("%scratch", self.width, self.a_staged_stride, self.width)

    def _a_rows(self) -> Matrix:
        """Where an A of rows along k is staged."""
        return Matrix("%scratch", self.lanes.lane, self.a_staged_stride, 1)

    def _b_panels(self, writer: Writer) -> Panels:
        """Where B is staged."""
        pointer = writer.element("%scratch", "i8", self.a_staged_bytes)
        return Panels(pointer, self.panel, self.panel, self.b_panel_stride)

    def _staging(self, element: DotType, *, flips: bool) -> Staging:
        shape = self.shape
        return Staging(self.lanes, element, self.width, shape.k, self.steps, self.target, flips)

    def _prepare_a(self, writer: Writer) -> Matrix:
        """A in bytes, as the microkernel reads it: rows are m, columns are steps along k."""
        shape, lanes = self.shape, self.lanes
        stride = stride_of("a", shape.a_row_stride)
        pointer, row_bytes = "%a", writer.multiply(stride, shape.a_type.bytes)
        if self.stages_a:
            source = Matrix("%a", shape.a_type.llvm, stride, 1)
            pointer, row_bytes = "%scratch", self.a_staged_stride * lanes.bytes
            staging = self._staging(shape.a_type, flips=flips_a(lanes, shape.a_type))
            if shape.a_transposed:
                staging.copy_columns(writer, source, shape.m, self._a_panels())
            else:
                staging.copy_rows(writer, source, shape.m, self._a_rows())
        strides = (lanes.bytes, row_bytes) if shape.a_transposed else (row_bytes, lanes.bytes)
        return Matrix(pointer, "i8", *strides)

    def _prepare_b(self, writer: Writer) -> tuple[Matrix, int]:
        """B as the microkernel reads it, and the elements from panel to panel."""
        shape, lane = self.shape, self.lanes.lane
        stride = stride_of("b", shape.b_row_stride)
        if not self.stages_b:
            return Matrix("%b", lane, stride, 1), self.panel
        source = Matrix("%b", shape.b_type.llvm, stride, 1)
        panels = self._b_panels(writer)
        staging = self._staging(shape.b_type, flips=flips_b(self.lanes, shape.b_type))
        copy = staging.transpose_to_panels if shape.b_transposed else staging.copy_columns
        copy(writer, source, shape.n, panels)
        return Matrix(panels.pointer, lane, self.panel, 1), self.b_panel_stride
