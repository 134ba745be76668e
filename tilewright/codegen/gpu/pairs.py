"""Computing two numbers of 16 bits at a time, as they lie in a word.

What takes words (matrix instructions, stores to shared memory) asks for pairs of elements. Where a
pair is one sum or product of pairs, it is one instruction, with the roundings of two; so are the
bits that are put together to floats. Small integers become floats by writing them into the mantissa
of a constant, instead of by conversions, of which a GPU does few at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright import ops
from tilewright.codegen.code import Element, dtype, llvm_type
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.ranges import IntegerRanges, constant_of
from tilewright.codegen.gpu.views import operand_layout
from tilewright.codegen.gpu.words import WORD_BITS, from_words, to_words
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES
from tilewright.layout import LinearLayout, register_copies
from tilewright.ops.numerics import narrow, widen

__all__ = ["Pairs"]


_HALF = 0xFFFF  # of a word


class _Format(NamedTuple):
    """A power of two such that the integers from it to its double are the lowest bits added."""

    power: int
    bits: int  # of the power
    one: int
    sign: int


_FORMATS = {
    "bf16": _Format(128, 0x4300, 0x3F80, 0x8000),
    "fp16": _Format(1024, 0x6400, 0x3C00, 0x8000),
}


class _Integer(NamedTuple):
    """What an element is: that of a tile in a register, and an offset more."""

    base: Value
    layout: LinearLayout
    register: int
    offset: int


class _Bits(NamedTuple):
    """What a small number is: a number of `bits` in the code, shifted down, and masked."""

    text: str
    bits: int
    shift: int
    mask: int


class Pairs:
    """Writes the words of pairs of elements."""

    def __init__(self, puller: Puller) -> None:
        self.puller, self.code = puller, puller.code
        self.ranges = IntegerRanges()

    def words(self, value: Value, layout: LinearLayout, registers: Sequence[int]) -> list[str]:
        """Return the elements of registers, an even number of them, as words."""
        pairs = zip(registers[::2], registers[1::2], strict=True)
        return [self.word(value, layout, *pair) for pair in pairs]

    def word(self, value: Value, layout: LinearLayout, first: int, second: int) -> str:
        """Return two elements, of 16 bits each, as one word; the first is the lower half."""
        copies = register_copies(layout)
        pair = copies[first], copies[second]
        key = ("pair", value, layout, pair)
        known = self.code.lookup(key)
        if known is None:
            text = self._computed(value, layout, pair) or self._packed(value, layout, pair)
            known = self.code.remember(key, Element(text, 1, self.code.level))
        return known.text

    def elements(self, value: Value, layout: LinearLayout) -> list[str]:
        """Return the elements of all registers, two of 16 bits computed at a time where that is."""
        copies, texts = register_copies(layout), dict[int, str]()
        for first in range(0, len(copies) - 1, 2):
            pair = first, first + 1
            is_new = all(copies[register] == register for register in pair)
            word = self._computed(value, layout, pair) if is_new else ""
            if word:
                halves = from_words(self.code, [word], value.type.element, WORD_BITS, 2)
                texts.update(zip(pair, halves, strict=True))
        for register in copies:
            if register not in texts:
                texts[register] = self.puller.pull(value, layout, register).text
        return [texts[register] for register in copies]

    def _packed(self, value: Value, layout: LinearLayout, pair: tuple[int, int]) -> str:
        texts = [self.puller.pull(value, layout, register).text for register in pair]
        return to_words(self.code, texts, value.type.element, WORD_BITS)[0]

    def _computed(self, value: Value, layout: LinearLayout, pair: tuple[int, int]) -> str:
        """The word, where it is computed as one; "" where it is not."""
        name = dtype(value.type.element).short_name
        if name not in self.puller.machine.pair_types or not self.puller.is_recipe(value, layout):
            return ""
        inner = _moved(value, layout)
        if inner is not None:
            return self.word(*inner, *pair)
        if isinstance(value, ops.Bitcast) and not dtype(value.x.type.element).is_floating():
            return self._logic(value.x, layout, pair)
        if not isinstance(value, ops.Cast):
            return ""
        x = value.x
        if isinstance(x, ops.Cast) and not dtype(x.x.type.element).is_floating():
            x = x.x
        if dtype(x.type.element).is_floating():
            return self._arithmetic(name, x, layout, pair)
        return self._from_integers(name, x, layout, pair)

    # -- sums and products ------------------------------------------------------------------------

    def _arithmetic(
        self, name: str, wide: Value, layout: LinearLayout, pair: tuple[int, int]
    ) -> str:
        """One op in fp32 on numbers of the narrow type, rounded to it.

        The rounding to fp32 changes nothing (Figueroa, "When is double rounding innocuous?", 1995).
        """
        if not isinstance(wide, ops.Add | ops.Sub | ops.Mul):
            return ""
        x = self._narrow_word(name, wide.x, layout, pair)
        y = self._narrow_word(name, wide.y, layout, pair) if x else ""
        if not y:
            return ""
        form = _FORMATS[name]
        one = _both(form.one)
        match wide:
            case ops.Mul():
                return self._multiply_add(name, x, y, _both(form.sign))
            case ops.Add():
                return self._multiply_add(name, x, one, y)
        return self._multiply_add(name, y, _both(form.one | form.sign), x)

    def _narrow_word(
        self, name: str, wide: Value, layout: LinearLayout, pair: tuple[int, int]
    ) -> str:
        """The pair of the narrow type that two fp32 numbers are; "" where they are none."""
        while True:
            inner = _moved(wide, layout)
            match wide:
                case ops.Full(value=number):
                    bits = _bits_of(name, number)
                    return str(_both(bits)) if _value_of(name, bits) == number else ""
                case _ if not self.puller.is_recipe(wide, layout):
                    return ""
                case ops.Cast(x=x) if dtype(x.type.element).short_name == name == "fp16":
                    return self.word(x, layout, *pair)
                case ops.Bitcast(x=ops.ShiftLeft(x=ops.Cast(x=x), y=count)):
                    is_upper_half = (
                        constant_of(count) == 16 and wide.type.element.short_name == "fp32"
                    )
                    if not is_upper_half or name != "bf16":
                        return ""
                    return self._bf16_word(x, layout, pair)
                case _ if inner is not None:
                    wide, layout = inner
                case _:
                    return ""

    def _bf16_word(self, bits: Value, layout: LinearLayout, pair: tuple[int, int]) -> str:
        """The pair of bf16 that have these bits; "" where there is none."""
        if isinstance(bits, ops.Bitcast) and bits.x.type.element.short_name == "bf16":
            return self.word(bits.x, layout, *pair)
        return self._logic(bits, layout, pair) if bits.type.element.short_name == "u16" else ""

    def _multiply_add(self, name: str, x: str, y: str | int, z: str | int) -> str:
        return self.puller.machine.multiply_add_pairs(name, x, str(y), str(z))

    # -- bits -------------------------------------------------------------------------------------

    def _logic(self, value: Value, layout: LinearLayout, pair: tuple[int, int]) -> str:
        """The word of two integers of 16 bits, by ops on words; "" where there are none for it."""
        constant = constant_of(value)
        if constant is not None:
            return str(_both(constant & _HALF))
        if not self.puller.is_recipe(value, layout):
            return ""
        inner = _moved(value, layout)
        if inner is not None:
            return self._logic(*inner, pair)
        match value:
            case ops.And(x=x, y=y) | ops.Or(x=x, y=y) | ops.Xor(x=x, y=y):
                words = [self._logic(operand, layout, pair) for operand in (x, y)]
                return self._word_op(value.op_name, *words) if all(words) else ""
            case ops.ShiftLeft(x=x, y=y):
                count = constant_of(y)
                kept = _HALF << (count or 0) & _HALF
                return self._shifted("shl", x, count, kept, layout, pair)
            case ops.ShiftRight(x=x, y=y) if not dtype(x.type.element).is_int_signed():
                count = constant_of(y)
                return self._shifted("lshr", x, count, _HALF >> (count or 0), layout, pair)
            case ops.Cast(x=x) if not dtype(x.type.element).is_floating():
                return self._from_small(x, layout, pair)
        return ""

    def _shifted(
        self, how: str, x: Value, count: int | None, kept: int,
        layout: LinearLayout, pair: tuple[int, int],
    ) -> str:  # fmt: skip
        """Both shifted by a constant, without the bits that come from the other half."""
        word = self._logic(x, layout, pair) if count in range(16) else ""
        return word and self._word_op("and", self._word_op(how, word, str(count)), str(_both(kept)))

    def _from_small(self, x: Value, layout: LinearLayout, pair: tuple[int, int]) -> str:
        """The word of two integers that are not negative, of another type."""
        low, high = self.ranges.of(x)
        if low < 0 or high > _HALF:
            return ""
        origins = [self._origin(x, layout, register) for register in pair]
        if any(origin.offset or self.ranges.of(origin.base)[0] < 0 for origin in origins):
            return ""
        word, mask = self._halves(*(self._raw(origin, 0) for origin in origins))
        return self._word_op("and", word, str(mask))

    def _word_op(self, how: str, x: str, y: str) -> str:
        return self.code.assign(f"{how} i32 {x}, {y}")

    # -- small integers ---------------------------------------------------------------------------

    def _from_integers(
        self, name: str, x: Value, layout: LinearLayout, pair: tuple[int, int]
    ) -> str:
        form = _FORMATS[name]
        low, high = self.ranges.of(x)
        if low < -2 * form.power or high > 2 * form.power:
            return ""
        first, second = (self._origin(x, layout, register) for register in pair)
        offsets = [self._bring_above_zero(origin, form.power) for origin in (first, second)]
        if None not in offsets:
            return self._in_mantissa(form, name, (first, second), [o or 0 for o in offsets])
        return self._signed_bytes(form, name, (first, second))

    def _origin(self, value: Value, layout: LinearLayout, register: int) -> _Integer:
        """Follow an element to where it comes from, over moves and sums with constants."""
        offset = 0
        while self.puller.is_recipe(value, layout):
            match value:
                case ops.Join():
                    side = self.puller.side_of(value, layout, register)
                    if side is None:
                        break
                    value, layout = side
                case ops.Cast(x=x) if self.ranges.of(value) == self._integers(x):
                    value = x
                case ops.Add(x=x, y=y) | ops.Sub(x=x, y=y):
                    amount = constant_of(y)
                    sign = 1 if isinstance(value, ops.Add) else -1
                    if amount is None or not self._moves_by(x, value, sign * amount):
                        break
                    value, offset = x, offset + sign * amount
                case _:
                    inner = _moved(value, layout)
                    if inner is None:
                        break
                    value, layout = inner
        return _Integer(value, layout, register, offset)

    def _integers(self, x: Value) -> tuple[int, int] | None:
        element = dtype(x.type.element)
        return None if element.is_floating() or element.is_bool() else self.ranges.of(x)

    def _moves_by(self, x: Value, total: Value, amount: int) -> bool:
        """Whether a sum is what it would be of whole numbers."""
        low, high = self.ranges.of(x)
        return self.ranges.of(total) == (low + amount, high + amount)

    def _bring_above_zero(self, origin: _Integer, power: int) -> int | None:
        """What to take from the base so that it is from 0 to the power; None if nothing does."""
        low, high = self.ranges.of(origin.base)
        if low >= 0 and high < power:
            return 0
        return low if high - low < power else None

    def _in_mantissa(
        self, form: _Format, name: str, origins: tuple[_Integer, _Integer], bases: list[int]
    ) -> str:
        """The power plus the integers as floats, and the power taken off again: both are exact."""
        raw = (self._raw(o, -base) for o, base in zip(origins, bases, strict=True))
        known = self.puller.machine.keep_and_set(*self._halves(*raw), _both(form.bits))
        taken = [
            form.power - origin.offset - base for origin, base in zip(origins, bases, strict=True)
        ]
        if any(abs(amount) > 2 * form.power for amount in taken):
            return ""
        low, high = (_bits_of(name, -amount) for amount in taken)
        return self._multiply_add(name, known, _both(form.one), low | high << 16)

    def _signed_bytes(self, form: _Format, name: str, origins: tuple[_Integer, _Integer]) -> str:
        """The power plus the lower seven bits, less the power plus the value of the sign.

        Where the power is 128, the bit of the sign doubles it, and both numbers are exact.
        """
        are_bytes = all(origin.base.type.element is DTYPES["i8"] for origin in origins)
        if form.power != 128 or not are_bytes or any(origin.offset for origin in origins):
            return ""
        word, mask = self._halves(*(self._raw(origin, 0) for origin in origins))
        low, high = (
            self.puller.machine.keep_and_set(word, mask & _both(kept), _both(form.bits))
            for kept in (form.power - 1, form.power)
        )
        return self._multiply_add(name, high, _both(form.one | form.sign), low)

    def _raw(self, origin: _Integer, more: int) -> _Bits:
        """An integer and `more`, of which the upper bits count as 0: it is not negative."""
        base, layout, register, _ = origin
        if not more:
            return self._part(base, layout, register)
        kind = dtype(base.type.element)
        text = self.puller.pull(base, layout, register).text
        if kind.primitive_bitwidth < WORD_BITS and kind.is_int_signed():
            text = self.code.assign(f"sext {llvm_type(kind)} {text} to i32")
        else:
            text = self._extended(_Bits(text, kind.primitive_bitwidth, 0, -1))
        text = self.code.assign(f"add i32 {text}, {more}")
        return _Bits(text, WORD_BITS, 0, (1 << WORD_BITS) - 1)

    def _part(self, value: Value, layout: LinearLayout, register: int) -> _Bits:
        """Follow an element to the number of which it is some bits."""
        bits = dtype(value.type.element).primitive_bitwidth
        fits = not dtype(value.type.element).is_int_signed() and bits <= WORD_BITS
        if fits and self.puller.is_recipe(value, layout):
            match value:
                case ops.And(x=x, y=y) if (mask := constant_of(y)) is not None:
                    part = self._part(x, layout, register)
                    return part._replace(mask=part.mask & mask)
                case ops.ShiftRight(x=x, y=y) if (count := constant_of(y)) in range(bits):
                    part = self._part(x, layout, register)
                    assert count is not None
                    return part._replace(shift=part.shift + count, mask=part.mask >> count)
        text = self.puller.pull(value, layout, register).text
        return _Bits(text, bits, 0, (1 << min(bits, WORD_BITS)) - 1)

    def _halves(self, low: _Bits, high: _Bits) -> tuple[str, int]:
        """A word, and the mask of its bits that are two numbers of up to 16 bits.

        Of one number they are a shift or a multiplication away.
        """
        code = self.code
        mask = low.mask & _HALF | (high.mask & _HALF) << 16
        up = 16 - high.shift
        if low.text == high.text and high.shift == low.shift + 16:
            return self._shifted_down(low), mask
        if low.text == high.text and not low.shift and low.bits <= up and low.mask < 1 << up:
            return code.assign(f"mul i32 {self._extended(low)}, {1 | 1 << up}"), mask
        lower, upper = (
            code.assign(f"and i32 {self._shifted_down(part)}, {part.mask}") for part in (low, high)
        )
        upper = code.assign(f"shl i32 {upper}, 16")
        return code.assign(f"or i32 {lower}, {upper}"), mask

    def _shifted_down(self, part: _Bits) -> str:
        text = self._extended(part)
        return self.code.assign(f"lshr i32 {text}, {part.shift}") if part.shift else text

    def _extended(self, part: _Bits) -> str:
        """The number of which a part is some bits, as a word."""
        if part.bits == WORD_BITS:
            return part.text
        convert = "trunc" if part.bits > WORD_BITS else "zext"
        return self.code.assign(f"{convert} i{part.bits} {part.text} to i32")


def _moved(value: Value, layout: LinearLayout) -> tuple[Value, LinearLayout] | None:
    """Where the same registers' elements come from, of an op that only moves elements."""
    if not isinstance(value, Op):
        return None
    inner = operand_layout(value, layout)
    return None if inner is None else (value.operands[0], inner)


def _both(half: int) -> int:
    """A word of twice the same 16 bits."""
    return half | half << 16


def _bits_of(name: str, number: float) -> int:
    return int(narrow(np.asarray(float(number)), DTYPES[name]).view(np.uint16))


def _value_of(name: str, bits: int) -> float:
    halves = np.asarray(bits, np.uint16).view(DTYPES[name].numpy)
    return float(widen(halves, DTYPES[name]))
