"""Blocks of matrices in random kernels: by pointers, and by tensor descriptors of either kind."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz import combine
from tests.fuzz.expressions import Tile, stand_in
from tests.fuzz.memory import MOST_ATOMIC_ELEMENTS, Array, Memory
from tilewright.ir.types import DTYPES

__all__ = ["Blocks", "Matrix"]

BLOCK_TYPES = ["fp32", "fp16", "bf16", "i8", "i32", "fp64", "i16", "fp8e5", "u8", "i64", "u32"]
REDUCED_TYPES = ["i32", "u32", "fp32", "fp16", "bf16"]
# 16 bytes divide so many elements of every type.
UNIT = 16


@dataclass
class Matrix:
    """An array of two axes, the last one contiguous; `descriptor` is what blocks are loaded by.

    Without a descriptor they are loaded by pointers.
    """

    array: Array
    rows: int
    columns: int
    stride: int
    descriptor: str = ""


class Blocks(Memory):
    """Writes statements that access matrices block by block."""

    def matrix(self, dtype: str, rows: int, columns: int, data: str) -> Matrix:
        """A new array that every program reads."""
        stride = -(-columns // UNIT) * UNIT + self.rng.choice([0, 0, UNIT])
        array = self._new_array(dtype, data, rows * stride)
        return Matrix(array, rows, columns, stride)

    def _new_array(self, dtype: str, data: str, size: int) -> Array:
        array = Array(self.new_name("m"), dtype, data)
        array.needed = -(-size // UNIT) * UNIT
        self.matrices.append(array)
        return array

    def describe(self, matrix: Matrix, block: tuple[int, int], padding: str = "zero") -> None:
        """Let blocks of a matrix be loaded by a descriptor, which the host or the kernel makes."""
        name, array = self.new_name("d"), matrix.array
        matrix.descriptor = name
        if self.chance(0.5):
            array.is_parameter = False
            shape, strides = (matrix.rows, matrix.columns), (matrix.stride, 1)
            self.descriptors[name] = (array.name, shape, strides, block, padding)
            return
        sizes = [self.number(n) for n in (matrix.rows, matrix.columns, matrix.stride)]
        option = f", padding_option='{padding}'" if padding != "zero" else ""
        self.write(
            f"{name} = tl.make_tensor_descriptor({array.name}, [{sizes[0]}, {sizes[1]}], "
            f"[{sizes[2]}, 1], {list(block)}{option})"
        )

    def block_of(self, matrix: Matrix, block: tuple[int, int], row: str, column: str) -> str:
        """A load of a block from a place, with zeros where the matrix ends."""
        if matrix.descriptor:
            if self.chance(0.2):
                function = self._use(self.rng.choice(combine.LOADS))
                return f"{function}({matrix.descriptor}, {row}, {column})"
            return f"{matrix.descriptor}.load([{row}, {column}])"
        down = f"({row} + tl.arange(0, {block[0]}))[:, None]"
        across = f"({column} + tl.arange(0, {block[1]}))[None, :]"
        inside = [f"({down} < {self.number(matrix.rows)})", f"({across} < {matrix.columns})"]
        inside += [f"({line} >= 0)" for line in (down, across)]
        return (
            f"tl.load({matrix.array.name} + {down} * {self.number(matrix.stride)} + {across}, "
            f"mask={' & '.join(inside)}, other=0)"
        )

    # ---- statements

    def described(self) -> None:
        """A load of a block through a descriptor, which may reach over the edges."""
        dtype = self.rng.choice(BLOCK_TYPES)
        block = self._block()
        rows, columns = block[0] + self.rng.choice([0, 5, -1, 20]), self.rng.choice([3, 8, 16, 40])
        matrix = self.matrix(dtype, max(rows, 1), columns, self.rng.choice(["whole", "random"]))
        padding = self.rng.choice(["zero", "zero", "nan"]) if dtype.startswith("f") else "zero"
        self.describe(matrix, block, padding)
        text = self.block_of(matrix, block, *self._corner())
        whole = None if padding == "nan" else matrix.array.whole
        self.bind(self.loaded(text, DTYPES[dtype], block, whole))

    def gathered_rows(self) -> None:
        """Rows of a matrix at places that data say."""
        dtype, columns = self.rng.choice(["fp32", "i32", "fp16", "bf16"]), self.rng.choice([16, 32])
        matrix = self.matrix(dtype, self.rng.choice([5, 16, 30]), 40, "whole")
        self.describe(matrix, (1, columns))
        index = self.pick(lambda t: not t.is_float and len(t.shape) == 1 and t.size >= 8)
        if index is None or index.dtype.is_bool():
            index = self.tile("tl.arange(0, 16)", 16)
            assert index is not None
        places = f"(({index.text}).to(tl.int32) & {self.rng.choice([7, 15, 31])})"
        text = f"{matrix.descriptor}.gather({places}, {self._corner()[1]})"
        shape = (index.size, columns)
        self.bind(self.loaded(text, DTYPES[dtype], shape, matrix.array.whole))

    def store_block(self) -> None:
        """A block into an array that is the program's own, stored or combined with what is there.

        It may reach over the edges, before the start too.
        """
        tile = self.pick(lambda t: len(t.shape) == 2 and 2 <= t.size <= 1024)
        if tile is None or tile.shape[1] * 8 < UNIT:
            return
        combines = tile.size <= MOST_ATOMIC_ELEMENTS and self.chance(0.25)
        kind = "store" if not combines else self.rng.choice(["add", "max", "min", "and"])
        types = REDUCED_TYPES if kind != "store" else BLOCK_TYPES
        dtype = self.rng.choice([t for t in types if kind in {"add", "store"} or t[0] in "iu"])
        if tile.shape[1] * DTYPES[dtype].itemsize < 16:
            return
        value = self.converted(tile, DTYPES[dtype])
        rows = tile.shape[0] + self.rng.choice([0, 0, 3, -1])
        columns = max(tile.shape[1] + self.rng.choice([0, 0, 5, -2]), 1)
        self._store_into(value, max(rows, 1), columns, kind)

    def _store_into(self, value: Tile, rows: int, columns: int, kind: str) -> None:
        stride = -(-columns // UNIT) * UNIT
        array = self._new_array(value.dtype.short_name, "whole", self.programs * rows * stride)
        name, (row, column) = self.new_name("d"), self._corner()
        method = "store" if kind == "store" else f"atomic_{kind}"
        if self.chance(0.5):
            array.is_parameter = False
            shape, strides = (self.programs, rows, columns), (rows * stride, stride, 1)
            self.descriptors[name] = (array.name, shape, strides, (1, *value.shape), "zero")
            block = f"tl.reshape({value.text}, {(1, *value.shape)})"
            self.write(f"{name}.{method}([pid, {row}, {column}], {block})")
            return
        self.write(
            f"{name} = tl.make_tensor_descriptor({array.name} + pid * {self.number(rows * stride)},"
            f" [{self.number(rows)}, {self.number(columns)}], [{self.number(stride)}, 1],"
            f" {list(value.shape)})"
        )
        self.write(f"{name}.{method}([{row}, {column}], {value.text})")

    def _block(self) -> tuple[int, int]:
        return self.rng.choice([1, 3, 8, 16, 20, 32]), self.rng.choice([16, 16, 24, 32, 17])

    def _corner(self) -> tuple[str, str]:
        """Where a block starts: often at a corner, sometimes outside; along the loop inside one."""
        row, column = self.rng.choice([0, 0, 0, 2, 7, -3]), self.rng.choice([0, 0, 0, 16, 4, 1, -5])
        first = self.number(row) if row >= 0 else str(row)
        index = self.scopes[-1].index
        if index and self.chance(0.6):
            first = f"{first} + {index} * {self.rng.choice([1, 4, 16])}"
        return first, self.number(column) if column >= 0 else str(column)

    def _known(self, name: str, dtype: str, shape: tuple[int, ...], whole: float | None) -> Tile:
        """A name that lines written before have bound, as a tile for later expressions."""
        tile = self.name(Tile(name, stand_in(DTYPES[dtype], shape), whole), name)
        self.tiles.append(tile)
        self.scopes[-1].assignable.append(tile)
        return tile
