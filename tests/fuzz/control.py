"""Branches and loops in random kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fuzz.expressions import Tile, full_name
from tests.fuzz.memory import Pointer, Scope
from tests.fuzz.products import Products
from tilewright.ir.types import DTYPES

__all__ = ["Control"]

RANGES = [
    "range({})", "range({})", "tl.range({})", "tl.range({}, num_stages={stages})",
    "tl.range({}, loop_unroll_factor=2)", "tl.range({}, loop_unroll_factor=3, disable_licm=True)",
    "tl.range({}, flatten=True)", "tl.range({}, warp_specialize=True)",
]  # fmt: skip


class Control(Products):
    """Writes branches and loops."""

    pointers: list[Pointer]

    def statements(self, count: int, *, reassigning: bool = False) -> None:
        """Write some statements into the current block."""
        raise NotImplementedError

    # ---- branches

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

    # ---- loops

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
            is_endless = self.chance(0.4)
            test = f"({index} < {self.number(trips)}){extra}"
            if self.chance(0.2):
                self.write(f"while tl.condition({test}, disable_licm=True):")
                is_endless = False
            else:
                self.write("while True:" if is_endless else f"while {test}:")
            last = trips  # the body may count before it uses the index
            if is_endless:
                self.write(f"    if not ({test}):\n{'    ' * (self.indent + 2)}break")
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
            self.write(self.rng.choice(["break", "continue", "break", "continue", "return"]))
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
