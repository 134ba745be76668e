"""Quotients of fp32 by divisors that many elements share, correctly rounded.

An element costs three operations where the divisor's reciprocal is known: x / y is at first
q = x * (1 / y), and what is left of x, x - q y, corrects it. Nothing may overflow or lose bits as a
subnormal number; four operations more see to it that an element is within such bounds. Where one is
not, all of the thread's are divided by the machine's division.

That rounds correctly: q is within 1.5 ULP, so what the last operation rounds is within 2.5 * 2^-24
ULP of x / y, as the reciprocal is off by 2^-24 of itself, and what is left may have 25 bits. For
mantissas X and Y, whole numbers of 24 bits, x / y is k / (2 Y) ULP away from where rounding
changes, k whole and never 0. So all is well for |k| > 4, and the few pairs that are nearer are
known to be right, as `tests/codegen/gpu/test_quotients.py` computes all of them.

Source: P. W. Markstein, "Computation of elementary functions on the IBM RISC System/6000
processor", IBM Journal of Research and Development 34 (1990).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.codegen.code import Code, Element, constant_text
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.ir.types import DTYPES

__all__ = ["Quotients", "are_shared"]

# So many quotients for each divisor.
_LEAST_SHARED = 4

# For magnitudes of dividends from 2^-100 to 2^101, and these divisors, the formula is right.
_LEAST_DIVISOR, _LARGEST_DIVISOR = 2.0**-24, 2.0**24
_TO_INFINITY = 2.0**28  # what is 2^101 or larger makes any finite sum infinite by it
_TO_SUBNORMAL = 2.0**-26  # what is smaller than 2^-100 becomes subnormal by it

# Sums that are independent of each other, since one takes a few cycles.
_CHAINS = 4


def are_shared(quotients: int, divisors: int) -> bool:
    """Whether there are few enough divisors for so many quotients."""
    return _LEAST_SHARED * divisors <= quotients


class Quotients:
    """Writes x / y for each pair of elements, by its number, with one branch for all of them."""

    def __init__(
        self, code: Code, machine: GpuMachine, pairs: Mapping[int, tuple[Element, Element]]
    ) -> None:
        self.code, self.machine = code, machine
        self.pairs = {number: (x.text, y.text) for number, (x, y) in pairs.items()}
        self.dividends = list(dict.fromkeys(x for x, _ in self.pairs.values()))
        self.divisors = list(dict.fromkeys(y for _, y in self.pairs.values()))

    def write(self) -> dict[int, Element]:
        """Write the quotients of all pairs."""
        code = self.code
        slots = {number: code.alloca("float") for number in self.pairs}
        ordinary, others, done = (code.label(name) for name in ("ordinary", "others", "divided"))
        code.line(f"br i1 {self._are_ordinary()}, label %{ordinary}, label %{others}")
        for label, write in ((ordinary, self._by_reciprocals), (others, self._one_by_one)):
            code.place(label)
            for number, text in write().items():
                code.line(f"store float {text}, ptr {slots[number]}")
            code.line(f"br label %{done}")
        code.place(done)
        texts = {number: code.assign(f"load float, ptr {slot}") for number, slot in slots.items()}
        return {number: Element(text, 1, code.level) for number, text in texts.items()}

    def _by_reciprocals(self) -> dict[int, str]:
        one = _constant(1.0)
        inverses = {y: self.code.assign(f"fdiv float {one}, {y}") for y in self.divisors}
        return {
            number: self._by_reciprocal(x, y, inverses[y]) for number, (x, y) in self.pairs.items()
        }

    def _by_reciprocal(self, x: str, y: str, inverse: str) -> str:
        """Write x / y; the terms have those signs that make 0 / y as positive as 0 is."""
        quotient = self.code.assign(f"fmul float {x}, {inverse}")
        excess = self._fma(quotient, y, self.code.assign(f"fneg float {x}"))
        return self._fma(self.code.assign(f"fneg float {excess}"), inverse, quotient)

    def _one_by_one(self) -> dict[int, str]:
        return {
            number: self.code.assign(f"fdiv float {x}, {y}")
            for number, (x, y) in self.pairs.items()
        }

    def _are_ordinary(self) -> str:
        """Whether the formula is right for all; a negative divisor would lose the sign of 0.

        What is too large makes one sum infinite, or NaN. What is too small, and not 0, is all that
        is left of it when it is taken times 2^-26, where subnormal products are 0, times 2^26 away.
        """
        large = self._sum(lambda x, total: self._fma(x, _constant(_TO_INFINITY), total))
        size = self.code.call("float", "llvm.fabs.f32", f"float {large}")
        conditions = [self._compare("olt", size, _constant(float("inf")))]
        small = self._sum(self._with_small)
        conditions.append(self._compare("oeq", small, _constant(0.0)))
        for y in self.divisors:
            conditions.append(self._compare("oge", y, _constant(_LEAST_DIVISOR)))
            conditions.append(self._compare("ole", y, _constant(_LARGEST_DIVISOR)))
        flag = conditions[0]
        for condition in conditions[1:]:
            flag = self.code.assign(f"and i1 {flag}, {condition}")
        return flag

    def _with_small(self, x: str, total: str) -> str:
        product = self.machine.multiply_flushed(x, _constant(_TO_SUBNORMAL))
        rest = self._fma(product, _constant(-1 / _TO_SUBNORMAL), x)
        size = self.code.call("float", "llvm.fabs.f32", f"float {rest}")
        return self.code.assign(f"fadd float {total}, {size}")

    def _sum(self, add: Callable[[str, str], str]) -> str:
        """Sum up something of all dividends, by a few sums of equal length."""
        sums = [_constant(0.0)] * min(_CHAINS, len(self.dividends))
        for place, x in enumerate(self.dividends):
            sums[place % len(sums)] = add(x, sums[place % len(sums)])
        total = sums[0]
        for one in sums[1:]:
            total = self.code.assign(f"fadd float {total}, {one}")
        return total

    def _fma(self, x: str, y: str, z: str) -> str:
        return self.code.call("float", "llvm.fma.f32", f"float {x}, float {y}, float {z}")

    def _compare(self, order: str, x: str, y: str) -> str:
        return self.code.assign(f"fcmp {order} float {x}, {y}")


def _constant(value: float) -> str:
    return constant_text(value, DTYPES["fp32"])
