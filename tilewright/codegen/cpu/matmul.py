"""The tile product ``acc = a @ b + acc`` as one LLVM function, generated for its sizes.

The plan follows the usual layered scheme (Goto and van de Geijn, "Anatomy of High-Performance
Matrix Multiplication", 2008), with the cache blocking left to the kernel's own tile sizes: columns
are taken in panels two vectors wide, rows in blocks that fill the registers, and one element of A
is broadcast against the panel at a time. Operands are copied ("staged") first only where that pays:
to convert or transpose them, or where a row stride unknown until run time may make rows collide in
the first-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.codegen.cpu.matmul_lanes import (
    DotTarget,
    Element,
    LaneFormat,
    MultiplyAdd,
    lane_format,
)
from tilewright.codegen.cpu.matmul_microkernel import Matrix, Microkernel
from tilewright.codegen.cpu.matmul_staging import Staging
from tilewright.codegen.cpu.matmul_writer import Carried, Index, Writer

CACHE_LINE_BYTES = 64
# Rows this many bytes apart fall into the same few sets of a 32 to 48 KB first-level cache.
ALIASING_BYTES = 512
SUMS_IN_FLIGHT = 12


@dataclass(frozen=True)
class DotShape:
    """Sizes, types and layout of one tile product.

    A is ``m`` by ``k`` in memory, or ``k`` by ``m`` when ``a_transposed``; B likewise. Row strides
    count elements; ``None`` means that the function takes the stride from its argument.
    ``acc_is_zero``: the initial accumulator is zero and ``acc_in`` is not read.
    """

    m: int
    n: int
    k: int
    a_type: Element
    b_type: Element
    acc_type: Element
    a_transposed: bool = False
    b_transposed: bool = False
    a_row_stride: int | None = None
    b_row_stride: int | None = None
    acc_in_row_stride: int | None = None
    acc_out_row_stride: int | None = None
    acc_is_zero: bool = False


@dataclass(frozen=True)
class DotCode:
    """``text`` defines the function; the caller provides ``scratch_bytes``, 64-byte aligned."""

    text: str
    scratch_bytes: int


def preferred_row_stride(columns: int, element_bytes: int) -> int:
    """The row stride, in elements, at which to keep a tile of this many columns in scratch.

    Whole cache lines, so that rows are aligned, and an odd number of them, so that the rows of a
    column spread over all sets of the first-level cache.

    >>> preferred_row_stride(128, 4)
    144
    """
    lines = -(-columns * element_bytes // CACHE_LINE_BYTES)
    if lines > 1 and lines % 2 == 0:
        lines += 1
    return lines * CACHE_LINE_BYTES // element_bytes


def dot_function(shape: DotShape, name: str, target: DotTarget) -> DotCode:
    """Generates ``@name(a, a_row_stride, b, b_row_stride, acc_in, ..., acc_out, ..., scratch)``."""
    plan = DotPlan(shape, target)
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
    text = (
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
        return lane_format(self.shape.a_type, self.shape.b_type, self.target)

    @cached_property
    def steps(self) -> int:
        """Trips along k: each takes one lane's worth."""
        return -(-self.shape.k // self.lanes.group)

    @cached_property
    def width(self) -> int:
        """Lanes of a vector: the machine's, or fewer where there are fewer columns."""
        lanes = self.target.vector_bits // (8 * self.lanes.bytes)
        while lanes // 2 >= max(self.shape.n, 4):
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
        are sums enough to cover the latency of the arithmetic (4 or 5 cycles, two units).
        """
        rows = self.shape.m
        vectors = self.panel // self.width
        spare = 1 if self.target.has_fma else 2
        tallest = (self.target.vector_registers - vectors - spare) // vectors
        for height in range(min(rows, tallest), 0, -1):
            if rows % height == 0 and (height * vectors >= SUMS_IN_FLIGHT or height == rows):
                return ((height, rows // height),)
        blocks = -(-rows // tallest)
        low, extra = divmod(rows, blocks)
        return ((low + 1, extra), (low, blocks - extra))

    @cached_property
    def stages_a(self) -> bool:
        shape = self.shape
        if self.a_is_pairs_in_memory:
            return False
        if not self.lanes.is_memory_format(shape.a_type):
            return True
        if shape.a_row_stride is not None:
            return False
        # Row addresses must be constants apart to fit the instructions; a transposed A has that.
        return shape.n > self.panel or not (shape.a_transposed or shape.m <= 4)

    @property
    def a_is_pairs_in_memory(self) -> bool:
        """Rows of bf16 can be read as pairs along k, if they divide into pairs."""
        shape, stride = self.shape, self.shape.a_row_stride
        return (
            self.lanes.multiply_add is MultiplyAdd.PAIRS_BFLOAT
            and not shape.a_transposed
            and stride is not None
            and stride % 2 == shape.k % 2 == 0
        )

    @cached_property
    def stages_b(self) -> bool:
        shape = self.shape
        if shape.b_transposed or not self.lanes.is_memory_format(shape.b_type):
            return True
        has_masks = "avx512vl" in self.target.features
        if shape.n % self.width and not has_masks:
            return True
        if shape.m <= self.row_blocks[0][0]:
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

    @property
    def scratch_bytes(self) -> int:
        if not self.stages_b:
            return self.a_staged_bytes
        panels = -(-self.shape.n // self.panel)
        return self.a_staged_bytes + panels * self.b_panel_stride * self.lanes.bytes

    def write(self, writer: Writer) -> None:
        a = self._prepare_a(writer)
        b, panel_stride = self._prepare_b(writer)
        shape = self.shape
        accumulator = shape.acc_type.llvm
        start = None
        if not shape.acc_is_zero:
            stride = stride_of("acc_in", shape.acc_in_row_stride)
            start = Matrix("%acc_in", accumulator, stride, 1)
        end = Matrix("%acc_out", accumulator, stride_of("acc_out", shape.acc_out_row_stride), 1)

        def columns(panel_at: Index, count: int) -> None:
            column = writer.multiply(panel_at, self.panel)
            offset = writer.multiply(panel_at, panel_stride)
            pointer = writer.element(b.pointer, b.element, offset)
            panel = Matrix(pointer, b.element, b.row_stride, 1)
            self._write_panel(writer, count, column, (a, panel, start, end))

        def panel_body(panel_at: Index, _: Carried) -> Carried:
            columns(panel_at, self.panel)
            return []

        whole, rest = divmod(shape.n, self.panel)
        writer.loop(whole, panel_body)
        if rest:
            columns(whole, rest)

    def _write_panel(
        self,
        writer: Writer,
        columns: int,
        column: Index,
        matrices: tuple[Matrix, Matrix, Matrix | None, Matrix],
    ) -> None:
        """All rows of one panel of the result."""
        a, b, start, end = matrices
        before = 0
        for height, count in self.row_blocks:
            kernel = Microkernel(
                self.target, self.lanes, self.width, height, columns, self.steps, self.stages_b
            )

            def block(
                at: Index, _: Carried, kernel: Microkernel = kernel, before: int = before
            ) -> Carried:
                row = writer.add(writer.multiply(at, kernel.height), before)
                kernel.write(
                    writer,
                    a.at(writer, row, 0),
                    b,
                    start and start.at(writer, row, column),
                    end.at(writer, row, column),
                    self.shape.acc_type,
                )
                return []

            writer.loop(count, block)
            before += height * count

    def _staging(self, element: Element) -> Staging:
        return Staging(self.lanes, element, self.width, self.target)

    def _prepare_a(self, writer: Writer) -> Matrix:
        """A as the microkernel reads it: rows are m, columns are steps along k."""
        shape, lane = self.shape, self.lanes.lane
        stride = stride_of("a", shape.a_row_stride)
        source = Matrix("%a", shape.a_type.llvm, stride, 1)
        pointer = "%a"
        if self.a_is_pairs_in_memory and isinstance(stride, int):
            stride //= 2
        if self.stages_a:
            pointer, stride = "%scratch", self.a_staged_stride
            staging = self._staging(shape.a_type)
            if shape.a_transposed:
                rows = Matrix(pointer, lane, stride, self.width)
                staging.copy_columns(writer, source, shape.k, shape.m, rows, self.width)
            else:
                staging.copy_rows(
                    writer, source, shape.m, shape.k, Matrix(pointer, lane, stride, 1)
                )
        strides = (1, stride) if shape.a_transposed else (stride, 1)
        return Matrix(pointer, lane, *strides)

    def _prepare_b(self, writer: Writer) -> tuple[Matrix, int]:
        """B as the microkernel reads it, and the elements from panel to panel."""
        shape, lane = self.shape, self.lanes.lane
        stride = stride_of("b", shape.b_row_stride)
        source = Matrix("%b", shape.b_type.llvm, stride, 1)
        if not self.stages_b:
            return Matrix("%b", lane, stride, 1), self.panel
        pointer = writer.element("%scratch", "i8", self.a_staged_bytes)
        staging = self._staging(shape.b_type)
        copy = staging.transpose if shape.b_transposed else staging.copy_columns
        panels = Matrix(pointer, lane, self.panel, self.b_panel_stride)
        copy(writer, source, shape.k, shape.n, panels, self.panel)
        return Matrix(pointer, lane, self.panel, 1), self.b_panel_stride


def stride_of(operand: str, known: int | None) -> Index:
    return f"%{operand}_row_stride" if known is None else known
