"""Byte products, four to a lane: what `vpdpbusd` leaves to be put right.

The instruction multiplies unsigned bytes of A by signed bytes of B. Flipping the top bit turns a
signed a into the unsigned a + 128, and an unsigned b into the signed b - 128, so that it finds

    sum (a + 128) b = sum a b + 128 sum b        more by one number for each column, or
    sum a (b - 128) = sum a b - 128 sum a        for each row.

The same instruction computes that number; the microkernel takes it from its sums at the start.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.cpu.matmul_lanes import LaneFormat, MultiplyAdd, multiply_add
from tilewright.codegen.cpu.matmul_microkernel import Matrix
from tilewright.codegen.cpu.matmul_shape import DotType
from tilewright.codegen.cpu.matmul_staging import TOP_BITS, Panels
from tilewright.codegen.cpu.matmul_writer import Carried, Index, Writer, vector_type

__all__ = ["Excess", "flips_a", "flips_b"]


def flips_a(lanes: LaneFormat, a: DotType) -> bool:
    """Whether A is staged with its top bits flipped; the excess is then one for each column."""
    return lanes.multiply_add is MultiplyAdd.QUADS and a is DotType.INT8


def flips_b(lanes: LaneFormat, b: DotType) -> bool:
    """Whether B is staged with its top bits flipped; the excess is then one for each row."""
    return lanes.multiply_add is MultiplyAdd.QUADS and b is DotType.UINT8


@dataclass(frozen=True)
class Excess:
    """Writes the excess of one operand's rows or columns, over `steps` lanes along k."""

    lanes: LaneFormat
    width: int
    steps: int
    is_left: bool

    def of_columns(self, writer: Writer, staged: Panels, columns: int, to: str) -> None:
        """`to[column]`, in whole vectors, for an operand in panels."""

        def write_panel(panel: Index, count: int) -> None:
            for start in range(0, count, self.width):
                first = staged.at(writer, self.lanes.lane, 0, panel, start)
                total = self._sum(writer, first, self.steps, staged.step_stride)
                column = writer.add(writer.multiply(panel, staged.columns), start)
                place = writer.element(to, "i32", column)
                writer.store(vector_type(self.width, "i32"), total, place, self.lanes.bytes)

        writer.pieces(columns, staged.columns, write_panel)

    def of_rows(self, writer: Writer, staged: Matrix, rows: int, to: str) -> None:
        """`to[row]` for an operand in rows of lanes along k, with zeros to a whole vector."""
        kind = vector_type(self.width, "i32")
        vectors = -(-self.steps // self.width)

        def write_row(row: Index, _: int) -> None:
            total = self._sum(writer, staged.at(writer, row, 0).pointer, vectors, self.width)
            suffix = f"v{self.width}i32"
            whole = writer.value(f"call i32 @llvm.vector.reduce.add.{suffix}({kind} {total})")
            writer.store("i32", whole, writer.element(to, "i32", row), self.lanes.bytes)

        writer.pieces(rows, 1, write_row)

    def _sum(self, writer: Writer, first: str, count: int, stride: int) -> str:
        """The excess of `count` vectors, `stride` lanes apart."""
        kind = vector_type(self.width, "i32")

        def add_vector(_: Index, carried: Carried) -> Carried:
            pointer, total = carried
            vector = writer.load(kind, pointer, self.lanes.bytes)
            left, right = (vector, TOP_BITS) if self.is_left else (TOP_BITS, vector)
            total = multiply_add(writer, self.lanes, self.width, left, right, total)
            return [writer.element(pointer, "i32", stride), total]

        return writer.loop(count, add_vector, ["ptr", kind], [first, "zeroinitializer"])[1]
