"""Quotients of fp32 by divisors that many elements share, correctly rounded.

An element costs three operations where the divisor's reciprocal is known: x / y is at first
q = x * (1 / y), and what is left of x, x - q y, corrects it. Nothing may overflow or be subnormal;
where an element is out of such bounds, all of the thread's are divided by the machine's division.

That rounds correctly: q is within 1.5 ULP, so what the last operation rounds is within 2.25 * 2^-24
ULP of x / y. For mantissas X and Y, whole numbers of 24 bits, x / y is k / (2 Y) ULP away from
where rounding changes, k whole and never 0. So all is well for |k| > 4, and the few pairs that are
nearer are known to be right, as `tests/codegen/gpu/test_quotients.py` computes all of them.

Source: P. W. Markstein, "Computation of elementary functions on the IBM RISC System/6000
processor", IBM Journal of Research and Development 34 (1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tilewright.codegen.code import Code, Element, constant_text
from tilewright.ir.types import DTYPES

__all__ = ["are_shared", "divide"]

# So many quotients for each divisor.
_LEAST_SHARED = 4

# Magnitudes of dividends, unless they are 0, and divisors for which the formula is right.
_LEAST_DIVIDEND, _LARGEST_DIVIDEND = 2.0**-100, 2.0**100
_LEAST_DIVISOR, _LARGEST_DIVISOR = 2.0**-24, 2.0**24


def are_shared(quotients: int, divisors: int) -> bool:
    """Whether there are few enough divisors for so many quotients."""
    return _LEAST_SHARED * divisors <= quotients


def divide(code: Code, pairs: Mapping[int, tuple[Element, Element]]) -> dict[int, Element]:
    """Write x / y for each (x, y), with one branch for all of them."""
    slots = {number: code.alloca("float") for number in pairs}
    ordinary, exact, done = (code.label(name) for name in ("ordinary", "exact", "divided"))
    code.line(f"br i1 {_are_ordinary(code, pairs)}, label %{ordinary}, label %{exact}")
    code.place(ordinary)
    for number, text in _by_reciprocals(code, pairs).items():
        code.line(f"store float {text}, ptr {slots[number]}")
    code.line(f"br label %{done}")
    code.place(exact)
    for number, (x, y) in pairs.items():
        text = code.assign(f"fdiv float {x.text}, {y.text}")
        code.line(f"store float {text}, ptr {slots[number]}")
    code.line(f"br label %{done}")
    code.place(done)
    loaded = {number: code.assign(f"load float, ptr {slot}") for number, slot in slots.items()}
    return {number: Element(text, 1, code.level) for number, text in loaded.items()}


def _by_reciprocals(code: Code, pairs: Mapping[int, tuple[Element, Element]]) -> dict[int, str]:
    one = _constant(1.0)
    divisors = dict.fromkeys(y.text for _, y in pairs.values())
    inverses = {y: code.assign(f"fdiv float {one}, {y}") for y in divisors}
    return {
        number: _by_reciprocal(code, x.text, y.text, inverses[y.text])
        for number, (x, y) in pairs.items()
    }


def _by_reciprocal(code: Code, x: str, y: str, inverse: str) -> str:
    """Write x / y; the terms have those signs that make 0 / y as positive as 0 is."""
    quotient = code.assign(f"fmul float {x}, {inverse}")
    negative = code.assign(f"fneg float {x}")
    excess = _fma(code, quotient, y, negative)
    missing = code.assign(f"fneg float {excess}")
    return _fma(code, missing, inverse, quotient)


def _are_ordinary(code: Code, pairs: Mapping[int, tuple[Element, Element]]) -> str:
    """Whether the formula is right for all elements; a negative divisor would lose the sign of 0.

    0 less 1, as a word without sign, is above all others.
    """
    words = [_magnitude(code, text) for text in dict.fromkeys(x.text for x, _ in pairs.values())]
    below = [code.assign(f"sub i32 {word}, 1") for word in words]
    conditions = [
        code.assign(f"icmp uge i32 {_all(code, 'umin', below)}, {_bits(_LEAST_DIVIDEND) - 1}"),
        code.assign(f"icmp ule i32 {_all(code, 'umax', words)}, {_bits(_LARGEST_DIVIDEND)}"),
    ]
    for y in dict.fromkeys(y.text for _, y in pairs.values()):
        for order, bound in (("oge", _LEAST_DIVISOR), ("ole", _LARGEST_DIVISOR)):
            conditions.append(code.assign(f"fcmp {order} float {y}, {_constant(bound)}"))
    flag = conditions[0]
    for condition in conditions[1:]:
        flag = code.assign(f"and i1 {flag}, {condition}")
    return flag


def _magnitude(code: Code, x: str) -> str:
    """The bits of |x|, which are in the order of the numbers."""
    bits = code.assign(f"bitcast float {x} to i32")
    return code.assign(f"and i32 {bits}, {0x7FFFFFFF}")


def _all(code: Code, function: Literal["umin", "umax"], words: Sequence[str]) -> str:
    """The least or largest of words, by pairs of pairs."""
    while len(words) > 1:
        pairs = zip(words[::2], words[1::2], strict=False)
        rest = words[len(words) & ~1 :]
        words = [
            *(code.call("i32", f"llvm.{function}.i32", f"i32 {a}, i32 {b}") for a, b in pairs),
            *rest,
        ]
    return words[0]


def _fma(code: Code, x: str, y: str, z: str) -> str:
    return code.call("float", "llvm.fma.f32", f"float {x}, float {y}, float {z}")


def _constant(value: float) -> str:
    return constant_text(value, DTYPES["fp32"])


def _bits(power_of_two: float) -> int:
    return int(power_of_two.hex().partition("p")[2]) + 127 << 23
