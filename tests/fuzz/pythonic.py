"""Statements of random kernels that are about Python: tuples, classes, functions, jumps, names."""

from __future__ import annotations

from tests.fuzz import combine
from tests.fuzz.control import Control
from tests.fuzz.expressions import Tile

__all__ = ["Pythonic"]

_NAMED = """\
class {name}(NamedTuple):
    first: object
    second: object
    scale: object = 3


@tw.jit
def {name}_turned(pair, TIMES: tl.constexpr = 1):
    tl.static_assert(TIMES == 1)
    return {name}(second=pair.second, first={update})
"""
_AGGREGATE = """\
@tw.aggregate
class {name}:
    first: tl.tensor
    second: tl.tensor
    scale: tl.constexpr = 3

    @tw.jit
    def turned(self):
        return {name}({update}, self.second, self.scale)

    @tw.jit
    def replaced(self, x):
        return tl.aggregate_replace(self, second=x)

    @tw.constexpr_function
    def scaled(self, n):
        return self.scale * n
"""


class Pythonic(Control):
    """Writes statements whose meaning is that of Python."""

    def pythonic(self) -> None:
        """One of the statements of this class."""
        kinds = [
            self._tuple, self._object, self._object, self._over_tuple, self._comprehension,
            self._nested_function, self._nested_function, self._after_loop, self._operators,
            self._swap, self._of_functions, self._of_functions,
        ]  # fmt: skip
        self.rng.choice(kinds)()

    # ---- tuples and classes

    def _pair(self) -> tuple[Tile, Tile] | None:
        a, b = self.pick(), self.pick()
        return None if a is None or b is None else (a, b)

    def _updated(self, text: str, tile: Tile) -> str:
        """Something else of the same type, shape and largest magnitude."""
        if tile.dtype.is_bool():
            return f"~{text}"
        if tile.is_float or tile.dtype.is_int_signed():
            return f"(-{text})"
        return f"({text} ^ 1)"

    def _tuple(self) -> None:
        """Some tiles as a tuple, perhaps changed by a loop or branch, and taken apart."""
        pair = self._pair()
        if pair is None:
            return
        name = self.new_name("pair")
        self.write(f"{name} = ({pair[0].text}, {pair[1].text})")
        self._change(f"{name} = ({self._updated(f'{name}[0]', pair[0])}, {name}[1])")
        if self.chance(0.5):
            names = [self.new_name(), self.new_name()]
            self.write(f"{names[0]}, {names[1]} = {name}")
            for new, tile in zip(names, pair, strict=True):
                self._known(new, tile.dtype.short_name, tile.shape, self._whole(tile))
            return
        for place, tile in enumerate(pair):
            self.bind(Tile(f"{name}[{place}]", tile.value, self._whole(tile)))

    def _whole(self, tile: Tile) -> float | None:
        return tile.whole if tile.is_float else None

    def _object(self) -> None:
        """Two tiles in a named tuple or an aggregate, changed by its functions."""
        pair = self._pair()
        if pair is None:
            return
        kind, name = self.new_name("Pair"), self.new_name("pair")
        is_named = self.chance(0.4)
        subject = "pair" if is_named else "self"
        update = self._updated(f"{subject}.first", pair[0])
        self.functions.append((_NAMED if is_named else _AGGREGATE).format(name=kind, update=update))
        self.write(f"{name} = {kind}({pair[0].text}, {pair[1].text})")
        turned = f"{kind}_turned({name})" if is_named else f"{name}.turned()"
        self._change(f"{name} = {turned}")
        first = f"{name}[0]" if is_named and self.chance(0.3) else f"{name}.first"
        self.bind(Tile(first, pair[0].value, self._whole(pair[0])))
        if is_named:
            first, second = self.new_name(), self.new_name()
            self.write(f"{first}, {second}, _ = {name}")
            self._known(second, pair[1].dtype.short_name, pair[1].shape, self._whole(pair[1]))
            return
        if self.chance(0.5):
            self._change(f"{name} = {name}.replaced({self._updated(f'{name}.second', pair[1])})")
        self.write(f"tl.static_assert({name}.scaled(2) == 6)")
        self.bind(Tile(f"{name}.second", pair[1].value, self._whole(pair[1])))

    def _change(self, line: str) -> None:
        """A line that keeps the type of what it binds: as it is, in a loop, or in a branch."""
        header = self.rng.choice(
            [
                "", f"for {self.new_name('i')} in range({self.number(self.rng.randrange(4))}):",
                f"if {self.condition()}:",
            ]
        )  # fmt: skip
        if header:
            self.write(header)
        self.indent += bool(header)
        self.write(line)
        self.indent -= bool(header)

    # ---- loops over tuples, and names after loops

    def _alike(self, count: int) -> list[Tile]:
        """Tiles of one type and shape."""
        first = self.pick(lambda t: not t.dtype.is_bool())
        if first is None:
            return []
        others = [self.filled(self.pick() or first, first.shape, first.dtype) for _ in range(count)]
        alike = [t for t in others if t.shape == first.shape and t.dtype is first.dtype]
        return [first, *alike]

    def _over_tuple(self) -> None:
        """A loop over tiles in a tuple, with their numbers or in pairs."""
        items = self._alike(self.rng.randint(1, 3))
        if not items:
            return
        total, item, other = self.new_name("acc"), self.new_name("t"), self.new_name("t")
        texts = f"({', '.join(t.text for t in items)},)"
        chosen = f"tl.where({item} > {other}, {item}, {total})"
        header, change = self.rng.choice(
            [
                (f"for {item} in {texts}:", f"{total} + {item}"),
                (f"for {item} in reversed({texts}):", f"{item} - {total}"),
                (f"for {other}, {item} in enumerate({texts}, 1):", f"{total} + {item} + {other}"),
                (f"for {item}, {other} in zip({texts}, {texts[:-2]}, {total})[1:]):", chosen),
            ]
        )
        self.write(f"{total} = {items[0].text}")
        self.write(header)
        self.indent += 1
        if self.chance(0.3) and "enumerate" in header:
            self.write(f"if {other} == 2:")
            self.indent += 1
            self.write(self.rng.choice(["continue", "break"]))
            self.indent -= 1
        self.write(f"{total} = {change}")
        self.indent -= 1
        bounds = [t.bound for t in items]
        whole = None
        if all(b is not None for b in bounds):
            whole = len(items) + 2 * sum(b for b in bounds if b is not None) + 8
        self._known_float(total, items[0], whole)

    def _known_float(self, name: str, like: Tile, whole: float | None) -> None:
        """A name of the type of another tile, with a bound of its own if that is a float."""
        made = self.tile(like.text, whole)
        kept = made.whole if made is not None and like.is_float else None
        self._known(name, like.dtype.short_name, like.shape, kept)

    def _comprehension(self) -> None:
        """A list that a comprehension makes, and some of its elements."""
        tile = self.pick(lambda t: not t.dtype.is_bool())
        if tile is None:
            return
        name, k = self.new_name("items"), self.new_name("k")
        test = self.rng.choice(["", f" if {k} != 2", f" if {k} % 2 == 1 if {k} > 0"])
        self.write(f"{name} = [{tile.text} + {k} for {k} in (1, 2, 3){test}]")
        value = self.tile(f"{tile.text} + 1")
        if value is None:
            return
        whole = None if tile.bound is None or not tile.is_float else tile.bound + 3
        self.bind(Tile(f"{name}[{self.rng.choice([0, -1, f'len({name}) - 1'])}]", value.value))
        self._known_float(self.lines[-1].split()[0], value, whole)

    def _after_loop(self) -> None:
        """What a loop that certainly runs binds is used after it, and so is its index."""
        index, trips = self.new_name("i"), self.rng.randint(1, 3)
        form = self.rng.choice(["range({})", "tl.range({})", "tl.static_range({})", "range(2, {})"])
        stop = trips + 2 if "2" in form else trips
        self.write(f"for {index} in {form.format(stop)}:")
        assignable = [t for t in self.scopes[-1].assignable if self.chance(0.4)]
        for tile in assignable:
            if tile.is_float:
                tile.whole = None
        with self.block(assignable=assignable, is_loop=True, index=index, last_index=stop):
            before = len(self.tiles)
            for _ in range(self.rng.randint(1, 2)):
                made = self.expression()
                if made is not None:
                    self.bind(made)
            found = self.tiles[before:]
            if self.chance(0.3) and "static" not in form:
                self.write(f"if {self.condition()}:")
                self.indent += 1
                self.write(self.rng.choice(["break", "continue"]))
                self.indent -= 1
            self.statements(1, reassigning=True)
        self.tiles += found
        self.scopes[-1].assignable += found
        if "static" not in form:
            self._known(index, "i32", (), None)

    # ---- operators and names

    def _operators(self) -> None:
        """Operators that only Python has: chains, plus, several targets, formats."""
        tile = self.pick(lambda t: not t.dtype.is_bool())
        if tile is None:
            return
        name, second = self.new_name(), self.new_name()
        size = self.rng.choice([7, 16, 120])
        kind = self.rng.randrange(4)
        if kind == 0:
            last = self.rng.choice(["<", "<=", "!=", "=="])
            self.write(f"{name} = {self.rng.randrange(3)} <= {tile.text} {last} {tile.text}")
            self._known(name, "i1", tile.shape, None)
        elif kind == 1:
            self.write(f"{name} = +{tile.text}")
            self._known_float(name, tile, tile.bound)
        elif kind == 2:
            made = self.expression()
            if made is None:
                return
            self.write(f"{name} = {second} = {made.text}")
            for target in (name, second):
                self._known_float(target, self.name(made, target), made.bound)
        else:
            number = self.new_name("N")
            self.constants[number] = size
            self._define(number, size, is_constant=True)
            self.write(f"tl.static_assert(f'{{{number}:05d}}' == '{size:05d}')")
            self.write(f"if {number} in ({size}, 3):")
            self.indent += 1
            self.write(f"{name} = {tile.text}")
            self.indent -= 1
            self._known_float(name, tile, tile.bound)

    def _swap(self) -> None:
        """Two names exchange what they stand for."""
        assignable = self.scopes[-1].assignable
        if not assignable:
            return
        a = self.rng.choice(assignable)
        b = next((t for t in assignable if t.dtype is a.dtype and t.shape == a.shape), a)
        if a.is_float:
            bounds = [a.whole, b.whole]
            a.whole = b.whole = None if None in bounds else max(x for x in bounds if x is not None)
        self.write(f"{a.text}, {b.text} = {b.text}, {a.text}")

    # ---- functions

    def _nested_function(self) -> None:
        """A function inside the kernel, which sees the names around it, and a call of it."""
        arguments = self._pair()
        if arguments is None:
            return
        name, parameters = self.new_name("inner"), [self.new_name("v"), self.new_name("v")]
        outside = self.tiles
        inside = [self.name(t, p) for t, p in zip(arguments, parameters, strict=True)]
        self.tiles = [*outside, *inside]
        made = self.expression(2)
        self.tiles = outside
        if made is None:
            return
        if self.chance(0.5):
            self.write(f"{name} = lambda {', '.join(parameters)}: {made.text}")
        else:
            self.write(f"def {name}({', '.join(parameters)}):")
            self.indent += 1
            if self.chance(0.4) and made.shape == () and not made.dtype.is_bool():
                self.write(f"if {made.text} > 3:")
                self.write(f"    return {made.text}")
                self.write(f"return {self._updated(made.text, made)}")
            else:
                self.write(f"return {made.text}")
            self.indent -= 1
        call = f"{name}({arguments[0].text}, {parameters[1]}={arguments[1].text})"
        self.bind(Tile(call, made.value, self._whole(made)))

    def _of_functions(self) -> None:
        """Calls with functions, any number of arguments, or constants; loops that return."""
        items = self._alike(2)
        if not items or (items[0].is_float and any(t.bound is None for t in items)):
            return
        texts = ", ".join(t.text for t in items)
        pair = f"{items[0].text}, {items[-1].text}"
        function = self._use(self.rng.choice(combine.COMMON))
        times = self.rng.choice([1, 2, 4])
        calls = {
            "call_applied": f"({function}, {pair})",
            "call_weighted": f"({texts}, weight={times})",
            "call_sized": f"({items[0].text}, {self.rng.choice([1, 3, 8])})",
            "call_searched": f"({pair}, {self.number(self.rng.randint(0, 4))})",
        }
        name = self.rng.choice(list(calls))
        if name == "call_sized":
            self._use(combine.twice_and_one)
        made = self.tile(f"{self._use(getattr(combine, name))}{calls[name]}")
        if made is not None:
            self.bind(made)
