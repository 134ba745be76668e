"""Writes random valid kernels as Python source: memory, control flow, calls, expressions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fuzz.expressions import Tile, full_name
from tests.fuzz.mapping import Mapping
from tests.fuzz.memory import Pointer, Scope
from tests.fuzz.products import Products
from tilewright.ir.types import DTYPES

__all__ = ["generate"]

RANGES = [
    "range({})", "range({})", "tl.range({})", "tl.range({}, num_stages={stages})",
    "tl.range({}, loop_unroll_factor=2)",
]  # fmt: skip


class Generator(Mapping, Products):
    """Writes one kernel."""

    # ---- control flow

    @contextmanager
    def block(self, **scope: Any) -> Iterator[None]:
        """A nested block: names bound inside are gone afterwards."""
        before, pointers = list(self.tiles), list(self.pointers)
        outer = self.scopes[-1]
        inherited = {"index": outer.index, "last_index": outer.last_index, "is_loop": outer.is_loop}
        self.scopes.append(Scope(**(inherited | scope)))
        self.indent += 1
        self.depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.write("pass")
        self.depth -= 1
        self.indent -= 1
        self.scopes.pop()
        self.tiles, self.pointers = before, pointers

    def condition(self) -> str:
        """A scalar that decides a branch: of data, the place in the grid, or parameters."""
        scalar = self.pick(lambda t: t.shape == ())
        texts = ["pid", f"{self.number(self.rng.choice([3, 7, 1]))}"]
        if self.scopes[-1].index:
            texts += [self.scopes[-1].index] * 3
        if scalar is not None:
            texts += [scalar.text] * 3
        left, limit = self.rng.choice(texts), self.rng.randrange(4)
        text = f"{left} {self.rng.choice(['<', '>', '==', '!=', '<=', '>='])} {limit}"
        if self.chance(0.2):
            text = f"({text}) {self.rng.choice(['and', 'or'])} (pid > 0)"
        elif self.chance(0.1):
            text = f"not ({text})"
        return text

    def reassign(self) -> None:
        """Bind a name again, to the same type."""
        if not self.scopes[-1].assignable:
            return
        target = self.rng.choice(self.scopes[-1].assignable)
        made = self.expression()
        if made is None:
            return
        value = self.filled(made, target.shape, target.dtype)
        if value.dtype is not target.dtype or value.shape != target.shape:
            return
        self.write(f"{target.text} = {value.text}")
        if target.is_float:
            target.whole = None

    def branch(self) -> None:
        """`if`, with or without `else`, or a name that both arms define."""
        assignable = list(self.scopes[-1].assignable)
        for tile in assignable:
            if tile.is_float:
                tile.whole = None
        if self.chance(0.25):
            self._joined_branch(assignable)
            return
        self.write(f"if {self.condition()}:")
        with self.block(assignable=list(assignable)):
            self.statements(self.rng.randint(1, 3), reassigning=True)
        if self.chance(0.5):
            if self.chance(0.3):
                self.write(f"elif {self.condition()}:")
                with self.block(assignable=list(assignable)):
                    self.statements(1, reassigning=True)
            self.write("else:")
            with self.block(assignable=list(assignable)):
                self.statements(self.rng.randint(1, 2), reassigning=True)

    def _joined_branch(self, assignable: list[Tile]) -> None:
        model = self.expression()
        if model is None:
            return
        name, test = self.new_name(), self.condition()
        self.write(f"if {test}:")
        with self.block(assignable=list(assignable)):
            self.statements(1)
            self.write(f"{name} = {model.text}")
        self.write("else:")
        with self.block(assignable=list(assignable)):
            other = self.expression() or model
            self.write(f"{name} = {self.filled(other, model.shape, model.dtype).text}")
        tile = self.name(Tile(name, model.value), name)
        self.tiles.append(tile)
        self.scopes[-1].assignable.append(tile)

    def choice(self) -> None:
        """A conditional expression."""
        model = self.expression()
        other = self.expression()
        if model is None or other is None:
            return
        second = self.filled(other, model.shape, model.dtype)
        if model.shape == second.shape and model.dtype is second.dtype:
            text = f"({model.text}) if {self.condition()} else ({second.text})"
            self.bind(Tile(text, model.value))

    def loop(self) -> None:
        """`for` or `while`, with tiles and pointers that change from one turn to the next."""
        carried = [t for t in self.scopes[-1].assignable if self.chance(0.4)]
        for tile in carried:
            if tile.is_float:
                tile.whole = None
        pointer = self._new_pointer() if self.chance(0.4) else None
        total = self._accumulator() if self.chance(0.6) else None
        index, trips = self.new_name("i"), self.rng.randint(0, 4)
        is_while, is_static = self.chance(0.25), False
        if is_while:
            self.write(f"{index} = 0")
            extra = f" and ({self.condition()})" if self.chance(0.3) else ""
            self.write(f"while ({index} < {self.number(trips)}){extra}:")
            last = trips  # the body may count before it uses the index
        else:
            header, last, is_static = self._range(trips)
            self.write(f"for {index} in {header}:")
        with (
            self._value_of(index, is_static=is_static),
            self.block(assignable=carried, is_loop=True, index=index, last_index=last),
        ):
            self._loop_body(
                trips,
                pointer,
                total,
                index if is_while else "",
                is_static=is_static,
            )
        if total is not None:
            self.tiles.append(total)
            self.scopes[-1].assignable.append(total)

    def _range(self, trips: int) -> tuple[str, int, bool]:
        step = self.rng.choice([1, 1, 1, 2, 3, -1])
        start = self.rng.choice([0, 0, 1, 2])
        stop = start + trips * step
        if step < 0:
            start, stop = trips + start - 1, start - 1
        last = max(start, stop)
        if self.chance(0.15):
            return f"tl.static_range({start}, {stop}, {step})", last, True
        bounds = f"{self.number(start)}, {self.number(stop)}"
        bounds += f", {self.number(step)}" if step != 1 or self.chance(0.1) else ""
        form = self.rng.choice(RANGES)
        return form.format(bounds, stages=self.rng.randint(1, 4)), last, False

    @contextmanager
    def _value_of(self, index: str, *, is_static: bool) -> Iterator[None]:
        """Let expressions use a loop's index, if it is no plain number."""
        if is_static:
            yield
            return
        self._define(index, 1, is_constant=False)
        tile = Tile(index, self.namespace[index])
        self.tiles.append(tile)
        yield
        self.tiles.remove(tile)

    def _accumulator(self) -> Tile:
        shape = self.shape() if self.chance(0.8) else ()
        dtype = DTYPES[self.rng.choice(["fp32", "i32", "fp32", "i64", "fp64", "u8"])]
        made = self.tile(f"tl.zeros({shape}, {full_name(dtype)})", 0)
        assert made is not None
        name = self.new_name("acc")
        self.write(f"{name} = {made.text}")
        return self.name(made, name)

    def _new_pointer(self) -> Pointer:
        array, shape = self.rng.choice(self.inputs), self.shape()
        offsets = self.offsets(shape, distinct=False)
        last = int(self._numbers(offsets).max())
        base, last = self.base(array, False, last)
        array.needed = max(array.needed, last + 1)
        pointer = Pointer(self.new_name("p"), array, shape, last)
        self.write(f"{pointer.text} = {base}{offsets}")
        return pointer

    def _loop_body(
        self,
        trips: int,
        pointer: Pointer | None,
        total: Tile | None,
        counter: str,
        *,
        is_static: bool,
    ) -> None:
        if pointer is not None:
            self.pointers.append(pointer)
        if counter and self.chance(0.3):
            self.write(f"{counter} += 1")
            counter = ""
        self.statements(self.rng.randint(1, 4), reassigning=True)
        if self.chance(0.15) and not counter and not is_static:
            self.write(f"if {self.condition()}:")
            self.indent += 1
            self.write(self.rng.choice(["break", "continue"]))
            self.indent -= 1
            self.statements(1, reassigning=True)
        if total is not None:
            self._accumulate(total, trips)
        if pointer is not None:
            step = self.rng.choice([1, 8, 16, 5])
            pointer.array.needed = max(pointer.array.needed, pointer.last + 1 + trips * step)
            self.write(f"{pointer.text} += {self.number(step)}")
        if counter:
            self.write(f"{counter} += 1")

    def _accumulate(self, total: Tile, trips: int) -> None:
        made = self.expression()
        if made is None:
            return
        value: Tile | None = self.fit(made, total.shape)
        if value is None or (len(value.shape) > len(total.shape)):
            return
        total.whole = None
        outer_loops = sum(scope.is_loop for scope in self.scopes)
        if (
            total.is_float
            and outer_loops == 1
            and value.bound is not None
            and value.bound * trips < 2**20
        ):
            total.whole = value.bound * trips
        text = self.converted(value, total.dtype).text
        self.write(f"{total.text} += {text}")

    def early_return(self) -> None:
        """Some programs stop here."""
        self.write(f"if {self.condition()}:")
        with self.block():
            self.statements(self.rng.randint(0, 1))
            self.write("return")

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
        self._in_helper = True
        for _ in range(self.rng.randint(1, 3)):
            made = self.expression()
            if made is not None:
                self.bind(made)
        results = [self.tiles[-1], *([self.pick()] if self.chance(0.4) else [])]
        self._in_helper = False
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
                (self.gathered_rows, 1),
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
        self.pointers: list[Pointer] = []
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
