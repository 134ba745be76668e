"""Block pointers in random kernels: windows of arrays, which may reach over the edges."""

from __future__ import annotations

from tests.fuzz.blocks import Blocks
from tests.fuzz.expressions import Tile, stand_in
from tests.fuzz.memory import Array
from tilewright.ir.types import DTYPES

__all__ = ["Windows"]


class Windows(Blocks):
    """Writes statements that access arrays through block pointers."""

    def window(self) -> None:
        """A load of a window of an input, a loop that moves one, or a store through one."""
        self.rng.choice([self._load_window, self._load_window, self._walk, self._store_window])()

    def _load_window(self) -> None:
        array = self.rng.choice(self.inputs)
        name, block = self._place(array, array.name)
        if self.chance(0.3):
            moved = f"({self._distance()}, {self._distance()})"
            self.write(f"{name} = tl.advance({name}, {moved})")
        self.bind(self._loaded(array, name, block))

    def _walk(self) -> None:
        """A sum over windows, each a little further."""
        array = self.rng.choice(self.inputs)
        name, block = self._place(array, array.name)
        total, trips = self.new_name("acc"), self.number(self.rng.randint(0, 4))
        tile = self._loaded(array, name, block)
        dtype = "fp32" if tile.is_float else "i32"
        made = self.tile(f"tl.zeros({block}, tl.{'float32' if tile.is_float else 'int32'})", 0)
        assert made is not None
        self.write(f"{total} = {made.text}")
        self.write(f"for {self.new_name('i')} in range({trips}):")
        self.indent += 1
        self.write(f"{total} += {tile.text}.to({total}.dtype)")
        self.write(f"{name} = tl.advance({name}, [{self._distance()}, {self._distance()}])")
        self.indent -= 1
        whole = None if not tile.is_float or tile.whole is None else 4 * tile.whole
        self._known(total, dtype, block, whole)

    def _store_window(self) -> None:
        """What lies inside of the program's own part of an array is stored."""
        array = self.rng.choice(self.private)
        name, block = self._place(array, f"{array.name} + pid * {array.name}_part")
        tile = self.pick()
        if tile is None:
            return
        value = self.filled(tile, block, DTYPES[array.dtype])
        if value.shape == block:
            self.write(f"tl.store({name}, {value.text}, boundary_check=(0, 1))")

    def _place(self, array: Array, base: str) -> tuple[str, tuple[int, int]]:
        """A new name for a block pointer, and the shape of its block."""
        block = (self.rng.choice(self.sizes), 4)
        rows, columns = self.rng.choice([1, 3, 8, 20]), self.rng.choice([2, 5, 16])
        strides = (columns + self.rng.choice([0, 3]), 1) if self.chance(0.6) else (1, rows)
        start = self.rng.choice([0, 0, 2, -1]), self.rng.choice([0, 1, 4])
        array.needed = max(array.needed, (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1)
        pairs = [
            f"({self.number(a)}, {self.number(b)})" for a, b in ((rows, columns), strides, start)
        ]
        name = self.new_name("p")
        self.write(f"{name} = tl.make_block_ptr({base}, {', '.join(pairs)}, {block}, (1, 0))")
        return name, block

    def _loaded(self, array: Array, name: str, block: tuple[int, int]) -> Tile:
        dtype = DTYPES[array.dtype]
        padding = self.rng.choice(["zero", "nan"] if dtype.is_floating() else ["zero"])
        text = f"tl.load({name}, boundary_check=(0, 1), padding_option='{padding}')"
        return Tile(text, stand_in(dtype, block), None if padding == "nan" else array.whole)

    def _distance(self) -> str:
        distance = self.rng.choice([0, 1, 4, 4, -2])
        return self.number(distance) if distance >= 0 else str(distance)
