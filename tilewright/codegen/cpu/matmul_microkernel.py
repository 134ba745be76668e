"""The inner product loop: a block of rows times a panel of columns, all sums in registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.codegen.cpu.matmul_lanes import (
    LaneFormat,
    multiply_add,
    narrow,
    widen,
)
from tilewright.codegen.cpu.matmul_shape import DotTarget, DotType
from tilewright.codegen.cpu.matmul_writer import Carried, Index, Writer, vector_type

__all__ = ["Matrix", "Microkernel", "Sums"]

# Trips of the k loop written out. Four were no faster than two, and took longer to compile.
UNROLL = 2


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory: strides count elements, from row to row and column to column."""

    pointer: str
    element: str
    row_stride: Index
    column_stride: Index

    def at(self, writer: Writer, row: Index, column: Index) -> Matrix:
        """The part of the matrix that starts at this row and column."""
        offset = writer.add(
            writer.multiply(row, self.row_stride), writer.multiply(column, self.column_stride)
        )
        return replace(self, pointer=writer.element(self.pointer, self.element, offset))


@dataclass(frozen=True)
class Sums:
    """Where sums start and end. No `start` means zero.

    `excess` is what the products will be too large by, the same in each row or each column.
    """

    start: Matrix | None
    end: Matrix
    excess: Matrix | None

    def at(self, writer: Writer, row: Index, column: Index) -> Sums:
        """The part that begins at this row and column."""
        return Sums(
            self.start and self.start.at(writer, row, column),
            self.end.at(writer, row, column),
            self.excess and self.excess.at(writer, row, column),
        )


@dataclass(frozen=True)
class Microkernel:
    """`height` rows of A times `columns` columns of B, over `steps` lanes of k.

    `b_is_padded` says that B has whole vectors where the last one is only partly used.
    """

    target: DotTarget
    lanes: LaneFormat
    width: int
    height: int
    columns: int
    steps: int
    b_is_padded: bool
    accumulator: DotType

    @property
    def vectors(self) -> int:
        return -(-self.columns // self.width)

    def active(self, vector: int) -> int:
        """How many lanes of this vector are columns of the result."""
        return min(self.width, self.columns - vector * self.width)

    def write(self, writer: Writer, a: Matrix, b: Matrix, sums: Sums) -> None:
        """`end = a @ b + start`."""
        totals = [self._first_sum(writer, sums, *place) for place in self._places()]
        totals = self._multiply(writer, a, b, totals)
        for place, total in zip(self._places(), totals, strict=True):
            self._store_sum(writer, sums.end, *place, total)

    def _places(self) -> list[tuple[int, int]]:
        """Row and vector of each sum, in the order in which sums are kept."""
        return [(row, vector) for row in range(self.height) for vector in range(self.vectors)]

    def _first_sum(self, writer: Writer, sums: Sums, row: int, vector: int) -> str:
        first = "zeroinitializer"
        if sums.start is not None:
            first = self._load_sum(writer, sums.start, row, vector)
        if sums.excess is None:
            return first
        kind = vector_type(self.width, "i32")
        place = sums.excess.at(writer, row, vector * self.width).pointer
        if sums.excess.column_stride:
            excess = writer.load(kind, place, self.lanes.bytes)
        else:
            scalar = writer.load("i32", place, self.lanes.bytes)
            excess = writer.splat("i32", self.width, scalar)
        return writer.value(f"sub {kind} {first}, {excess}")

    def _load_sum(self, writer: Writer, start: Matrix, row: int, vector: int) -> str:
        pointer = start.at(writer, row, vector * self.width).pointer
        kind, align = self.accumulator.llvm, self.accumulator.bytes
        loaded = writer.load_vector(kind, self.width, self.active(vector), pointer, align)
        return widen(writer, self.lanes.sum, self.accumulator, self.width, loaded, self.target)

    def _store_sum(self, writer: Writer, end: Matrix, row: int, vector: int, total: str) -> None:
        pointer = end.at(writer, row, vector * self.width).pointer
        kind, align = self.accumulator.llvm, self.accumulator.bytes
        stored = narrow(writer, self.lanes.sum, self.accumulator, self.width, total, self.target)
        writer.store_vector(kind, self.width, self.active(vector), stored, pointer, align)

    def _multiply(self, writer: Writer, a: Matrix, b: Matrix, sums: Carried) -> Carried:
        """The k loop. Pointers are carried, so that its addresses are base plus constant."""
        a_rows = self._row_pointers(writer, a)
        pointers = [*a_rows, b.pointer]
        types = ["ptr"] * len(pointers) + [vector_type(self.width, self.lanes.sum)] * len(sums)

        def several_steps(_: Index, carried: Carried) -> Carried:
            return self._steps(writer, a, b, carried, len(pointers), UNROLL)

        carried = writer.loop(self.steps // UNROLL, several_steps, types, [*pointers, *sums])
        carried = self._steps(writer, a, b, carried, len(pointers), self.steps % UNROLL)
        return carried[len(pointers) :]

    def _row_pointers(self, writer: Writer, a: Matrix) -> list[str]:
        """One pointer where rows are a constant apart, else one for each row."""
        if isinstance(a.row_stride, int):
            return [a.pointer]
        return [a.at(writer, row, 0).pointer for row in range(self.height)]

    def _steps(
        self, writer: Writer, a: Matrix, b: Matrix, carried: Carried, pointers: int, count: int
    ) -> Carried:
        a_rows, b_pointer, sums = carried[: pointers - 1], carried[pointers - 1], carried[pointers:]
        for step in range(count):
            b_row = replace(b, pointer=b_pointer).at(writer, step, 0)
            right = [self._load_b(writer, b_row, vector) for vector in range(self.vectors)]
            for row in range(self.height):
                left = self._broadcast_a(writer, a, a_rows, row, step)
                for vector in range(self.vectors):
                    at = row * self.vectors + vector
                    sums[at] = multiply_add(
                        writer, self.lanes, self.width, left, right[vector], sums[at]
                    )
        a_rows = [replace(a, pointer=p).at(writer, 0, count).pointer for p in a_rows]
        b_pointer = replace(b, pointer=b_pointer).at(writer, count, 0).pointer
        return [*a_rows, b_pointer, *sums]

    def _load_b(self, writer: Writer, b_row: Matrix, vector: int) -> str:
        place = b_row.at(writer, 0, vector * self.width)
        active = self.width if self.b_is_padded else self.active(vector)
        return writer.load_vector(
            self.lanes.lane, self.width, active, place.pointer, self.lanes.bytes
        )

    def _broadcast_a(
        self, writer: Writer, a: Matrix, a_rows: list[str], row: int, step: int
    ) -> str:
        if isinstance(a.row_stride, int):
            place = replace(a, pointer=a_rows[0]).at(writer, row, step)
        else:
            place = replace(a, pointer=a_rows[row]).at(writer, 0, step)
        # A pair may begin at any of its halves.
        align = self.lanes.bytes // self.lanes.group
        scalar = writer.load(self.lanes.lane, place.pointer, align)
        return writer.splat(self.lanes.lane, self.width, scalar)
