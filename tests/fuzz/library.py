"""Random expressions of the library: libdevice, Philox, indexing, sorting, hints."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature

import tilewright.language as tl
from tests.fuzz import combine
from tests.fuzz.expressions import Tile, full_name
from tests.fuzz.mapping import Mapping
from tilewright.ir.types import DTYPES

__all__ = ["Library"]

# GPUs have instructions of their own for these, a little off.
_APPROXIMATE = {"exp", "exp2", "log", "log2", "sin", "cos", "erf", "tanh", "rsqrt"}
# These show which bits a NaN has.
_SHOWING_BITS = {
    "float_as_int", "float_as_uint", "double_as_longlong", "double2hiint", "double2loint",
    "signbit", "copysign", "rcp64h", "nextafter",
}  # fmt: skip
_WORDS = ["i32", "u32", "i64", "u64"]


@cache
def _exact_libdevice() -> dict[int, list[str]]:
    """Names of libdevice by the number of arguments, where every executor gives the same bits."""
    library = tl.extra.libdevice
    found: dict[int, list[str]] = {}
    for name in sorted(library.__all__):
        if name not in _APPROXIMATE and not name.startswith("fast_"):
            arity = len(signature(getattr(library, name)).parameters)
            found.setdefault(arity, []).append(name)
    return found


class Library(Mapping):
    """Makes expressions of functions that the library has."""

    def more_makers(self) -> list[Callable[[int], Tile | None]]:
        return [
            *super().more_makers(),
            self._libdevice, self._random_bits, self._indexed, self._indexed, self._integer_power,
            self._ordered, self._counted, self._three_at_once, self._widened, self._promised,
            self._of_words, self._batched_product,
        ]  # fmt: skip

    def _libdevice(self, depth: int) -> Tile | None:
        arity = self.rng.choice([1, 1, 1, 1, 2, 2, 3])
        name = self.rng.choice(_exact_libdevice()[arity])
        a = self.operand(depth)
        if a is None or a.size > 512:
            return None
        shows_bits = self.portable and name in _SHOWING_BITS
        arguments = [a.text]
        for _ in range(arity - 1):
            b = self.pick(lambda t: t.shape == a.shape and t.is_float == a.is_float) or a
            arguments.append(self.converted(b, a.dtype).text)
            shows_bits &= b.bound is None
        if shows_bits and a.bound is None:
            return None
        if not a.is_float and a.dtype.short_name not in {"i32", "i64"} and self.chance(0.5):
            arguments = [f"({text}).to(tl.int32)" for text in arguments]
        if name in {"jn", "yn"}:  # they take as many steps as the order says
            arguments[0] = f"(({arguments[0]}).to(tl.int32) & 7)"
        return self.tile(f"tl.extra.libdevice.{name}({', '.join(arguments)})")

    def _random_bits(self, depth: int) -> Tile | None:
        offsets = self.operand(depth, lambda t: not t.is_float and not t.dtype.is_bool())
        if offsets is None or offsets.size > 512:
            return None
        offsets = self.converted(offsets, DTYPES[self.rng.choice(["i32", "i32", "u32", "i64"])])
        scalar = self.pick(lambda t: t.shape == () and not t.is_float and not t.dtype.is_bool())
        seed = scalar.text if scalar is not None and self.chance(0.5) else str(7**self.count)
        rounds = self.rng.choice(["", "", ", n_rounds=7", ", 3"])
        one = f"({seed}, {offsets.text}{rounds})"
        four = f"tl.philox({seed}, {', '.join([offsets.text] * 4)}{rounds})"
        item = self.rng.randrange(4)
        return self.tile(
            self.rng.choice(
                [
                    f"tl.randint{one}", f"tl.rand{one}", f"tl.randint4x{one}[{item}]",
                    f"tl.rand4x{one}[{item}]", f"{four}[{item}]",
                ]
            )
        )  # fmt: skip

    # ---- parts of tiles

    def _indexed(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        keys = [self._key(size) for size in a.shape]
        if self.chance(0.15):
            keys.insert(self.rng.randrange(len(keys) + 1), "None")
        if self.chance(0.3):
            place = self.rng.randrange(len(keys))
            if keys[place] == ":" or (place == len(keys) - 1 and self.chance(0.3)):
                keys[place] = "..."
        return self.tile(f"({a.text})[{', '.join(keys)}]", a.whole)

    def _key(self, size: int) -> str:
        """A part of an axis: all of it, one place, known at run time or not, or a slice."""
        kind = self.rng.randrange(8)
        if kind < 3:
            return ":"
        if kind == 3:
            return str(self.rng.randrange(-size, size))
        if kind == 4:
            scalar = self.pick(lambda t: t.shape == () and not t.is_float and t.text.isidentifier())
            if scalar is None or scalar.dtype.is_bool():
                return "0"
            return f"({scalar.text} & {2 ** (size.bit_length() - 1) - 1})"
        start, stop = sorted((self.rng.randrange(size), self.rng.randint(1, size)))
        stop = max(stop, start + 1)
        step = self.rng.choice([1, 1, 2, 3, -1, -2])
        if step < 0:
            first = stop - 1
            return f"{first}:{start - 1 if start else ''}:{step}"
        if self.chance(0.3):
            return f"{start - size}:" if step == 1 else f"{start}::{step}"
        return f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}"

    # ---- integers

    def _integer_power(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: not t.is_float and not t.dtype.is_bool())
        if a is None:
            return None
        if self.chance(0.5):
            return self.tile(f"(({a.text}) ** {self.rng.choice([0, 1, 2, 3, 5])})")
        b = self.pick(
            lambda t: t.shape in {a.shape, ()} and not t.is_float and not t.dtype.is_bool()
        )
        return None if b is None else self.tile(f"(({a.text}) ** ({b.text} & 7))")

    def _of_words(self, depth: int) -> Tile | None:
        """Functions of 32- and 64-bit integers, and what `and` and `or` do."""
        a = self.operand(depth, lambda t: not t.is_float)
        if a is None:
            return None
        b = self.pick(lambda t: t.shape == a.shape and not t.is_float) or a
        dtype = DTYPES[self.rng.choice(_WORDS)]
        x, y = self.converted(a, dtype).text, self.converted(b, dtype).text
        swizzled = f"tl.swizzle2d(({x}) & 7, ({y}) & 7, 8, 8, {self.rng.choice([1, 3, 4])})"
        return self.tile(
            self.rng.choice(
                [
                    f"tl.umulhi({x}, {y})", f"tl.fma({x}, {y}, {x})", f"tl.logical_and({x}, {y})",
                    f"tl.logical_or({a.text}, {b.text})", f"{swizzled}[{self.rng.randrange(2)}]",
                    f"tl.broadcast({x}, {y})[0]", f"tl.mul({x}, {y}, sanitize_overflow=False)",
                ]
            )
        )  # fmt: skip

    # ---- order and number

    def _ordered(self, depth: int) -> Tile | None:
        """Places in order, the smallest few, and two sorted halves merged."""
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        axis, descending = self._axis(a), self.chance(0.4)
        kind = self.rng.randrange(3)
        if kind == 0:
            return self.tile(f"tl.argsort({a.text}, {axis}, descending={descending})")
        if kind == 1:
            count = self.rng.randint(1, a.shape[-1])
            return self.tile(f"tl.topk({a.text}, {count}, descending={descending})", a.whole)
        if a.is_float and a.bound is None:
            return None
        b = self.pick(lambda t: t.shape == a.shape and t.bound is not None) or a
        other = self.converted(b, a.dtype)
        halves = f"tl.sort({a.text}), tl.flip(tl.sort({other.text}))"
        whole = None
        if a.bound is not None and b.bound is not None:
            whole = max(a.bound, b.bound)
        return self.tile(
            f"tl.bitonic_merge(tl.cat({halves}, dim={len(a.shape) - 1}), descending={descending})",
            whole,
        )

    def _counted(self, depth: int) -> Tile | None:
        a = self.operand(
            depth, lambda t: len(t.shape) == 1 and not t.is_float and not t.dtype.is_bool()
        )
        if a is None:
            return None
        mask = self.pick(lambda t: t.shape == a.shape and t.dtype.is_bool())
        test = mask.text if mask is not None else f"(({a.text}) & 3) != {self.rng.randrange(4)}"
        values = a.text if self.chance(0.3) else f"(({a.text}) & 15)"
        return self.tile(f"tl.histogram({values}, {self.rng.choice([1, 7, 16, 20])}, mask={test})")

    def _three_at_once(self, depth: int) -> Tile | None:
        """A reduction or scan of three tiles of different types."""
        a = self.operand(depth, lambda t: t.shape != () and not t.is_float)
        if a is None or a.dtype.is_bool():
            return None
        tiles = [a]
        for _ in range(2):
            other = self.pick(
                lambda t: t.shape == a.shape and not t.is_float and not t.dtype.is_bool()
            )
            tiles.append(other or a)
        function = self._use(combine.combine_totals)
        three = f"({', '.join(t.text for t in tiles)}), {self._axis(a)}, {function}"
        if self.chance(0.5):
            call = f"tl.associative_scan({three}, reverse={self.chance(0.3)})"
        else:
            call = f"tl.reduce({three}{', keep_dims=True' * self.chance(0.3)})"
        return self.tile(f"{call}[{self.rng.randrange(3)}]")

    def _widened(self, depth: int) -> Tile | None:
        """Sums and scans in a type that is named, and `reduce_or`."""
        a = self.operand(depth, lambda t: t.shape != () and not t.is_float)
        if a is None:
            return None
        axis = self._axis(a)
        dtype = full_name(DTYPES[self.rng.choice(["i64", "u64", "i32", "u32", "i16"])])
        return self.tile(
            self.rng.choice(
                [
                    f"tl.sum({a.text}, {axis}, dtype={dtype})", f"tl.reduce_or({a.text}, {axis})",
                    f"tl.cumsum({a.text}, {axis}, dtype={dtype})",
                ]
            )
        )  # fmt: skip

    def _promised(self, depth: int) -> Tile | None:
        """A tile of which something true is promised."""
        size, step = self.rng.choice([8, 16, 32]), self.rng.choice([1, 4, 8])
        places = f"tl.arange(0, {size}) * {step}"
        options = [f"tl.multiple_of({places}, {step})"]
        options.append(f"tl.max_contiguous(tl.arange(0, {size}), {size})")
        options.append(f"tl.max_constancy(tl.arange(0, {size}) // 4, 4)")
        a = self.operand(depth, lambda t: len(t.shape) == 1 and not t.is_float)
        if a is not None and not a.dtype.is_bool():
            options.append(f"tl.multiple_of(({a.text}) * 4, 4)")
        return self.tile(self.rng.choice(options))

    def _batched_product(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: len(t.shape) == 3)
        if a is None:
            return None
        b = self.pick(lambda t: len(t.shape) == 3 and t.shape[0] == a.shape[0]) or a
        dtype = DTYPES[self.rng.choice(["fp16", "fp32", "bf16", "fp64"])]
        left, right = self.small_float(a, 16, dtype), self.small_float(b, 16, dtype)
        if left is None or right is None or left.bound is None or right.bound is None:
            return None
        k = a.shape[2]
        bound = k * left.bound * right.bound
        if right.shape[1] != k:
            turned = self.tile(f"tl.trans({right.text})")
            if turned is None or turned.shape[1] != k:
                return None
            right = turned
        return self.tile(f"tl.dot({left.text}, {right.text})", bound)
