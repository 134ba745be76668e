"""Memory in random kernels: arrays, addresses, masks, loads, stores and atomics."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.expressions import FULL_NAMES, Expressions, Tile
from tilewright.frontend.context import activate
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES

__all__ = ["Array", "Memory", "Pointer", "Scope"]

INPUT_TYPES = [
    "fp32", "fp32", "fp64", "fp16", "bf16", "i8", "i16", "i32", "i32", "i64", "u8", "u16", "u32",
    "u64", "i1", "fp8e4nv", "fp8e5",
]  # fmt: skip
_LOAD_HINTS = [
    ", cache_modifier='.ca'", ", cache_modifier='.cg'", ", cache_modifier='.cv'",
    ", eviction_policy='evict_first'", ", eviction_policy='evict_last'", ", volatile=True",
]  # fmt: skip
_STORE_HINTS = [
    ", cache_modifier='.wb'", ", cache_modifier='.cg'", ", cache_modifier='.cs'",
    ", cache_modifier='.wt'", ", eviction_policy='evict_first'",
]  # fmt: skip
_ORDERS = [
    ", sem='relaxed'",
    ", sem='acquire'",
    ", sem='release'",
    ", scope='cta'",
    ", scope='sys'",
]
ATOMIC_TYPES = ["i32", "i64", "u32", "u64", "fp32", "fp64", "fp16", "bf16"]
MATH = [
    "tl.exp({})", "tl.exp2({})", "tl.log(tl.abs({}) + 1)", "tl.sin({})", "tl.cos({})",
    "tl.sigmoid({})", "tl.math.tanh({})", "tl.erf({})", "tl.rsqrt(tl.abs({}) + 1)",
    "tl.log2(tl.abs({}) + 0.5)", "(1.0 / (tl.abs({}) + 1))", "({} / 3.0)", "tl.fdiv({0}, {0} + 30)",
]  # fmt: skip


MOST_ATOMIC_ELEMENTS = 256  # the interpreter takes them one by one


@dataclass
class Array:
    """An array of the launch: who uses it how, and how many elements that takes.

    It is no parameter of the kernel if only a descriptor is made of it.
    """

    name: str
    dtype: str
    data: str
    needed: int = 1
    is_parameter: bool = True

    @property
    def whole(self) -> float | None:
        return {"whole": 8.0, "small": 3.0, "digits": 2.0, "zeros": 0.0}.get(self.data)


@dataclass
class Pointer:
    """A named tile of pointers into an input, and the largest offset in it."""

    text: str
    array: Array
    shape: tuple[int, ...]
    last: int


@dataclass
class Scope:
    """What a block of statements may change: tiles it may bind again, pointers it may move."""

    assignable: list[Tile] = field(default_factory=list)
    is_loop: bool = False
    trips: int = 1
    index: str = ""
    last_index: int = 0


class Memory(Expressions):
    """Writes statements that access memory."""

    def __init__(self, seed: int, *, portable: bool) -> None:
        super().__init__(random.Random(seed), portable=portable)
        rng = self.rng
        self.lines: list[str] = []
        self.indent = 1
        self.functions: list[str] = []
        self.count = 0
        self.depth = 0
        self.scalars: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.tolerances: dict[str, float] = {}
        self.grid = rng.choice([(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (1, 2, 2)])
        self.programs = int(np.prod(self.grid))
        self.sizes = self._choose_sizes()
        self.has_special = self.flushes = False
        self.inputs = [self._array("x", rng.choice(INPUT_TYPES)) for _ in range(rng.randint(1, 3))]
        self.private = [self._array("y", rng.choice(INPUT_TYPES)) for _ in range(rng.randint(1, 2))]
        self.options = {
            "num_warps": rng.choice([1, 2, 4, 4, 4, 8, 8]),
            "num_stages": rng.randint(1, 5),
            "enable_fp_fusion": self.fuses,
        }
        if self.chance(0.1):
            self.options |= rng.choice([{"maxnreg": 64}, {"num_warps": 16}, {"num_ctas": 2}])
        self.shared: list[Array] = []
        self.outputs: list[Array] = []
        self.matrices: list[Array] = []
        self.descriptors: dict[str, tuple[Any, ...]] = {}
        self.scopes = [Scope()]

    def _choose_sizes(self) -> list[int]:
        sizes = self.rng.sample([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 32, 33, 64, 100, 128], 3)
        return [*sizes, self.rng.choice([2, 4, 8, 16])]

    def _array(self, prefix: str, dtype: str, data: str = "") -> Array:
        kinds = (
            ["whole", "whole", "small", "random", "special"]
            if dtype[0] in "fb"
            else ["whole", "small", "random"]
        )
        self.count += 1
        data = data or self.rng.choice(kinds[:-1] if self.flushes and dtype[0] == "f" else kinds)
        self.has_special = self.has_special or data == "special"
        return Array(f"{prefix}{self.count}", dtype, data)

    # ---- text

    def write(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def new_name(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def bind(self, tile: Tile, prefix: str = "t") -> Tile:
        """Give an expression a name."""
        name = self.new_name(prefix)
        self.write(f"{name} = {tile.text}")
        named = self.name(tile, name)
        self.tiles.append(named)
        self.scopes[-1].assignable.append(named)
        return named

    def number(self, value: int, prefix: str = "n") -> str:
        """A runtime parameter, a compile-time parameter or a literal with this value."""
        kind = self.rng.choice(["literal", "runtime", "runtime", "constant"])
        if kind == "literal":
            return str(value)
        table = self.scalars if kind == "runtime" else self.constants
        known = [name for name, v in table.items() if v == value and self.chance(0.7)]
        if known:
            return known[0]
        name = self.new_name(prefix if kind == "runtime" else prefix.upper())
        table[name] = value
        self._define(name, value, is_constant=kind == "constant" or value == 1)
        return name

    def _define(self, name: str, value: int, *, is_constant: bool) -> None:
        self.namespace[name] = value
        if not is_constant:
            with activate(self._eager):
                self.namespace[name] = self.evaluate(f"tl.full((), {value}, tl.int32)")

    # ---- addresses

    def offsets(self, shape: tuple[int, ...], *, distinct: bool) -> str:
        """Constant offsets of a shape; with `distinct` no two are equal."""
        for _ in range(8):
            text = self._offset_text(shape)
            values = self._numbers(text)
            if values.min() < 0 or values.max() > 4000 or values.shape != shape:
                continue
            if not distinct or np.unique(values).size == values.size:
                return text
        return self._row_major(shape)

    def _numbers(self, text: str) -> np.ndarray:
        value = self.evaluate(text)
        assert value is not None, text
        return np.asarray(value.value.array if isinstance(value, Tensor) else value)

    def _row_major(self, shape: tuple[int, ...]) -> str:
        terms = []
        for axis, size in enumerate(shape):
            stride = int(np.prod(shape[axis + 1 :]))
            index = ", ".join(":" if i == axis else "None" for i in range(len(shape)))
            line = f"tl.arange(0, {size})" + (f"[{index}]" if len(shape) > 1 else "")
            terms.append(line if stride == 1 else f"{line} * {stride}")
        return " + ".join(terms) or "0"

    def _offset_text(self, shape: tuple[int, ...]) -> str:
        if not shape:
            return str(self.rng.randint(0, 9))
        strides = self._strides(shape)
        terms = []
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            line = f"tl.arange(0, {size})"
            form = self.rng.randrange(10)
            if form == 0:
                line = f"({size - 1} - {line})"
            elif form == 1:
                line = f"({line} ^ {self.rng.choice([1, 2, 3])})"
            elif form == 2:
                line = f"(({line} * {self.rng.choice([3, 5])}) % {size})"
            elif form == 3:
                line = f"({line} % {self.rng.choice([2, 3, 4])})"
            index = ", ".join(":" if i == axis else "None" for i in range(len(shape)))
            line = f"{line}[{index}]" if len(shape) > 1 else line
            terms.append(
                line if stride == 1 and self.chance(0.9) else f"{line} * {self.number(stride)}"
            )
        if self.chance(0.3):
            terms.append(self.number(self.rng.choice([1, 2, 3, 16, 5])))
        return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]

    def _strides(self, shape: tuple[int, ...]) -> list[int]:
        """Row-major strides, often with gaps, sometimes with the axes in another order."""
        order = list(range(len(shape)))
        if self.chance(0.3):
            self.rng.shuffle(order)
        stride = self.rng.choice([1, 1, 1, 1, 2, 3])
        strides = [0] * len(shape)
        for axis in reversed(order):
            strides[axis] = stride
            stride *= shape[axis]
            stride += self.rng.choice([0, 0, 0, 1, 5])
        return strides

    def mask(self, offsets: str, shape: tuple[int, ...]) -> tuple[str, int]:
        """A mask for offsets, often none, and the largest offset that it lets through."""
        values = self._numbers(offsets)
        last = int(values.max())
        kind = self.rng.random()
        if kind < 0.5:
            return "", last
        if kind < 0.8 and shape:
            limit = self.rng.choice([last // 2 + 1, last, last + 7, 1])
            text = f"{offsets} < {self.number(limit)}"
            allowed = values[values < limit]
            return text, int(allowed.max()) if allowed.size else 0
        tile = self.pick(lambda t: t.dtype.is_bool()) or self.tile("tl.full((), 1, tl.int1)", 1)
        assert tile is not None
        if not shape:
            return (tile.text, last) if tile.shape == () else ("", last)
        fitted = self.fit(tile, shape)
        if not fitted.dtype.is_bool():
            return f"({fitted.text} != 0)", last
        return fitted.text, last

    def moved(self, last: int) -> tuple[str, int]:
        """A term that moves with the loop, and the largest offset with it."""
        scope = self.scopes[-1]
        if not scope.index or not self.chance(0.6):
            return "", last
        step = self.rng.choice([1, 4, 16])
        return f" + {scope.index} * {step}", last + scope.last_index * step

    # ---- memory

    def load(self) -> Tile:
        """A load from an input, or from the part of an array that is the program's own."""
        shape = self.shape() if self.chance(0.85) else ()
        is_private = self.chance(0.35)
        array = self.rng.choice(self.private if is_private else self.inputs)
        dtype = DTYPES[array.dtype]
        whole = None if is_private else array.whole
        pointers = [p for p in self.pointers if not is_private and p.array is array]
        if pointers and self.chance(0.5):
            pointer = self.rng.choice(pointers)
            return self.loaded(f"tl.load({pointer.text})", dtype, pointer.shape, whole)
        if self.chance(0.15) and not is_private and self._gathered(array) is not None:
            made = self._gathered(array)
            assert made is not None
            return made
        offsets = self.offsets(shape, distinct=False)
        mask, last = self.mask(offsets, shape)
        extra, last = self.moved(last)
        base, last = self.base(array, is_private, last)
        array.needed = max(array.needed, last + 1)
        text = f"tl.load({base}{offsets}{extra}"
        if mask:
            text += f", mask={mask}"
            if self.chance(0.6):
                text += f", other={self.rng.choice([0, 1] if dtype.is_bool() else [0, 1, 3])}"
        return self.loaded(f"{text}{self._hint(_LOAD_HINTS)})", dtype, shape, whole)

    def _hint(self, hints: list[str]) -> str:
        return self.rng.choice(hints) if self.chance(0.1) else ""

    def _gathered(self, array: Array) -> Tile | None:
        """A load from places that other data say."""
        index = self.pick(lambda t: not t.is_float and not t.dtype.is_bool())
        if index is None:
            return None
        limit = self.rng.choice([7, 15, 31])
        array.needed = max(array.needed, limit + 1)
        pointer = f"{array.name} + ({index.text} & {limit})"
        if self.chance(0.4):
            test = f"({index.text}) > {self.rng.randrange(3)}"
            pointer = f"tl.where({test}, {pointer}, {array.name} + {self.rng.randrange(limit)})"
        text = f"tl.load({pointer})"
        return self.loaded(text, DTYPES[array.dtype], index.shape, array.whole)

    def base(self, array: Array, is_private: bool, last: int) -> tuple[str, int]:
        """The pointer in front of the offsets; for inputs it may depend on the program."""
        if is_private:
            return f"{array.name} + pid * {array.name}_part + ", last
        if self.chance(0.4):
            step = self.rng.choice([1, 16, 10])
            return f"{array.name} + pid * {self.number(step)} + ", last + (self.programs - 1) * step
        return f"{array.name} + ", last

    def store(self) -> None:
        """A store to the program's own part of an array."""
        tile = self.pick()
        if tile is None:
            return
        array = self.rng.choice(self.private)
        shape = tile.shape if self.chance(0.7) else self.shape()
        offsets = self.offsets(shape, distinct=True)
        mask, last = self.mask(offsets, shape)
        extra, last = self.moved(last)
        array.needed = max(array.needed, last + 1)
        value = self.fit(tile, shape) if shape else tile
        if value.shape != () and not shape:
            value = self.fit(tile, ())
        suffix = f", mask={mask}" if mask else ""
        pointer = f"{array.name} + pid * {array.name}_part + {offsets}{extra}"
        if self.chance(0.3):
            change = self.rng.choice(["{0} + {1}", "{1} - {0}", "tl.where({0} > 1, {0}, {1})"])
            if not DTYPES[array.dtype].is_bool() and not value.dtype.is_bool():
                name = self.new_name("p")
                self.write(f"{name} = {pointer}")
                old = f"tl.load({name}{suffix})"
                self.write(f"tl.store({name}, {change.format(old, value.text)}{suffix})")
                return
        self.write(f"tl.store({pointer}, {value.text}{suffix}{self._hint(_STORE_HINTS)})")

    def atomic(self) -> None:
        """An atomic whose result does not depend on the order of programs."""
        kind = self.rng.choice(["add", "max", "min", "and", "or", "xor", "add"])
        whole_types = [t for t in ATOMIC_TYPES if kind not in {"and", "or", "xor"} or t[0] in "iu"]
        array = next((a for a in self.shared if a.data == kind and self.chance(0.7)), None)
        if array is None:
            array = Array(self.new_name("z"), self.rng.choice(whole_types), kind)
            self.shared.append(array)
        dtype = DTYPES[array.dtype]
        tile = self.pick(lambda t: t.bound is not None)
        if tile is None:
            return
        value: Tile | None = tile
        if dtype.is_floating():
            value = self.small_float(tile, 4 if dtype.short_name == "bf16" else 16, dtype)
            if kind != "add":
                value = self.small_float(tile, 128, dtype)
        elif tile.is_float:
            return
        if value is None or value.size > MOST_ATOMIC_ELEMENTS:
            return
        if value.size * self.programs > 128 and dtype.short_name in {"bf16", "fp16"}:
            return
        if dtype.short_name == "bf16" and kind == "add":
            value = self.small_float(value, 1, dtype)
            if value is None:
                return
        offsets = self.offsets(value.shape, distinct=self.chance(0.5))
        mask, last = self.mask(offsets, value.shape)
        array.needed = max(array.needed, last + 1)
        suffix = f", mask={mask}" if mask else ""
        if len(self.scopes) > 1:
            return  # the number of additions stays small enough to be exact
        value = self.converted(value, dtype)
        self.write(f"tl.atomic_{kind}({array.name} + {offsets}, {value.text}{suffix})")

    def own_atomic(self) -> None:
        """An atomic on the program's own part of an array, whose result is used."""
        arrays = [a for a in self.private if a.dtype in ATOMIC_TYPES]
        tile = self.pick()
        if not arrays or tile is None:
            return
        array = self.rng.choice(arrays)
        dtype, shape = DTYPES[array.dtype], tile.shape if self.chance(0.5) else self.shape()
        kinds = ["max", "min", "xchg"] + ["and", "or", "xor"] * dtype.is_int()
        # GPUs add subnormal fp32 numbers as zeros.
        kinds += ["add"] * (array.dtype != "fp32" or not self.has_special)
        # Which bits a NaN has is left open.
        kinds += ["cas"] * (dtype.is_int() or not self.portable)
        kind, value = self.rng.choice(kinds), self.filled(tile, shape, dtype)
        if value.shape != shape or value.dtype is not dtype or value.size > MOST_ATOMIC_ELEMENTS:
            return
        offsets = self.offsets(shape, distinct=True)
        mask, last = self.mask(offsets, shape)
        array.needed = max(array.needed, last + 1)
        pointer = f"{array.name} + pid * {array.name}_part + {offsets}"
        if kind == "cas":
            array.needed = max(array.needed, int(self._numbers(offsets).max()) + 1)
            compared = self.filled(self.pick() or tile, shape, dtype)
            if compared.shape != shape or compared.dtype is not dtype:
                return
            text = f"tl.atomic_cas({pointer}, {compared.text}, {value.text})"
        else:
            suffix = f", mask={mask}" if mask else ""
            text = f"tl.atomic_{kind}({pointer}, {value.text}{suffix}{self._hint(_ORDERS)})"
            self.flushes = self.flushes or (kind == "add" and array.dtype == "fp32")
        self.bind(self.loaded(text, dtype, shape, None))

    def approximate(self) -> None:
        """A math function, which is stored at once, to an array that need not agree to the bit."""
        tile = self.pick(
            lambda t: (
                t.dtype.short_name in {"fp32", "fp64"} and t.bound is not None and t.bound < 20
            )
        )
        if tile is None:
            return
        made = self.tile(self.rng.choice(MATH).format(tile.text))
        if made is None or len(self.scopes) > 1:
            return
        array = self._output(made)
        self.tolerances[array.name] = 1e-5 if made.dtype.short_name == "fp32" else 1e-12

    def _output(self, tile: Tile) -> Array:
        array = Array(self.new_name("out"), tile.dtype.short_name, "zeros")
        if (
            self.chance(0.15)
            and tile.bound is not None
            and tile.dtype.short_name not in self.tolerances
        ):
            array.dtype = self.rng.choice(list(FULL_NAMES)[1:])
        self.outputs.append(array)
        array.needed = max(tile.size, 1)
        offsets = self._row_major(tile.shape)
        self.write(f"tl.store({array.name} + pid * {array.needed} + {offsets}, {tile.text})")
        return array
