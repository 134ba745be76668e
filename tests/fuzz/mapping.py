"""Random expressions of functions on elements, of microscaled products, and of inline assembly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz import combine
from tests.fuzz.expressions import Expressions, Tile
from tilewright.ir.types import DTYPES

__all__ = ["Mapping"]

# Formats of microscaled numbers; those of whole bytes with their element type.
_ELEMENTS = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "bf16": "bf16", "fp16": "fp16"}
_FORMATS = ["e2m1", "e2m1", *_ELEMENTS]

# On two 32-bit integers; in the interpreter and on the CPU they are ops.
_ASSEMBLY = (
    "xor.b32 $0, $1, $2;",
    "prmt.b32 $0, $1, $2, 0x5410;",
    "shf.l.wrap.b32 $0, $1, $2, 7;",
    "mad.lo.s32 $0, $1, $2, $1;",
    "lop3.b32 $0, $1, $2, $1, 0x96;",
    "bfe.u32 $0, $1, 3, 7;",
    "popc.b32 $0, $1;",
    "clz.b32 $0, $1;",
    "brev.b32 $0, $2;",
    "mul.hi.u32 $0, $1, $2;",
    "min.s32 $0, $1, $2;",
    "max.u32 $0, $1, $2;",
    "sub.u32 $0, $1, $2;",
    "shr.s32 $0, $1, 5;",
    "{ .reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, $1, $2, p; }",
)


@dataclass(frozen=True)
class _Side:
    """An operand of a microscaled product: its text, and how many numbers it has."""

    text: str
    kind: str
    rows: int
    k: int
    packs_k: bool = True


class Mapping(Expressions):
    """Makes expressions that are more than one op for each element."""

    def more_makers(self) -> list[Callable[[int], Tile | None]]:
        """What there is beside the expressions of all."""
        return [self._mapped, self._scaled_product, self._assembly]

    def _mapped(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: not t.dtype.is_bool())
        if a is None:
            return None
        if a.size % 2 == 0 and self.chance(0.3):
            function = self._use(combine.map_exchanged)
            return self.tile(f"tl.map_elementwise({function}, {a.text}, pack=2)", a.whole)
        if not a.is_float and self.chance(0.5):
            function = self._use(self.rng.choice([combine.map_halvings, combine.map_until_odd]))
            return self.tile(f"tl.map_elementwise({function}, {a.text})")
        b = self.pick(lambda t: t.shape == a.shape and not t.dtype.is_bool())
        if b is None:
            return None
        other = self.converted(b, a.dtype)
        if self.chance(0.4):
            function, item = self._use(combine.map_both), self.rng.randrange(2)
            return self.tile(f"tl.map_elementwise({function}, {a.text}, {other.text})[{item}]")
        function = self._use(combine.map_sides)
        return self.tile(f"tl.map_elementwise({function}, {a.text}, {other.text})")

    # ---- products of microscaled numbers

    def _scaled_product(self, depth: int) -> Tile | None:
        """Of small numbers, times powers of two: all sums are exact."""
        a = self.operand(depth, lambda t: len(t.shape) == 2 and t.shape[0] <= 32)
        if a is None or a.dtype.is_bool():
            return None
        other = self.pick(lambda t: len(t.shape) == 2 and t.shape[0] <= 32) or a
        kind = self.rng.choice(_FORMATS)
        left, right = self._codes(a, kind), self._codes(other, self.rng.choice(_FORMATS))
        if left is not None and (right is None or right.k != left.k):
            right = self._codes(a, kind)
        if left is None or right is None:
            return None
        scales = [self._scale(side) for side in (left, right)]
        packing = "".join(
            f", {name}=False"
            for name, side in (("lhs_k_pack", left), ("rhs_k_pack", right))
            if not side.packs_k
        )
        out = self.rng.choice(["", "", ", out_dtype=tl.float16", ", out_dtype=tl.bfloat16"])
        return self.tile(
            f"tl.dot_scaled({left.text}, {scales[0]}, '{left.kind}', "
            f"tl.trans({right.text}), {scales[1]}, '{right.kind}'{packing}{out})"
        )

    def _codes(self, tile: Tile, kind: str) -> _Side | None:
        """A tile as numbers of a format, each row along k."""
        rows, k = tile.shape
        if kind == "e2m1":
            if tile.is_float or tile.dtype.is_bool():
                return None
            text, packs_k = f"({tile.text}).to(tl.uint8)", rows * 2 > 32 or self.chance(0.7)
            return _Side(
                text, kind, rows if packs_k else 2 * rows, k * 2 if packs_k else k, packs_k
            )
        small = self.small_float(tile, 8, DTYPES[_ELEMENTS[kind]])
        if small is None or small.bound is None:
            return None
        text = small.text
        if self.chance(0.3):
            text = f"({text}).to(tl.uint{8 * small.dtype.itemsize}, bitcast=True)"
        return _Side(text, kind, rows, k)

    def _scale(self, side: _Side) -> str:
        """None, or one of 1/4 to 4 for each row and group along k."""
        groups = self.rng.choice([g for g in (1, 2, 4, 8) if side.k % g == 0])
        shape = (side.rows, groups)
        places = f"tl.arange(0, {side.rows})[:, None] + tl.arange(0, {groups})[None, :]"
        return self.rng.choice(
            [
                "None",
                f"tl.full({shape}, {self.rng.randint(126, 129)}, tl.uint8)",
                f"(({places}) % 4 + 126).to(tl.uint8)",
                f"tl.full({shape}, {self.rng.choice([0.5, 1.0, 4.0])}, tl.float8e4nv)",
            ]
        )

    # ---- inline assembly

    def _assembly(self, depth: int) -> Tile | None:
        a = self.operand(depth, lambda t: not t.is_float)
        if a is None:
            return None
        b = self.pick(lambda t: t.shape == a.shape and not t.is_float) or a
        x, y = (self.converted(t, DTYPES["i32"]).text for t in (a, b))
        text = self.rng.choice(_ASSEMBLY)
        return self.tile(
            f"tl.inline_asm_elementwise('{text}', '=r,r,r', [{x}, {y}], tl.int32, True, 1)"
        )
