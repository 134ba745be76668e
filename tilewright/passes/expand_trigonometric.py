"""sin and cos of fp32 and fp64, for arguments of any size.

The argument is divided by pi/2 with as many bits of 2/pi as it needs (Payne and Hanek, 1983): of
the product only the part below 4 matters, so bits of 2/pi that give multiples of 4 are left out,
and those far below the last place of the result too. Which bits that are depends on the exponent
of the argument alone; `Select`s choose them.

The remainder r, |r| <= pi/4, goes through near-minimax polynomials (made as those of
`expand_exponential`), and the lowest bits of the quotient choose between sine and cosine and the
sign. fp32 is reduced in fp64 (whose fma has exact products to spare), fp64 in integers of 192
bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tilewright.passes.exponent import nearest_whole, with_flipped_sign
from tilewright.passes.expression import Expression, choose, horner

__all__ = ["COS_FP64", "SIN_FP64", "expand_cos", "expand_sin", "reduce_fp64"]

# The binary digits of 2/pi after the point.
TWO_OVER_PI_BITS = 1216
TWO_OVER_PI = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424D"
    "D2E006492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639"
    "835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F46"
    "3F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BAB",
    16,
)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)

SIN_FP32 = (-0.16666655242443085, 0.008332188241183758, -0.00019518073531799018)
COS_FP32 = (0.04166664555668831, -0.0013887309469282627, 2.4432338250335306e-05)
SIN_FP64 = (
    -0.16666666666666666, 0.008333333333333044, -0.00019841269840965704, 2.7557319076021324e-06,
    -2.505207150504058e-08, 1.6054389110388706e-10, -7.393378613474792e-13,
)  # fmt: skip
COS_FP64 = (
    0.041666666666666595, -0.0013888888888873318, 2.4801587288975496e-05, -2.755731420659826e-07,
    2.0875703659943616e-09, -1.1358645145843908e-11,
)  # fmt: skip


def expand_sin(x: Expression) -> Expression:
    """Sine of x."""
    return _SINE[x.dtype.short_name](x, quarter_turns=0)


def expand_cos(x: Expression) -> Expression:
    """Cosine of x: the sine a quarter turn later."""
    return _SINE[x.dtype.short_name](x, quarter_turns=1)


def _two_over_pi(first: int, count: int) -> int:
    """Bits `first`, ..., `first + count - 1` of 2/pi; bit i has the weight 2^-i."""
    return TWO_OVER_PI >> (TWO_OVER_PI_BITS - first - count + 1) & (1 << count) - 1


# fp32. With x = M 2^e (24 bits) and the bits of 2/pi from weight 2^-(w + 1) on, dropping those
# above is right as soon as e >= w + 2. The first 29 bits give an exact product in fp64, and two
# times 53 bits more leave an error below 2^-80 quarter turns for e <= w + 30; no fp32 number is
# nearer to a multiple of pi/2 than 2^-31.
WINDOWS = (0, 26, 52, 78)


def _chunk(first: int, count: int) -> float:
    return _two_over_pi(first, count) * 2.0 ** (1 - first - count)


def _sine_fp32(x: Expression, quarter_turns: int) -> Expression:
    quarters, r = _reduce_fp32(abs(x).cast("fp64"))
    square = r * r
    sine = (square * r).fma(horner(square, SIN_FP32), r)
    cosine = square.fma(square.fma(horner(square, COS_FP32), -0.5), 1.0)
    quadrant = quarters + quarter_turns if quarter_turns else quarters
    sign = quadrant << 30
    if not quarter_turns:
        sign = sign ^ x.bitcast("i32")  # the sine is odd
    return with_flipped_sign(choose((quadrant & 1).differs(0), cosine, sine), sign)


def _reduce_fp32(x: Expression) -> tuple[Expression, Expression]:
    """Return quarter turns (i32, modulo 4) and the rest in radians (fp32) of an x >= 0 in fp64."""
    chunks = [x.constant(_chunk(first, count)) for first, count in ((1, 29), (30, 53), (83, 53))]
    for window in WINDOWS[1:]:
        is_beyond = x >= 2.0 ** (window + 28)
        layout = ((window + 1, 29), (window + 30, 53), (window + 83, 53))
        chunks = [
            choose(is_beyond, _chunk(*bits), chunk)
            for bits, chunk in zip(layout, chunks, strict=True)
        ]
    product = x * chunks[0]
    below_4 = (product * 0.25).rounded().fma(-4.0, product)
    n = nearest_whole(x.fma(chunks[1], below_4))
    rest = x.fma(chunks[2], x.fma(chunks[1], below_4 - n.value))
    return n.bits.cast("i32"), (rest * HALF_PI[0]).cast("fp32")


# fp64. 2/pi in words of 64 bits, after one of zeros: a small argument asks for bits before the
# point.
WORDS = (0, *(_two_over_pi(1 + 64 * i, 64) for i in range(TWO_OVER_PI_BITS // 64)))
SMALLEST_REDUCED = 0.7853981633974483  # pi/4: below, the argument is its own remainder


def _sine_fp64(x: Expression, quarter_turns: int) -> Expression:
    quarters, high, low = reduce_fp64(abs(x))
    square = high * high
    sine = high + (square * high).fma(horner(square, SIN_FP64), low.fma(square * -0.5, low))
    half = square * 0.5
    near_one = 1.0 - half
    rest = (square * square).fma(horner(square, COS_FP64), -(high * low))
    cosine = near_one + (((1.0 - near_one) - half) + rest)
    quadrant = quarters + quarter_turns if quarter_turns else quarters
    sign = quadrant << 62
    if not quarter_turns:
        sign = sign ^ x.bitcast("i64")
    return with_flipped_sign(choose((quadrant & 1).differs(0), cosine, sine), sign)


def reduce_fp64(x: Expression) -> tuple[Expression, Expression, Expression]:
    """Return quarter turns (i64, modulo 4) and the rest in radians, in two parts, of an x >= 0."""
    fraction = _fraction_of_turn(x.bitcast("u64"))
    quarters = ((fraction.high >> 61) + 1) >> 1
    # The rest is a signed fixed-point number, 2^-62 quarter turns in the first word. A multiple of
    # 2^11 of these is exact in fp64, and 0 where the rest is so small that it loses bits there.
    first = (fraction.high - (quarters << 62)).bitcast("i64")
    multiple = (first + 0x400) & ~0x7FF
    below = ((first - multiple) << 52) | (fraction.low >> 12).bitcast("i64")
    upper, lower = multiple.cast("fp64") * 2.0**-62, below.cast("fp64") * 2.0**-114
    rest = upper + lower
    error = lower - (rest - upper)
    high = rest * HALF_PI[0]
    low = rest.fma(HALF_PI[0], -high) + rest.fma(HALF_PI[1], error * HALF_PI[0])
    total = high + low
    is_small = x < SMALLEST_REDUCED
    rest = choose(is_small, 0.0, low - (total - high))
    # An infinity or NaN makes the remainder NaN.
    return (
        choose(is_small, quarters.constant(0), quarters).bitcast("i64"),
        choose(is_small, x, total) + (x - x),
        rest,
    )


@dataclass(frozen=True)
class _Fixed128:
    """A number modulo 4 in 128 bits, 126 of them after the point."""

    high: Expression
    low: Expression


def _fraction_of_turn(bits: Expression) -> _Fixed128:
    """Return x * 2/pi modulo 4, given the bits (u64) of x = M 2^e.

    It is M times 192 bits of 2/pi, from the weight 2^(1 - e) on.
    """
    mantissa = (bits & (1 << 52) - 1) | 1 << 52
    start = (bits >> 52) - (1075 - 62)  # e + 62, where WORDS has the first bit needed
    word, shift = start >> 6, start & 63
    words = _choose_words(word)
    behind = 64 - shift
    a, b, c = ((left << shift) | (right >> behind) for left, right in pairwise(words))
    middle = mantissa * b
    low = middle + mantissa.upper_product(c)
    carry = (low < middle).cast("u64")
    return _Fixed128(mantissa * a + mantissa.upper_product(b) + carry, low)


def _choose_words(index: Expression) -> list[Expression]:
    """Return WORDS[index], ..., WORDS[index + 3]: each bit of the index halves the candidates."""
    words = [index.constant(word) for word in WORDS]
    for bit in (16, 8, 4, 2, 1):
        is_set = (index & bit).differs(0)
        needed = range(min(len(words), bit + 3))
        words = [
            choose(is_set, words[i + bit], words[i]) if i + bit < len(words) else words[i]
            for i in needed
        ]
    return words


_SINE = {"fp32": _sine_fp32, "fp64": _sine_fp64}
