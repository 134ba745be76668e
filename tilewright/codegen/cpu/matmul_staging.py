"""Copies of operands into scratch, in the order and the lanes the microkernel reads.

A staged matrix is a sequence of *panels* of ``panel`` columns; in a panel, one row of lanes follows
another. Whole vectors are written: those that reach past the matrix hold zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.codegen.cpu.matmul_lanes import (
    DotTarget,
    Element,
    LaneFormat,
    widen_across_k,
    widen_along_k,
)
from tilewright.codegen.cpu.matmul_microkernel import Matrix
from tilewright.codegen.cpu.matmul_writer import Carried, Index, Writer, vector_type

VectorBody: TypeAlias = Callable[[Index, int], None]


@dataclass(frozen=True)
class Staging:
    """How to copy ``k`` by ``columns`` elements; ``width`` lanes are moved at a time."""

    lanes: LaneFormat
    element: Element
    width: int
    target: DotTarget

    def copy_rows(self, writer: Writer, source: Matrix, rows: int, k: int, to: Matrix) -> None:
        """Rows that are contiguous along k, to rows of lanes that are contiguous along k."""

        def row_body(row: Index, _: Carried) -> Carried:
            def copy(first: Index, active: int) -> None:
                loaded = self._load_along_k(writer, source, row, first, active)
                self._store(writer, loaded, to.at(writer, row, first).pointer)

            self._for_vectors(writer, k, copy)
            return []

        writer.loop(rows, row_body)

    def copy_columns(
        self, writer: Writer, source: Matrix, k: int, columns: int, to: Matrix, panel: int
    ) -> None:
        """Rows of one k each, to panels. ``to``: row stride in a panel, stride of panels."""
        whole_panels, rest = divmod(columns, panel)

        def steps(first: Index, groups: int) -> None:
            def vectors(panel_at: Index, count: int) -> None:
                for start in range(0, count, self.width):
                    column = writer.add(writer.multiply(panel_at, panel), start)
                    active = min(self.width, count - start)
                    loaded = self._load_across_k(writer, source, first, column, groups, active)
                    place = to.at(writer, first, panel_at).pointer
                    self._store(writer, loaded, writer.element(place, self.lanes.lane, start))

            def panel_body(panel_at: Index, _: Carried) -> Carried:
                vectors(panel_at, panel)
                return []

            writer.loop(whole_panels, panel_body)
            if rest:
                vectors(whole_panels, rest)

        def step_body(step: Index, _: Carried) -> Carried:
            steps(step, self.lanes.group)
            return []

        writer.loop(k // self.lanes.group, step_body)
        if k % self.lanes.group:
            steps(k // self.lanes.group, k % self.lanes.group)

    def transpose(
        self, writer: Writer, source: Matrix, k: int, columns: int, to: Matrix, panel: int
    ) -> None:
        """Columns that are contiguous along k, to panels, by squares of ``width`` lanes."""
        per_panel = panel // self.width

        def columns_group(group: Index, active_columns: int) -> None:
            panel_at = writer.divide(group, per_panel)
            before = writer.multiply(panel_at, per_panel)
            within = writer.add(group, writer.multiply(before, -1))
            column = writer.multiply(group, self.width)

            def square(first: Index, active_k: int) -> None:
                rows = [
                    self._load_along_k(writer, source, writer.add(column, i), first, active_k)
                    if i < active_columns
                    else "zeroinitializer"
                    for i in range(self.width)
                ]
                transposed = transpose_square(writer, self.lanes.lane, rows)
                place = to.at(writer, first, panel_at).pointer
                offset = writer.multiply(within, self.width)
                place = writer.element(place, self.lanes.lane, offset)
                for i in range(-(-active_k // self.lanes.group)):
                    row = Matrix(place, self.lanes.lane, to.row_stride, 1).at(writer, i, 0)
                    self._store(writer, transposed[i], row.pointer)

            self._for_vectors(writer, k, square)

        def group_body(group: Index, _: Carried) -> Carried:
            columns_group(group, self.width)
            return []

        writer.loop(columns // self.width, group_body)
        if columns % self.width:
            columns_group(columns // self.width, columns % self.width)

    def _for_vectors(self, writer: Writer, k: int, body: VectorBody) -> None:
        """``body(first lane, active elements)`` for each vector along k."""
        per_vector = self.width * self.lanes.group

        def vector_body(vector: Index, _: Carried) -> Carried:
            body(writer.multiply(vector, self.width), per_vector)
            return []

        writer.loop(k // per_vector, vector_body)
        if k % per_vector:
            body(k // per_vector * self.width, k % per_vector)

    def _load_along_k(
        self, writer: Writer, source: Matrix, row: Index, first: Index, active: int
    ) -> str:
        elements = self.width * self.lanes.group
        place = source.at(writer, row, writer.multiply(first, self.lanes.group))
        loaded = writer.load_vector(
            self.element.llvm, elements, active, place.pointer, self.element.bytes
        )
        return widen_along_k(writer, self.lanes, self.element, self.width, loaded, self.target)

    def _load_across_k(
        self, writer: Writer, source: Matrix, first: Index, column: Index, groups: int, active: int
    ) -> str:
        loaded = []
        for offset in range(self.lanes.group):
            step = writer.add(writer.multiply(first, self.lanes.group), offset)
            place = source.at(writer, step, column)
            loaded.append(
                writer.load_vector(
                    self.element.llvm, self.width, active if offset < groups else 0,
                    place.pointer, self.element.bytes,
                )
            )
        return widen_across_k(
            writer, self.lanes, self.element, self.width, tuple(loaded), self.target
        )

    def _store(self, writer: Writer, value: str, pointer: str) -> None:
        kind = vector_type(self.width, self.lanes.lane)
        writer.store(kind, value, pointer, self.lanes.bytes)


def transpose_square(writer: Writer, lane: str, rows: list[str]) -> list[str]:
    """Transposes n vectors of n lanes (n a power of two) in log2(n) rounds.

    A round pairs rows ``distance`` apart and swaps the blocks of that size off the diagonal.
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
