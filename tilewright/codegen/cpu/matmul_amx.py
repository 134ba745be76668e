"""The tile product on Intel AMX: 16 by 16 sums in a tile register, 64 bytes of k at a time.

Two tiles of rows times two of columns use all eight registers: four of sums, two of A, two of B.
A is read as rows of 64 bytes, B as rows of lanes that hold neighbours along k (Intel's "VNNI"
layout), which is how `Staging` writes both. The instructions are in the Intel 64 and IA-32
manual, volume 1, chapter 18. The process must have asked its kernel for the tile registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.codegen.cpu.matmul_lanes import LaneFormat, MultiplyAdd
from tilewright.codegen.cpu.matmul_microkernel import Matrix
from tilewright.codegen.cpu.matmul_shape import (
    DotShape,
    DotTarget,
    DotType,
    preferred_row_stride,
    stride_of,
)
from tilewright.codegen.cpu.matmul_staging import Panels, Staging
from tilewright.codegen.cpu.matmul_writer import Carried, Index, Writer, vector_type
from tilewright.locks import cached_property

__all__ = ["AmxPlan", "amx_applies", "tile_configuration"]

TILE_ROWS = 16
TILE_LANES = 16
LANE_BYTES = 4
PANEL = 2 * TILE_LANES
BLOCK_ROWS = 2 * TILE_ROWS

MULTIPLY = {
    (DotType.BFLOAT, DotType.BFLOAT): "tdpbf16ps",
    (DotType.INT8, DotType.INT8): "tdpbssd",
    (DotType.INT8, DotType.UINT8): "tdpbsud",
    (DotType.UINT8, DotType.INT8): "tdpbusd",
    (DotType.UINT8, DotType.UINT8): "tdpbuud",
}


def amx_applies(shape: DotShape, target: DotTarget) -> bool:
    """Whether AMX has an instruction for these types, and the product fills at least a tile."""
    known = (shape.a_type, shape.b_type) in MULTIPLY
    return target.has_amx and known and shape.m >= TILE_ROWS and shape.n >= TILE_LANES


def tile_configuration(name: str) -> str:
    """A global with the palette and the size of all eight tiles, for `ldtilecfg`."""
    header = [1] + [0] * 15
    row_bytes = [TILE_LANES * LANE_BYTES, 0] * 8 + [0] * 16
    rows = [TILE_ROWS] * 8 + [0] * 8
    values = ", ".join(f"i8 {value}" for value in header + row_bytes + rows)
    return f"@{name}.tiles = private unnamed_addr constant [64 x i8] [{values}], align 64\n"


def round_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not below `size`."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class AmxPlan:
    """Where the staged operands lie in scratch, and the blocks of tiles the product is cut into."""

    shape: DotShape
    target: DotTarget
    name: str

    @cached_property
    def lanes(self) -> LaneFormat:
        group = LANE_BYTES // self.shape.a_type.bytes
        return LaneFormat("i32", self.shape.acc_type.llvm, LANE_BYTES, group, MultiplyAdd.TILES)

    @cached_property
    def steps(self) -> int:
        """Lanes along k, in whole tiles."""
        return round_up(-(-self.shape.k // self.lanes.group), TILE_LANES)

    @cached_property
    def stages_a(self) -> bool:
        """Whether tiles of A cannot be loaded from where it is."""
        shape = self.shape
        is_whole = shape.m % TILE_ROWS == 0 and shape.k % (self.lanes.group * TILE_LANES) == 0
        return shape.a_transposed or not is_whole

    @cached_property
    def a_stride(self) -> int:
        """Lanes from row to row of a staged A."""
        return preferred_row_stride(self.steps, LANE_BYTES)

    @cached_property
    def a_bytes(self) -> int:
        rows = round_up(self.shape.m, TILE_ROWS)
        return rows * self.a_stride * LANE_BYTES if self.stages_a else 0

    @cached_property
    def b_bytes(self) -> int:
        return round_up(self.shape.n, PANEL) * self.steps * LANE_BYTES

    @property
    def scratch_bytes(self) -> int:
        """A, B, and one block of sums for the edges of the result."""
        return self.a_bytes + self.b_bytes + BLOCK_ROWS * PANEL * LANE_BYTES

    def write(self, writer: Writer) -> None:
        shape = self.shape
        a = self._prepare_a(writer)
        b = self._prepare_b(writer)
        writer.effect(f"call void @llvm.x86.ldtilecfg(ptr @{self.name}.tiles)")

        def write_panel(panel: Index, columns: int) -> None:
            b_panel = writer.element(b, "i32", writer.multiply(panel, self.steps * PANEL))
            column = writer.multiply(panel, PANEL)

            def write_block(block: Index, rows: int) -> None:
                row = writer.multiply(block, BLOCK_ROWS)
                self._write_block(
                    writer, a.at(writer, row, 0), b_panel, (row, column), (rows, columns)
                )

            writer.pieces(shape.m, BLOCK_ROWS, write_block)

        writer.pieces(shape.n, PANEL, write_panel)
        writer.effect("call void @llvm.x86.tilerelease()")

    def _staging(self, element: DotType) -> Staging:
        return Staging(self.lanes, element, TILE_LANES, self.shape.k, self.steps, self.target)

    def _prepare_a(self, writer: Writer) -> Matrix:
        """A in bytes: rows of m, columns of lanes."""
        shape = self.shape
        stride = stride_of("a", shape.a_row_stride)
        if not self.stages_a:
            return Matrix("%a", "i8", writer.multiply(stride, shape.a_type.bytes), LANE_BYTES)
        staging = self._staging(shape.a_type)
        copy = staging.transpose_to_rows if shape.a_transposed else staging.copy_rows
        source = Matrix("%a", shape.a_type.llvm, stride, 1)
        copy(writer, source, shape.m, Matrix("%scratch", "i32", self.a_stride, 1))
        return Matrix("%scratch", "i8", self.a_stride * LANE_BYTES, LANE_BYTES)

    def _prepare_b(self, writer: Writer) -> str:
        shape = self.shape
        source = Matrix("%b", shape.b_type.llvm, stride_of("b", shape.b_row_stride), 1)
        pointer = writer.element("%scratch", "i8", self.a_bytes)
        staging = self._staging(shape.b_type)
        copy = staging.transpose_to_panels if shape.b_transposed else staging.copy_columns
        copy(writer, source, shape.n, Panels(pointer, PANEL, PANEL, self.steps * PANEL))
        return pointer

    def _result(self, operand: str, known_stride: int | None) -> Matrix:
        return Matrix(f"%{operand}", self.lanes.sum, stride_of(operand, known_stride), 1)

    def _write_block(
        self,
        writer: Writer,
        a: Matrix,
        b: str,
        corner: tuple[Index, Index],
        size: tuple[int, int],
    ) -> None:
        """Up to two by two tiles of the result, whose first element is at `corner`."""
        shape = self.shape
        tiles = TileBlock(-(-size[0] // TILE_ROWS), -(-size[1] // TILE_LANES))
        start = None
        if not shape.acc_is_zero:
            start = self._result("acc_in", shape.acc_in_row_stride).at(writer, *corner)
        end = self._result("acc_out", shape.acc_out_row_stride).at(writer, *corner)
        if size == (tiles.rows * TILE_ROWS, tiles.columns * TILE_LANES):
            tiles.load_sums(writer, start)
            tiles.multiply(writer, a, b, self.steps // TILE_LANES, MULTIPLY[self._types])
            tiles.store_sums(writer, end)
            return
        edge = writer.element("%scratch", "i8", self.a_bytes + self.b_bytes)
        block = Matrix(edge, self.lanes.sum, PANEL, 1)
        tiles.load_sums(writer, None)
        tiles.multiply(writer, a, b, self.steps // TILE_LANES, MULTIPLY[self._types])
        tiles.store_sums(writer, block)
        self._add_edge(writer, block, start, end, size)

    @property
    def _types(self) -> tuple[DotType, DotType]:
        return self.shape.a_type, self.shape.b_type

    def _add_edge(
        self,
        writer: Writer,
        block: Matrix,
        start: Matrix | None,
        end: Matrix,
        size: tuple[int, int],
    ) -> None:
        """`end = block + start` for the part of a block that is inside the result."""
        lane, kind = self.lanes.sum, vector_type(TILE_LANES, self.lanes.sum)
        add = "fadd" if lane == "float" else "add"

        def add_row(row: Index, _: int) -> None:
            for column in range(0, size[1], TILE_LANES):
                active = min(TILE_LANES, size[1] - column)
                total = writer.load(kind, block.at(writer, row, column).pointer, LANE_BYTES)
                if start is not None:
                    place = start.at(writer, row, column).pointer
                    before = writer.load_vector(lane, TILE_LANES, active, place, LANE_BYTES)
                    total = writer.value(f"{add} {kind} {total}, {before}")
                place = end.at(writer, row, column).pointer
                writer.store_vector(lane, TILE_LANES, active, total, place, LANE_BYTES)

        writer.pieces(size[0], 1, add_row)


@dataclass(frozen=True)
class TileBlock:
    """Tile registers: 0 to 3 hold the sums, 4 and 5 tiles of A, 6 and 7 tiles of B."""

    rows: int
    columns: int

    def _sums(self) -> list[tuple[int, int, int]]:
        """Register, tile row and tile column of each sum."""
        return [
            (2 * row + column, row, column)
            for row in range(self.rows)
            for column in range(self.columns)
        ]

    def load_sums(self, writer: Writer, start: Matrix | None) -> None:
        for register, row, column in self._sums():
            if start is None:
                writer.effect(f"call void @llvm.x86.tilezero(i8 {register})")
            else:
                self._move(writer, "tileloadd64", register, start, row, column)

    def store_sums(self, writer: Writer, end: Matrix) -> None:
        for register, row, column in self._sums():
            self._move(writer, "tilestored64", register, end, row, column)

    def _move(
        self, writer: Writer, name: str, register: int, matrix: Matrix, row: int, column: int
    ) -> None:
        place = matrix.at(writer, row * TILE_ROWS, column * TILE_LANES).pointer
        row_bytes = writer.multiply(matrix.row_stride, LANE_BYTES)
        writer.effect(f"call void @llvm.x86.{name}(i8 {register}, ptr {place}, i64 {row_bytes})")

    def multiply(self, writer: Writer, a: Matrix, b: str, count: int, instruction: str) -> None:
        """Adds the products of `count` tiles along k. `a` is in bytes, `b` in lanes."""
        panel_bytes = PANEL * LANE_BYTES

        def multiply_tiles(_: Index, pointers: Carried) -> Carried:
            here = replace(a, pointer=pointers[0])
            for row in range(self.rows):
                place = here.at(writer, row * TILE_ROWS, 0).pointer
                writer.effect(
                    f"call void @llvm.x86.tileloadd64(i8 {4 + row}, ptr {place},"
                    f" i64 {a.row_stride})"
                )
            for column in range(self.columns):
                place = writer.element(pointers[1], "i32", column * TILE_LANES)
                writer.effect(
                    f"call void @llvm.x86.tileloadd64(i8 {6 + column}, ptr {place},"
                    f" i64 {panel_bytes})"
                )
            for register, row, column in self._sums():
                writer.effect(
                    f"call void @llvm.x86.{instruction}"
                    f"(i8 {register}, i8 {4 + row}, i8 {6 + column})"
                )
            following = here.at(writer, 0, TILE_LANES).pointer
            return [following, writer.element(pointers[1], "i32", TILE_LANES * PANEL)]

        writer.loop(count, multiply_tiles, ["ptr", "ptr"], [a.pointer, b])
