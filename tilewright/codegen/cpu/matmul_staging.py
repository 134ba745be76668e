"""Copies of operands into scratch, in the order and the lanes the microkernel reads.

Whole vectors are written: those that reach past the matrix hold zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.cpu.matmul_lanes import LaneFormat, widen_across_k, widen_along_k
from tilewright.codegen.cpu.matmul_microkernel import Matrix
from tilewright.codegen.cpu.matmul_shape import DotTarget, DotType
from tilewright.codegen.cpu.matmul_writer import Index, Writer, vector_type

__all__ = ["TOP_BITS", "Panels", "Staging"]

# The top bit of each byte of an `i32`; for `vpdpbusd` also four times 128, or -128.
TOP_BITS = f"splat (i32 {0x80808080 - (1 << 32)})"


@dataclass(frozen=True)
class Panels:
    """Columns in groups of `columns`; in a panel, one row for each lane along k.

    Strides count lanes. `step_stride` may exceed a panel's columns: panels then lie side by side.
    """

    pointer: str
    columns: int
    step_stride: int
    panel_stride: int

    def at(self, writer: Writer, lane: str, step: Index, panel: Index, column: Index) -> str:
        offset = writer.add(
            writer.multiply(step, self.step_stride), writer.multiply(panel, self.panel_stride)
        )
        return writer.element(self.pointer, lane, writer.add(offset, column))


@dataclass(frozen=True)
class Staging:
    """How to copy an operand of `k` values along k; `width` lanes are moved at a time.

    `steps` lanes along k are written, with zeros after the last. `flips`: the top bit of each
    byte is inverted, in the zeros too.
    """

    lanes: LaneFormat
    element: DotType
    width: int
    k: int
    steps: int
    target: DotTarget
    flips: bool = False

    def copy_rows(self, writer: Writer, source: Matrix, rows: int, to: Matrix) -> None:
        """Rows that are contiguous along k, to rows of lanes that are contiguous along k."""

        def copy_row(row: Index, _: int) -> None:
            def copy_vector(vector: Index, active: int) -> None:
                first = writer.multiply(vector, self.width)
                loaded = self._load_along_k(writer, source, row, first, active)
                self._store(writer, loaded, to.at(writer, row, first).pointer)

            writer.pieces(self.k, self._elements, copy_vector)

        writer.pieces(rows, 1, copy_row)

    def copy_columns(self, writer: Writer, source: Matrix, columns: int, to: Panels) -> None:
        """Rows of one k each, to panels."""

        def copy_step(step: Index, groups: int) -> None:
            def copy_panel(panel: Index, count: int) -> None:
                for start in range(0, count, self.width):
                    column = writer.add(writer.multiply(panel, to.columns), start)
                    active = min(self.width, count - start)
                    loaded = self._load_across_k(writer, source, step, column, groups, active)
                    place = to.at(writer, self.lanes.lane, step, panel, start)
                    self._store(writer, loaded, place)

            writer.pieces(columns, to.columns, copy_panel)

        writer.pieces(self.k, self.lanes.group, copy_step)
        written = -(-self.k // self.lanes.group)
        writer.pieces(
            self.steps - written, 1, lambda step, _: copy_step(writer.add(step, written), 0)
        )

    def transpose_to_panels(self, writer: Writer, source: Matrix, columns: int, to: Panels) -> None:
        """Columns that are contiguous along k, to panels, by squares of `width` lanes."""
        per_panel = to.columns // self.width

        def copy_group(group: Index, count: int) -> None:
            panel = writer.divide(group, per_panel)
            before = writer.multiply(panel, per_panel)
            in_panel = writer.add(group, writer.multiply(before, -1))
            in_panel = writer.multiply(in_panel, self.width)
            column = writer.multiply(group, self.width)

            def copy_square(square: Index, active: int) -> None:
                step = writer.multiply(square, self.width)
                rows = [
                    self._load_along_k(writer, source, writer.add(column, i), step, active)
                    for i in range(count)
                ]
                place = to.at(writer, self.lanes.lane, step, panel, in_panel)
                # Only the last square can be cut short, and its place is known.
                rest = self.width if isinstance(step, str) else self.steps - step
                for i, vector in enumerate(self._transposed(writer, rows)[:rest]):
                    row = writer.element(place, self.lanes.lane, i * to.step_stride)
                    self._store(writer, vector, row)

            writer.pieces(self.k, self._elements, copy_square)

        writer.pieces(columns, self.width, copy_group)

    def transpose_to_rows(self, writer: Writer, source: Matrix, columns: int, to: Matrix) -> None:
        """Rows of one k each, to rows of lanes along k, one for each column."""

        def copy_group(group: Index, count: int) -> None:
            column = writer.multiply(group, self.width)

            def copy_square(square: Index, active: int) -> None:
                first = writer.multiply(square, self.width)
                rows = []
                for i in range(-(-active // self.lanes.group)):
                    groups = min(self.lanes.group, active - i * self.lanes.group)
                    step = writer.add(first, i)
                    rows.append(self._load_across_k(writer, source, step, column, groups, count))
                place = to.at(writer, column, first)
                for i, vector in enumerate(self._transposed(writer, rows)[:count]):
                    self._store(writer, vector, place.at(writer, i, 0).pointer)

            writer.pieces(self.k, self._elements, copy_square)

        writer.pieces(columns, self.width, copy_group)

    @property
    def _elements(self) -> int:
        """How many values along k a vector of lanes holds."""
        return self.width * self.lanes.group

    def _load_along_k(
        self, writer: Writer, source: Matrix, row: Index, first: Index, active: int
    ) -> str:
        place = source.at(writer, row, writer.multiply(first, self.lanes.group))
        loaded = writer.load_vector(
            self.element.llvm, self._elements, active, place.pointer, self.element.bytes
        )
        return widen_along_k(writer, self.lanes, self.element, self.width, loaded, self.target)

    def _load_across_k(
        self, writer: Writer, source: Matrix, step: Index, column: Index, groups: int, active: int
    ) -> str:
        loaded = ["zeroinitializer"] * self.lanes.group
        for offset in range(groups):
            row = writer.add(writer.multiply(step, self.lanes.group), offset)
            place = source.at(writer, row, column)
            loaded[offset] = writer.load_vector(
                self.element.llvm, self.width, active, place.pointer, self.element.bytes
            )
        return widen_across_k(writer, self.lanes, self.element, self.width, loaded, self.target)

    def _transposed(self, writer: Writer, rows: list[str]) -> list[str]:
        missing = ["zeroinitializer"] * (self.width - len(rows))
        return transpose_square(writer, self.lanes.lane, rows + missing)

    def _store(self, writer: Writer, value: str, pointer: str) -> None:
        kind = vector_type(self.width, self.lanes.lane)
        if self.flips:
            value = writer.value(f"xor {kind} {value}, {TOP_BITS}")
        writer.store(kind, value, pointer, self.lanes.bytes)


def transpose_square(writer: Writer, lane: str, rows: list[str]) -> list[str]:
    """Transposes n vectors of n lanes (n a power of two) in log2(n) rounds.

    A round pairs rows `distance` apart and swaps the blocks of that size off the diagonal.
    """
    width = len(rows)
    kind = vector_type(width, lane)
    distance = 1
    while distance < width:
        swapped = list(rows)
        for row in range(width):
            if row & distance:
                continue
            upper, lower = rows[row], rows[row + distance]
            first = [width + i - distance if i & distance else i for i in range(width)]
            second = [width + i if i & distance else i + distance for i in range(width)]
            swapped[row] = writer.shuffle(kind, upper, lower, first)
            swapped[row + distance] = writer.shuffle(kind, upper, lower, second)
        rows = swapped
        distance *= 2
    return rows
