"""Random expressions of functions on elements, of microscaled products, and of inline assembly."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import combine
from tests.fuzz.expressions import Expressions, Tile
from tilewright.ir.types import DTYPES

__all__ = ["Mapping"]

# On two 32-bit integers; in the interpreter and on the CPU they are ops.
_ASSEMBLY = (
    "xor.b32 $0, $1, $2;",
    "prmt.b32 $0, $1, $2, 0x5410;",
    "shf.l.wrap.b32 $0, $1, $2, 7;",
    "mad.lo.s32 $0, $1, $2, $1;",
    "{ .reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, $1, $2, p; }",
)


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
            function = self._use(combine.map_halvings)
            return self.tile(f"tl.map_elementwise({function}, {a.text})")
        b = self.pick(lambda t: t.shape == a.shape and not t.dtype.is_bool())
        if b is None:
            return None
        function, other = self._use(combine.map_sides), self.converted(b, a.dtype)
        return self.tile(f"tl.map_elementwise({function}, {a.text}, {other.text})")

    def _scaled_product(self, depth: int) -> Tile | None:
        """Of numbers of 4 bits: all sums are exact."""
        a = self.operand(depth, lambda t: len(t.shape) == 2 and not t.is_float)
        if a is None or a.dtype.is_bool() or a.shape[0] > 32:
            return None
        codes = f"({a.text}).to(tl.uint8)"
        scale = self.rng.choice(["None", f"tl.full(({a.shape[0]}, 1), 128, tl.uint8)"])
        return self.tile(
            f"tl.dot_scaled({codes}, {scale}, 'e2m1', tl.trans({codes}), None, 'e2m1')"
        )

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
