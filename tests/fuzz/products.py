"""Loops of products in random kernels: what is loaded, transposed, computed, multiplied, stored.

All numbers are small, so that every sum is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.blocks import Matrix
from tests.fuzz.expressions import MOST_ELEMENTS, Tile, full_name, stand_in
from tests.fuzz.windows import Windows
from tilewright.ir.types import DTYPES

__all__ = ["Products"]

LOOPS = [
    "range({})", "tl.range({})", "tl.range({}, num_stages={stages})",
    "tl.range({}, num_stages={stages}, warp_specialize=True)", "tl.range({}, flatten=True)",
    "tl.range({}, num_stages={stages}, disallow_acc_multi_buffer=True)",
    "tl.range({}, loop_unroll_factor={stages})",
]  # fmt: skip
OPERANDS = ["fp16", "fp16", "bf16", "bf16", "fp32", "fp8e4nv", "fp8e5", "i8", "fp64"]
SUMS = {"i8": "i32", "fp64": "fp64"}
# Formats of numbers with scales, and the types of the arrays that hold them.
SCALED = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "bf16": "bf16", "fp16": "fp16"}
# With "digits" as data no element is larger, and none grows by what `_changed` writes.
LARGEST = 2.0


@dataclass
class Operand:
    """How a loop gets one of its tiles: what stands before it, in it, and at its end."""

    load: Callable[[str], str]
    advance: list[str] = field(default_factory=list)


class Products(Windows):
    """Writes loops whose bodies load tiles and multiply them."""

    def product_loop(self) -> None:
        """A sum of products over blocks, perhaps of a product's result, and what follows it."""
        rng = self.rng
        if self.chance(0.12):
            self._scaled_loop(rng.choice([16, 32, 64, 128]), rng.choice([8, 16, 64]))
            return
        dtype = rng.choice(OPERANDS)
        m, n, k = (rng.choice(sizes) for sizes in self._product_sizes(dtype))
        trips = rng.choice([0, 1, 2, 3, 4, 5])
        if self.chance(0.3):
            self._chain(dtype, m, n, k, trips)
            return
        depth = max(trips * k - rng.choice([0, 0, 1, k // 2]), 1)
        left = self._operand(dtype, m, k, depth, along=1)
        right = self._operand(dtype, k, n, depth, along=0)
        total, index = self.new_name("acc"), self.new_name("i")
        sum_type = SUMS.get(dtype, "fp32")
        self.write(f"{total} = tl.zeros(({m}, {n}), {full_name(DTYPES[sum_type])})")
        self._write_loop(index, trips)
        self.indent += 1
        a, b = self.new_name("t"), self.new_name("t")
        self.write(f"{a} = {self._changed(left.load(index), dtype)}")
        self.write(f"{b} = {self._changed(right.load(index), dtype)}")
        self._multiply_into(total, a, b, dtype)
        for line in (*left.advance, *right.advance):
            self.write(line)
        self.indent -= 1
        self._finish(total, sum_type, (m, n), trips * k * LARGEST**2)

    def _product_sizes(self, dtype: str) -> tuple[list[int], list[int], list[int]]:
        if dtype == "fp64":
            return [8, 16, 20], [8, 16, 17], [8, 16, 5]
        return (
            [16, 32, 64, 64, 64, 128, 24],
            [8, 16, 32, 64, 64, 40],
            [16, 32, 64, 64, 128 if dtype[-2:] != "32" else 32, 20],
        )

    def _write_loop(self, index: str, trips: int) -> None:
        form = self.rng.choice(LOOPS)
        bounds = f"0, {self.number(trips)}"
        self.write(f"for {index} in {form.format(bounds, stages=self.rng.randint(1, 5))}:")

    def _operand(self, dtype: str, rows: int, columns: int, depth: int, *, along: int) -> Operand:
        """A tile of a matrix that a loop runs through along one axis, by one of the ways to load.

        In memory it may lie the other way round.
        """
        turned = self.chance(0.4)
        block = (columns, rows) if turned else (rows, columns)
        axis = 1 - along if turned else along
        sizes = [depth, depth]
        sizes[1 - axis] = max(block[1 - axis] - self.rng.choice([0, 0, 0, 3]), 1)
        if self.chance(0.3):
            sizes[1 - axis] *= 2
        matrix = self.matrix(dtype, sizes[0], sizes[1], "digits")
        other = self.rng.choice(["0", "0", "pid"]) if self.chance(0.5) else self.number(8)
        if other == "pid":
            other = f"pid * {block[1 - axis] // 2}"
        if self.chance(0.6):
            self.describe(matrix, block)

        def load(index: str) -> str:
            place = [other, other]
            place[axis] = f"{index} * {block[axis]}"
            text = self.block_of(matrix, block, *place)
            return self._turned(text) if turned else text

        if matrix.descriptor or self.chance(0.5):
            return Operand(load)
        return self._moving_pointers(matrix, block, axis, turned=turned)

    def _moving_pointers(
        self, matrix: Matrix, block: tuple[int, int], axis: int, *, turned: bool
    ) -> Operand:
        """Pointers that a loop moves along an axis, with a mask for its end or none."""
        array, name = matrix.array, self.new_name("p")
        lines = [f"tl.arange(0, {block[0]})[:, None]", f"tl.arange(0, {block[1]})[None, :]"]
        stride = self.number(matrix.stride)
        self.write(f"{name} = {array.name} + ({lines[0]} * {stride} + {lines[1]})")
        depth = (matrix.rows, matrix.columns)[axis]
        steps = depth // block[axis] + 1
        ends = [steps * block[a] if a == axis else block[a] for a in (0, 1)]
        array.needed = max(array.needed, ends[0] * matrix.stride + ends[1])

        def load(index: str) -> str:
            mask = ""
            if is_masked:
                mask = f", mask={lines[axis]} < {limit} - {index} * {block[axis]}, other=0"
            text = f"tl.load({name}{mask})"
            return self._turned(text) if turned else text

        is_masked, limit = self.chance(0.5), self.number(depth)
        step = f"{block[0]} * {stride}" if axis == 0 else str(block[1])
        return Operand(load, [f"{name} += {step}"])

    def _turned(self, text: str) -> str:
        return self.rng.choice(["tl.trans({})", "({}).T", "tl.permute({}, (1, 0))"]).format(text)

    def _changed(self, text: str, dtype: str) -> str:
        """What is multiplied: mostly what was loaded, else something computed of it."""
        if self.chance(0.6):
            return text
        name = full_name(DTYPES[dtype])
        forms = ["tl.where({0} > 0, {0}, 0).to({1})", "(-{0}).to({1})", "tl.abs({0}).to({1})"]
        forms += ["({0}).to(tl.float32).to({1})", "tl.minimum({0}, 1).to({1})"]
        temporary = self.new_name("t")
        self.write(f"{temporary} = {text}")
        return self.rng.choice(forms).format(temporary, name)

    def _multiply_into(self, total: str, a: str, b: str, dtype: str) -> None:
        precision = ""
        if dtype == "fp32" and self.chance(0.6):
            kind = self.rng.choice(["tf32", "tf32x3", "ieee"])
            precision = f", input_precision='{kind}'"
        if self.chance(0.6):
            self.write(f"{total} = tl.dot({a}, {b}, {total}{precision})")
        else:
            self.write(f"{total} += tl.dot({a}, {b}{precision})")
        if self.chance(0.15):
            self.write(f"{total} = tl.maximum({total}, 0)")

    def _scaled_loop(self, m: int, n: int) -> None:
        """A sum of products of numbers that share scales; all are exact."""
        k, trips = self.rng.choice([32, 64, 128]), self.rng.randint(0, 3)
        total, index = self.new_name("acc"), self.new_name("i")
        self.write(f"{total} = tl.zeros(({m}, {n}), tl.float32)")
        sides = [self._scaled_side(rows, k, max(trips, 1)) for rows in (m, n)]
        self._write_loop(index, trips)
        self.indent += 1
        texts = []
        for (load, scale, kind), rows in zip(sides, (m, n), strict=True):
            number = self.new_name("t")
            self.write(f"{number} = {load(index)}")
            scaled = "None"
            if scale is not None:
                scaled = self.new_name("t")
                text = self.block_of(scale, (rows, k // 32), "0", f"{index} * {k // 32}")
                self.write(f"{scaled} = {text}")
            texts.append((number, scaled, kind))
        (a, a_scale, a_kind), (b, b_scale, b_kind) = texts
        left, right = f"{a}, {a_scale}, '{a_kind}'", f"tl.trans({b}), {b_scale}, '{b_kind}'"
        if self.chance(0.7):
            self.write(f"{total} = tl.dot_scaled({left}, {right}, {total})")
        else:
            self.write(f"{total} += tl.dot_scaled({left}, {right})")
        self.indent -= 1
        tile = self.name(Tile(total, stand_in(DTYPES["fp32"], (m, n))), total)
        if self.chance(0.5):
            stored = Tile(f"({total}).to(tl.bfloat16)", stand_in(DTYPES["bf16"], (m, n)))
            self._store_into(stored, m, n, "store")
        self._output(tile)

    def _scaled_side(
        self, rows: int, k: int, trips: int
    ) -> tuple[Callable[[str], str], Matrix | None, str]:
        """How a loop loads the numbers of one operand, its scales, and the format."""
        kind = self.rng.choice(["e2m1", "e2m1", *SCALED])
        dtype = SCALED.get(kind, "u8")
        columns = k // 2 if kind == "e2m1" else k
        numbers = self.matrix(
            dtype, rows, columns * trips, "random" if kind == "e2m1" else "digits"
        )
        if self.chance(0.5):
            self.describe(numbers, (rows, columns))
        scale = None
        if self.chance(0.8):
            scale = self.matrix("u8", rows, k // 32 * trips, "exponents")

        def load(index: str) -> str:
            return self.block_of(numbers, (rows, columns), "0", f"{index} * {columns}")

        return load, scale, kind

    def _chain(self, dtype: str, m: int, n: int, k: int, trips: int) -> None:
        """A product, something computed of its elements, and the product of that: as attention."""
        sum_type = SUMS.get(dtype, "fp32")
        query = self.matrix(dtype, m, k, "digits")
        if self.chance(0.5):
            self.describe(query, (m, k))
        q, total, top, index = (self.new_name(p) for p in ("q", "acc", "top", "i"))
        self.write(f"{q} = {self.block_of(query, (m, k), '0', '0')}")
        keys = self._operand(dtype, k, n, max(trips, 1) * n, along=1)
        width = self.rng.choice([16, 32, 64]) if dtype != "fp64" else 8
        values = self._operand(dtype, n, width, max(trips, 1) * n, along=0)
        name = full_name(DTYPES[sum_type])
        self.write(f"{total} = tl.zeros(({m}, {width}), {name})")
        self.write(f"{top} = tl.zeros(({m},), {name})")
        self._write_loop(index, trips)
        self.indent += 1
        s, p, kt, vt = (self.new_name(name) for name in ("s", "p", "t", "t"))
        self.write(f"{kt} = {self._changed(keys.load(index), dtype)}")
        self.write(f"{s} = tl.dot({q}, {kt})")
        if self.chance(0.5):
            self.write(f"{top} = tl.maximum({top}, tl.max({s}, 1))")
            self.write(f"{p} = tl.where({s} * 2 >= {top}[:, None], 1, 0)")
        else:
            self.write(f"{p} = tl.minimum(tl.maximum({s}, -2), 2)")
        if self.chance(0.3):
            self.write(f"{total} = {total} - {total} * ({top} > 5)[:, None].to({name})")
        self.write(f"{p} = {p}.to({full_name(DTYPES[dtype])})")
        self.write(f"{vt} = {self._changed(values.load(index), dtype)}")
        self._multiply_into(total, p, vt, dtype)
        for line in (*keys.advance, *values.advance):
            self.write(line)
        self.indent -= 1
        self._finish(total, sum_type, (m, width), trips * n * LARGEST**2)
        self._known(top, sum_type, (m,), k * LARGEST**2)

    def _finish(self, total: str, dtype: str, shape: tuple[int, int], bound: float) -> None:
        """What a loop has summed is reduced or stored, or left to other statements if small."""
        tile = self.name(Tile(total, stand_in(DTYPES[dtype], shape), bound), total)
        if self.chance(0.3):
            kind, axis = self.rng.choice(["max", "min", "argmax", "sum"]), self.rng.randrange(2)
            name = self.new_name("t")
            self.write(f"{name} = tl.{kind}({total}, {axis})")
            found = "i32" if kind == "argmax" else dtype
            whole = bound * shape[axis] if kind == "sum" else bound
            self._known(name, found, (shape[1 - axis],), whole)
        if self.chance(0.5):
            to = DTYPES[self.rng.choice(["fp16", "bf16", dtype])]
            stored = Tile(f"({total}).to({full_name(to)})", stand_in(to, shape))
            self._store_into(stored, *shape, "store")
        else:
            self._output(tile)
        if tile.size <= MOST_ELEMENTS:
            self.tiles.append(tile)
            self.scopes[-1].assignable.append(tile)
