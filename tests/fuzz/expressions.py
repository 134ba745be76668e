"""Random expressions of the tile language, written as text and evaluated as they are written.

Every expression is evaluated eagerly on stand-ins of the right types and shapes, which tells the
type and shape of its result, and whether the language allows it. What is loaded from memory is
not known then; offsets and masks made of constants are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tilewright.language as tl
from tests.fuzz import combine
from tilewright.errors import TilewrightError
from tilewright.frontend.context import Eager, Evaluated, activate
from tilewright.frontend.tensor import Tensor
from tilewright.interpreter import Interpreter
from tilewright.ir.types import DTYPES, DType, TileType

__all__ = ["Expressions", "Tile", "full_name"]

MOST_ELEMENTS = 2048

FULL_NAMES = {
    "i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "fp16": "float16", "bf16": "bfloat16",
    "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8e4nv", "fp8e5": "float8e5",
}  # fmt: skip
EXACT_UP_TO = {
    "fp8e5": 2**3, "fp8e4nv": 2**4, "bf16": 2**8, "fp16": 2**11, "fp32": 2**24, "fp64": 2**53,
}  # fmt: skip


def full_name(dtype: DType) -> str:
    """A dtype as kernels write it: `tl.float32`."""
    return f"tl.{FULL_NAMES[dtype.short_name]}"


_ROUNDED = [
    "tl.sqrt({})", "tl.sqrt_rn({})", "tl.fdiv({}, 3.0, ieee_rounding=True)",
    "tl.div_rn({}, {} + 1)", "tl.clamp({}, -2.0, 5.0)",
]  # fmt: skip


@dataclass
class Tile:
    """A text that stands for a tile, its stand-in, and the largest magnitude it can have.

    `whole` is None where a float may be no whole number, infinite or NaN.
    """

    text: str
    value: Tensor
    whole: float | None = None

    @property
    def dtype(self) -> DType:
        assert isinstance(self.value.dtype, DType)
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating()

    @property
    def bound(self) -> float | None:
        """The largest magnitude if all elements are whole numbers."""
        if self.is_float:
            return self.whole
        low, high = (0, 1) if self.dtype.is_bool() else self.dtype.integer_range
        limit = float(max(-low, high))
        return limit if self.whole is None else min(self.whole, limit)


def stand_in(dtype: DType, shape: tuple[int, ...]) -> Tensor:
    return Tensor(Evaluated(TileType(dtype, shape), np.ones(shape, dtype.numpy)))


class Expressions:
    """Makes random expressions out of the tiles in `tiles`.

    With `portable` they have the same results on GPUs. Left out is then what these may group or
    round otherwise, and what shows the bits of a NaN. With `fuses` they have them too where
    products and sums are rounded together.
    """

    def __init__(self, rng: random.Random, *, portable: bool) -> None:
        self.rng = rng
        self.portable = portable
        self.tiles: list[Tile] = []
        self.namespace: dict[str, Any] = {"tl": tl, "__builtins__": __builtins__}
        self.used_functions: dict[str, Any] = {}
        self._eager = Eager(Interpreter(checks_overflow=False))
        self.fuses = portable and self.chance(0.2)

    # ---- evaluating

    def evaluate(self, text: str) -> Any:
        """The stand-in of an expression, or None where the language refuses it."""
        try:
            with activate(self._eager), np.errstate(all="ignore"):
                return eval(text, self.namespace)
        except TilewrightError:
            return None

    def tile(self, text: str, whole: float | None = None) -> Tile | None:
        """An expression as a tile, or None where it is refused or too large."""
        value = self.evaluate(text)
        if not isinstance(value, Tensor) or not isinstance(value.dtype, DType):
            return None
        if value.dtype.short_name not in FULL_NAMES or np.prod(value.shape) > self.most_elements:
            return None
        if (
            whole is not None
            and value.dtype.is_floating()
            and whole > EXACT_UP_TO[value.dtype.short_name]
        ):
            whole = None
        return Tile(text, value, whole)

    def name(self, tile: Tile, name: str) -> Tile:
        """The tile under a name that later expressions may use."""
        with activate(self._eager):
            self.namespace[name] = tl.to_tensor(tile.value)
        return replace(tile, text=name, value=self.namespace[name])

    def loaded(self, text: str, dtype: DType, shape: tuple[int, ...], whole: float | None) -> Tile:
        return Tile(text, stand_in(dtype, shape), whole)

    # ---- choosing

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, accept: Callable[[Tile], bool] = lambda tile: True) -> Tile | None:
        """A random tile that is accepted, the latest most often."""
        accepted = [t for t in self.tiles if accept(t)]
        if not accepted:
            return None
        if self.chance(0.5):
            accepted = accepted[-4:]
        return self.rng.choice(accepted)

    def operand(
        self, depth: int, accept: Callable[[Tile], bool] = lambda tile: True
    ) -> Tile | None:
        """A tile, or sometimes an expression in its place."""
        if depth > 0 and self.chance(0.35):
            made = self.expression(depth - 1)
            if made is not None and accept(made):
                return made
        return self.pick(accept)

    def fit(self, tile: Tile, shape: tuple[int, ...]) -> Tile:
        """The tile in a form that broadcasts to `shape`."""
        if tile.shape in {shape, ()}:
            return tile
        text, rank = tile.text, len(shape)
        options = []
        if tile.size == np.prod(shape):
            options.append(f"tl.reshape({text}, {shape})" if shape else f"tl.max({text})")
        if len(tile.shape) == 1:
            for axis in (a for a in range(rank) if shape[a] == tile.shape[0]):
                index = ", ".join(":" if a == axis else "None" for a in range(rank))
                options.append(f"({text})[{index}]")
        if len(tile.shape) == 2 and tile.shape[::-1] == shape:
            options += [f"tl.trans({text})", f"({text}).T", f"tl.permute({text}, (1, 0))"]
        if len(tile.shape) == rank:
            for axis in range(rank):
                if (*tile.shape[:axis], *tile.shape[axis + 1 :]) == (
                    *shape[:axis],
                    *shape[axis + 1 :],
                ):
                    options.append(f"tl.min({text}, {axis}, keep_dims=True)")
        if not options:
            options = [f"tl.max({text})", f"tl.min({text})"]
        fitted = self.tile(self.rng.choice(options), tile.whole)
        return fitted or Tile("1", stand_in(DTYPES["i32"], ()), 1)

    def converted(self, tile: Tile, dtype: DType) -> Tile:
        """The tile in another type; of shape and value as it is."""
        if tile.dtype is dtype and self.chance(0.8):
            return tile
        whole = tile.bound
        if not dtype.is_floating():
            whole = None
        made = self.tile(f"({tile.text}).to({full_name(dtype)})", whole)
        assert made is not None
        return made

    def filled(self, tile: Tile, shape: tuple[int, ...], dtype: DType) -> Tile:
        """A tile of exactly this shape and type, made from another."""
        fitted = self.fit(tile, shape)
        if fitted.shape != shape:
            made = (
                self.tile(f"tl.broadcast_to({fitted.text}, {shape})", fitted.whole)
                if shape
                else None
            )
            made = made or self.tile(f"tl.full({shape}, 1, {full_name(dtype)})", 1)
            assert made is not None
            fitted = made
        return self.converted(fitted, dtype)

    def small_float(self, tile: Tile, limit: int, dtype: DType) -> Tile | None:
        """The tile as whole numbers up to `limit`, if that can be had."""
        if tile.is_float and (tile.bound is None or tile.bound > limit):
            return None
        if not tile.is_float and tile.bound > limit:
            mask = 2 ** (limit.bit_length() - 1) - 1
            lowered = self.tile(f"({tile.text} & {min(mask, 7)})", min(mask, 7))
            if lowered is None:
                return None
            tile = lowered
        return self.converted(tile, dtype)

    # ---- expressions

    def expression(self, depth: int = 1) -> Tile | None:
        """A random expression; None if none of the attempts came out well."""
        makers: list[Callable[[int], Tile | None]] = [
            self._arithmetic, self._arithmetic, self._arithmetic, self._bits, self._comparison,
            self._select, self._unary, self._cast, self._cast, self._moved, self._moved,
            self._reduction, self._reduction, self._scan, self._sort, self._gather, self._literal,
            self._product, self._rounded, self._paired, *self.more_makers(),
        ]  # fmt: skip
        for _ in range(6):
            made = self.rng.choice(makers)(depth)
            if made is not None:
                return made
        return self.pick()

    def more_makers(self) -> list[Callable[[int], Tile | None]]:
        """Further kinds of expressions, of classes above."""
        return []

    def _two(self, depth: int, accept: Callable[[Tile], bool]) -> tuple[Tile, Tile] | None:
        a, b = self.operand(depth, accept), self.operand(depth, accept)
        if a is None or b is None:
            return None
        if self.chance(0.2):
            b = self._number_for(a)
        elif len(a.shape) >= len(b.shape):
            b = self.fit(b, a.shape)
        else:
            a = self.fit(a, b.shape)
        return (a, b) if self.chance(0.7) else (b, a)

    def _number_for(self, tile: Tile) -> Tile:
        value: Any = self.rng.choice([0, 1, 2, 3, 7])
        if tile.is_float:
            value = self.rng.choice([0.0, 1.0, 2.0, -3.0, 0.5])
        is_whole = float(value).is_integer()
        return Tile(repr(value), stand_in(tile.dtype, ()), abs(value) if is_whole else None)

    def _arithmetic(self, depth: int) -> Tile | None:
        pair = self._two(depth, lambda t: not t.dtype.is_bool() or self.chance(0.2))
        if pair is None:
            return None
        a, b = pair
        text = self.rng.choice(
            ["+", "+", "-", "*", "*", "max", "min", "/", "//", "%", "fma", "cdiv"]
        )
        x, y = a.bound, b.bound
        if x is None or y is None or not (a.is_float or b.is_float):
            x = y = None
        match text:
            case "+" | "-":
                return self.tile(f"({a.text} {text} {b.text})", None if x is None else x + y)
            case "*":
                return self._multiplied(a, b, None if x is None else x * y)
            case "/":
                return self._divided(a, b)
            case "max" | "min":
                return self.tile(
                    f"tl.{text}imum({a.text}, {b.text})", None if x is None else max(x, y)
                )
            case "fma":
                return (
                    self.tile(f"tl.fma({a.text}, {b.text}, {b.text})")
                    if a.is_float and b.is_float
                    else None
                )
            case "cdiv":
                return (
                    None if a.is_float or b.is_float else self.tile(f"tl.cdiv({a.text}, {b.text})")
                )
            case _:
                return self.tile(f"({a.text} {text} {b.text})")

    def _multiplied(self, a: Tile, b: Tile, whole: float | None) -> Tile | None:
        """A product, which must be exact where it may be rounded together with a sum."""
        made = self.tile(f"({a.text} * {b.text})", whole)
        if made is not None and self.fuses and made.is_float and made.whole is None:
            return None
        return made

    def _divided(self, a: Tile, b: Tile) -> Tile | None:
        """A quotient; GPUs are a little off on `/` of fp32."""
        plain = self.tile(f"({a.text} / {b.text})")
        if not self.portable or plain is None or plain.dtype.short_name == "fp64":
            return plain
        x, y = (f"tl.cast({tile.text}, tl.float32)" for tile in (a, b))
        return self.converted(
            Tile(f"tl.div_rn({x}, {y})", stand_in(DTYPES["fp32"], plain.shape)), plain.dtype
        )

    def _bits(self, depth: int) -> Tile | None:
        pair = self._two(depth, lambda t: not t.is_float)
        if pair is None:
            return None
        a, b = pair
        operator = self.rng.choice(["&", "|", "^", "<<", ">>"])
        if operator in {"<<", ">>"}:
            if a.dtype.is_bool() or b.dtype.is_bool():
                return None
            return self.tile(f"({a.text} {operator} ({b.text} & 3))")
        return self.tile(f"({a.text} {operator} {b.text})")

    def _comparison(self, depth: int) -> Tile | None:
        pair = self._two(depth, lambda t: True)
        if pair is None:
            return None
        a, b = pair
        operator = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
        return self.tile(f"({a.text} {operator} {b.text})", 1)

    def _select(self, depth: int) -> Tile | None:
        pair = self._two(depth, lambda t: True)
        test = self.operand(depth, lambda t: t.dtype.is_bool()) or self._comparison(0)
        if pair is None or test is None:
            return None
        a, b = pair
        shape = a.shape if len(a.shape) >= len(b.shape) else b.shape
        test = self.fit(test, shape) if shape else test
        if not test.dtype.is_bool():
            test = self.tile(f"({test.text} != 0)", 1)
            if test is None:
                return None
        bound = max(a.bound, b.bound) if a.bound is not None and b.bound is not None else None
        return self.tile(f"tl.where({test.text}, {a.text}, {b.text})", bound)

    def _unary(self, depth: int) -> Tile | None:
        a = self.operand(depth)
        if a is None:
            return None
        form = self.rng.choice(
            ["(-{})", "tl.abs({})", "(~{})", "{}.to(tl.int1)", "tl.floor({})", "tl.ceil({})"]
        )
        keeps = a.whole if a.is_float else None
        if form == "tl.abs({})" and not a.is_float and not a.dtype.is_int_signed():
            return None
        return self.tile(form.format(f"({a.text})"), keeps)

    def _rounded(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.is_float)
        if a is None:
            return None
        form = self.rng.choice(_ROUNDED)
        return self.tile(form.format(a.text, a.text))

    def _cast(self, depth: int) -> Tile | None:
        a = self.operand(depth)
        if a is None:
            return None
        dtype = DTYPES[self.rng.choice([n for n in FULL_NAMES if n != "u64" or self.chance(0.3)])]
        if (
            dtype.primitive_bitwidth == a.dtype.primitive_bitwidth
            and dtype.primitive_bitwidth > 1
            and not (self.portable and a.is_float and a.bound is None)
            and self.chance(0.4)
        ):
            return self.tile(f"({a.text}).to({full_name(dtype)}, bitcast=True)")
        whole = a.bound
        if a.is_float and not dtype.is_floating():
            whole = None
        if not dtype.is_floating() and not a.is_float:
            whole = None
        return self.tile(f"({a.text}).to({full_name(dtype)})", whole)

    def _moved(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        text, shape, rank = a.text, a.shape, len(a.shape)
        options = [f"tl.flip({text}, {self.rng.randrange(rank)})", f"tl.ravel({text})"]
        options.append(f"tl.expand_dims({text}, {self.rng.randrange(rank + 1)})")
        options.append(f"tl.reshape({text}, {self._factors(a.size)})")
        if rank == 1:
            options += [f"({text})[:, None]", f"({text})[None, :]"]
        else:
            order = list(range(rank))
            self.rng.shuffle(order)
            options += [f"tl.trans({text})", f"tl.permute({text}, {tuple(order)})"]
        if 1 in shape:
            grown = tuple(self.rng.choice([2, 3, 5, 8]) if s == 1 else s for s in shape)
            options += [f"tl.broadcast_to({text}, {grown})"] * 2
            options.append(f"tl.squeeze({text}, {shape.index(1)})")
        other = self.pick(lambda t: t.shape == shape)
        if other is not None:
            second = self.converted(other, a.dtype).text
            options += [f"tl.join({text}, {second})", f"tl.interleave({text}, {second})"]
            options.append(f"tl.cat({text}, {second}, dim={self.rng.randrange(rank)})")
        if shape[-1] == 2 and rank > 1:
            options += [f"tl.split({text})[{self.rng.randrange(2)}]"] * 3
        whole = a.whole
        if other is not None and (a.bound is None or other.bound is None):
            whole = None
        elif other is not None and a.is_float:
            whole = max(a.bound, other.bound)
        return self.tile(self.rng.choice(options), whole)

    def _factors(self, size: int) -> tuple[int, ...]:
        first = self.rng.choice([f for f in range(1, size + 1) if size % f == 0])
        rest = size // first
        if self.chance(0.3):
            second = self.rng.choice([f for f in range(1, rest + 1) if rest % f == 0])
            return (first, second, rest // second)
        return (first, rest)

    def _axis(self, tile: Tile) -> int:
        return self.rng.randrange(len(tile.shape))

    def _reduction(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        axis: int | None = self._axis(a)
        keep = f", keep_dims={self.chance(0.5)}" if self.chance(0.3) else ""
        count = a.shape[axis]
        kind = self.rng.choice(
            ["sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "sum"]
        )
        if kind in {"sum", "max", "min", "xor_sum"} and self.chance(0.2):
            axis, count = None, a.size
        is_summable = not a.is_float or (a.bound is not None and a.bound * count <= 2**24)
        match kind:
            case "sum" if is_summable:
                whole = a.bound * count if a.is_float else None
                return self.tile(f"tl.sum({a.text}, {axis}{keep})", whole)
            case "max" | "min":
                return self.tile(f"tl.{kind}({a.text}, {axis}{keep})", a.whole)
            case "argmax" | "argmin":
                left = "" if self.chance(0.7) else ", tie_break_left=False"
                return self.tile(f"tl.{kind}({a.text}, {axis}{left}{keep})")
            case "xor_sum" if not a.is_float:
                return self.tile(f"tl.xor_sum({a.text}, {axis}{keep})")
            case "reduce" if not a.is_float or (a.bound is not None and a.bound * count <= 2**24):
                functions = self._associative(a, count)
                if not functions:
                    return None
                function = self._use(self.rng.choice(functions))
                whole = a.bound * count if a.is_float else None
                return self.tile(f"tl.reduce({a.text}, {axis}, {function}{keep})", whole)
        return None

    def _associative(self, a: Tile, count: int) -> list[Any]:
        """Functions that may combine so many elements of a tile in groups."""
        if not a.is_float:
            return list(combine.ASSOCIATIVE)
        if a.bound is None:
            return []
        is_exact = a.bound * count <= EXACT_UP_TO[a.dtype.short_name]
        left_out = {"combine_multiply"} | ({"combine_add"} if not is_exact else set())
        return [f for f in combine.ASSOCIATIVE if f.name not in left_out]

    def _use(self, function: Any) -> str:
        name = function.__name__
        self.used_functions[name] = function
        self.namespace[name] = function
        return str(name)

    def _scan(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        axis, reverse = self._axis(a), self.chance(0.3)
        kind = self.rng.choice(["cumsum", "cumprod", "scan"])
        count = a.shape[axis]
        if kind == "scan":
            functions = self._associative(a, count) if self.portable else combine.SINGLES
            if not functions:
                return None
            function = self._use(self.rng.choice(functions))
            return self.tile(
                f"tl.associative_scan({a.text}, {axis}, {function}, reverse={reverse})"
            )
        if kind == "cumprod" and (a.dtype.is_bool() or (self.portable and a.is_float)):
            return None
        whole = None
        if a.is_float and a.bound is not None and kind == "cumsum":
            whole = a.bound * count
        if self.portable and a.is_float and (whole is None or whole > 2**24):
            return None
        return self.tile(f"tl.{kind}({a.text}, {axis}, reverse={reverse})", whole)

    def _paired(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != () and not t.dtype.is_bool())
        if a is None:
            return None
        b = self.pick(lambda t: t.shape == a.shape and not t.dtype.is_bool())
        if b is None:
            return None
        axis, item = self._axis(a), self.rng.randrange(2)
        if self.chance(0.5):
            functions = combine.PAIRS
            if self.portable:
                functions = combine.ASSOCIATIVE_PAIRS
                if a.is_float:
                    functions = (combine.combine_best,)
                    if a.bound is None:
                        return None
            function = self._use(self.rng.choice(functions))
            b = self.converted(b, a.dtype)
            pair, reverse = f"({a.text}, {b.text})", self.chance(0.3)
            return self.tile(
                f"tl.associative_scan({pair}, {axis}, {function}, reverse={reverse})[{item}]"
            )
        if a.is_float or b.is_float:
            whole = a.whole if item == 0 and a.is_float else None
            left = f"return_indices_tie_break_left={self.chance(0.7)}"
            return self.tile(
                f"tl.max({a.text}, {axis}, return_indices=True, {left})[{item}]", whole
            )
        function = self._use(self.rng.choice(combine.ASSOCIATIVE_PAIRS))
        b = self.converted(b, a.dtype)
        return self.tile(f"tl.reduce(({a.text}, {b.text}), {axis}, {function})[{item}]")

    def _sort(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        if self.chance(0.3) and len(a.shape) == 1 and not a.is_float and not a.dtype.is_bool():
            bins = self.rng.choice([1, 5, 16, 33])
            return self.tile(f"tl.histogram({a.text}, {bins})")
        if self.chance(0.3):
            return self.tile(f"tl.topk({a.text}, {self.rng.randint(1, a.shape[-1])})", a.whole)
        descending = self.chance(0.4)
        return self.tile(f"tl.sort({a.text}, {self._axis(a)}, descending={descending})", a.whole)

    def _gather(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: t.shape != ())
        if a is None:
            return None
        axis = self._axis(a)
        index = self.pick(
            lambda t: (
                not t.is_float
                and not t.dtype.is_bool()
                and len(t.shape) == len(a.shape)
                and all(
                    x == y
                    for i, (x, y) in enumerate(zip(t.shape, a.shape, strict=True))
                    if i != axis
                )
            )
        )
        if index is None:
            return None
        places = index.text if self.chance(0.3) else f"({index.text} & 7)"
        return self.tile(f"tl.gather({a.text}, {places}, {axis})", a.whole)

    def _literal(self, depth: int) -> Tile | None:
        shape = self.shape()
        dtype = DTYPES[self.rng.choice(["fp32", "i32", "fp16", "i8", "u8", "i64", "bf16", "fp64"])]
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.tile(f"tl.zeros({shape}, {full_name(dtype)})", 0)
        if kind == 1:
            start = self.rng.choice([0, 0, 1, 5])
            size = self.rng.choice(self.sizes)
            return self.tile(f"tl.arange({start}, {start + size})", start + size)
        if kind == 2:
            source = self.pick(lambda t: t.shape == ())
            if source is not None:
                return self.tile(f"tl.full({shape}, {source.text}, {full_name(dtype)})")
        return self.tile(f"tl.full({shape}, {self.rng.randint(0, 9)}, {full_name(dtype)})", 9)

    sizes: Iterable[int] = (16, 8)
    most_elements = MOST_ELEMENTS

    def shape(self) -> tuple[int, ...]:
        """A random shape of one to three sizes."""
        while True:
            rank = self.rng.choice([1, 1, 1, 2, 2, 2, 3])
            shape = tuple(self.rng.choice(self.sizes) for _ in range(rank))
            if np.prod(shape) <= MOST_ELEMENTS:
                return shape

    def _product(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: len(t.shape) == 2)
        if a is None or not self.chance(0.6):
            return None
        m, k = a.shape
        other = self.pick(lambda t: len(t.shape) == 2 and k in t.shape)
        if other is None:
            return None
        if other.shape[0] != k:
            turned = self.tile(f"tl.trans({other.text})", other.whole)
            if turned is None:
                return None
            other = turned
        dtype = DTYPES[self.rng.choice(["fp16", "bf16", "fp32", "fp32", "fp64", "i8"])]
        if dtype.short_name == "i8":
            return self.tile(
                f"tl.dot({self.converted(a, dtype).text}, {self.converted(other, dtype).text})"
            )
        limit = 64
        left, right = self.small_float(a, limit, dtype), self.small_float(other, limit, dtype)
        if left is None or right is None:
            return None
        whole = (
            k * left.bound * right.bound
            if left.bound is not None and right.bound is not None
            else None
        )
        if whole is None:
            return None
        acc = self.pick(
            lambda t: (
                t.shape == (m, other.shape[1])
                and t.dtype.short_name == "fp32"
                and t.bound is not None
            )
        )
        if acc is not None and dtype.short_name != "fp64" and acc.bound + whole < 2**23:
            return self.tile(f"tl.dot({left.text}, {right.text}, {acc.text})", acc.bound + whole)
        form = self.rng.choice(["", ", input_precision='ieee'", ", allow_tf32=False"])
        return self.tile(f"tl.dot({left.text}, {right.text}{form})", whole)
