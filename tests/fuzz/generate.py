"""Writes random valid kernels as Python source: their statements, functions and parameters."""

from __future__ import annotations

import inspect
from typing import Any

from tests.fuzz.expressions import Tile
from tests.fuzz.library import Library
from tests.fuzz.memory import Scope
from tests.fuzz.pythonic import Pythonic

__all__ = ["generate"]


class Generator(Library, Pythonic):
    """Writes one kernel."""

    def call(self) -> None:
        """A function of the kernel's own, written on the spot, with one result or two."""
        arguments = [t for t in (self.pick(), self.pick()) if t is not None]
        if not arguments or self.depth > 2:
            return
        name = self.new_name("helper")
        parameters = [f"a{i}" for i in range(len(arguments))]
        saved = self.tiles, self.lines, self.indent, self.pointers, self.scopes, self.depth
        inside = [self.name(t, p) for t, p in zip(arguments, parameters, strict=True)]
        self.tiles, self.lines, self.indent, self.pointers, self.scopes = (
            inside,
            [],
            1,
            [],
            [Scope(list(inside))],
        )
        size = self.rng.choice(self.sizes)
        self.namespace["SIZE"] = size
        self.depth = 3
        numbers, constants = self.scalars, self.constants
        self.scalars, self.constants = {}, {}
        for _ in range(self.rng.randint(1, 3)):
            made = self.expression()
            if made is not None:
                self.bind(made)
        results = [self.tiles[-1], *([self.pick()] if self.chance(0.4) else [])]
        self.scalars, self.constants = numbers, constants
        body = "\n".join([*self.lines, f"    return {', '.join(t.text for t in results)}"])
        self.tiles, self.lines, self.indent, self.pointers, self.scopes, self.depth = saved
        decorator = "@tw.jit(noinline=True)" if self.chance(0.15) else "@tw.jit"
        signature = f"{name}({', '.join(parameters)}, SIZE: tl.constexpr = {size})"
        self.functions.append(f"{decorator}\ndef {signature}:\n{body}\n")
        targets = [self.new_name() for _ in results]
        self.write(f"{', '.join(targets)} = {name}({', '.join(t.text for t in arguments)})")
        for target, result in zip(targets, results, strict=True):
            tile = self.name(Tile(target, result.value, result.whole), target)
            self.tiles.append(tile)
            self.scopes[-1].assignable.append(tile)

    # ---- the kernel

    def statements(self, count: int, *, reassigning: bool = False) -> None:
        """Write some statements into the current block."""
        for _ in range(count):
            options: list[tuple[Any, int]] = [
                (self._assign, 44), (self._assign_load, 18), (self.store, 14), (self.atomic, 5),
                (self.own_atomic, 4), (self.window, 3), (self.approximate, 4), (self.call, 4),
                (self.choice, 3), (self.described, 4), (self.store_block, 4),
                (self.gathered_rows, 1), (self.pythonic, 12),
            ]  # fmt: skip
            if reassigning:
                options.append((self.reassign, 50))
            if self.depth < 3:
                options += [(self.loop, 9), (self.branch, 8)]
            if self.depth < 2:
                options.append((self.product_loop, 6))
            actions, weights = zip(*options, strict=True)
            self.rng.choices(actions, weights)[0]()

    def _assign(self) -> None:
        made = self.expression(self.rng.choice([0, 1, 1, 2]))
        if made is not None:
            self.bind(made)

    def _assign_load(self) -> None:
        self.bind(self.load())

    def kernel(self) -> str:
        """Write the kernel and return the text of its module."""
        self.pointers = []
        self._define("pid", 1, is_constant=False)
        _, y, z = self.grid
        flat = "tl.program_id(0)"
        if y > 1 or z > 1:
            flat += " + tl.num_programs(0) * tl.program_id(1)"
        if z > 1:
            flat += " + tl.num_programs(0) * tl.num_programs(1) * tl.program_id(2)"
        self.write(f"pid = {flat}")
        self.tiles.append(Tile("pid", self.namespace["pid"]))
        if self.chance(0.4):
            self._scalar_argument()
        for _ in range(self.rng.randint(1, 3)):
            self._assign_load()
        if self.chance(0.35):
            self.product_loop()
        self.statements(self.rng.randint(2, 10))
        if self.chance(0.1):
            self.early_return()
            self.statements(self.rng.randint(1, 3))
        tiles = [t for t in self.tiles if t.text != "pid"]
        for tile in self.rng.sample(tiles, min(len(tiles), self.rng.randint(1, 5))):
            self._output(tile)
        return self._module()

    def _scalar_argument(self) -> None:
        """A parameter that is a float, a bool or an int of 64 bits."""
        name = self.new_name("a")
        value, dtype = self.rng.choice(
            [(0.5, "float32"), (-3.0, "float32"), (True, "int1"), (2**40 + 3, "int64")]
        )
        made = self.tile(f"tl.full((), {value}, tl.{dtype})")
        assert made is not None
        self.scalars[name] = value
        self.tiles.append(self.name(made, name))

    def _module(self) -> str:
        arrays = [*self.inputs, *self.private, *self.shared, *self.outputs, *self.matrices]
        sizes: dict[str, tuple[str, int, str]] = {}
        for array in arrays:
            needed, data = array.needed, array.data
            if array in self.private or array in self.outputs:
                needed *= self.programs
            if array in self.shared:
                data = "whole" if data in {"max", "min", "xor", "and", "or"} else "small"
            sizes[array.name] = (array.dtype, needed, data)
        own = {f"{a.name}_part": a.needed for a in self.private}
        scalars = self.scalars | own | self.constants
        parameters = [a.name for a in arrays if a.is_parameter]
        parameters += [*self.descriptors, *self.scalars, *own]
        parameters += [f"{name}: tl.constexpr" for name in self.constants]
        functions = [inspect.getsource(f.fn) for f in self.used_functions.values()] + self.functions
        launch = {
            "GRID": self.grid,
            "ARRAYS": sizes,
            "SCALARS": scalars,
            "DESCRIPTORS": self.descriptors,
            "OPTIONS": self.options,
            "TOLERANCES": self.tolerances,
        }
        parts = [
            "from typing import NamedTuple\n",
            "import tilewright as tw\nimport tilewright.language as tl\n",
            *(f.strip() + "\n" for f in functions),
            f"@tw.jit\ndef kernel({', '.join(parameters)}):\n" + "\n".join(self.lines) + "\n",
            "\n".join(f"{name} = {value}" for name, value in launch.items()) + "\n",
        ]
        return "\n\n".join(parts)


def generate(seed: int, *, portable: bool = True) -> str:
    """Return the text of a random kernel; the same for the same seed.

    A portable one has the same results on GPUs.
    """
    return Generator(seed, portable=portable).kernel()
