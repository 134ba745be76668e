"""How weights of four bits lie in memory, and how kernels read them.

Each 32 neighbours of a row are four words of 32 bits. The thread of a tensor core that reads word t
needs the pairs of numbers 2t, 2t + 1 of each eight: number 8 j + 2 t + h is in the four bits from
4 j + 16 h on. So the two numbers of a pair are in the same place of both halves of a word, and
become two numbers of 16 bits together.
"""

# The constants of kernels are plain values.
# mypy: disable-error-code="arg-type"

import itertools
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import dtype_name, permuted
from tilewright.kernels.checks import array

__all__ = ["BORDERS", "NF4", "numbers_of_words", "pack_weight", "packed_codes", "whole_number"]

# Quantiles of the normal distribution between -1 and 1, with 0 among them: Dettmers et al., 2023.
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
BORDERS = tl.constexpr(tuple((a + b) / 2 for a, b in itertools.pairwise(NF4)))


def pack_weight(codes: Any) -> Any:
    """Return codes of four bits as `quantize_weight` packs them, for weights from elsewhere.

    Args:
        codes: (N, K) of uint8, all below 16; 32 divides K.

    Returns:
        (N, K / 2) of uint8.

    >>> import numpy as np
    >>> natural = np.full((1, 16), 0x21, np.uint8)  # the first of two numbers in the low half
    >>> pack_weight(np.stack([natural & 15, natural >> 4], -1).reshape(1, 32))[0, :4]
    array([17, 17, 34, 34], dtype=uint8)
    """
    array(codes=codes)
    if codes.ndim != 2 or codes.shape[1] % 32 or dtype_name(codes) != "uint8":
        raise ValueError(
            f"`codes` are {tuple(codes.shape)} of {codes.dtype}; (N, K) of uint8 with a K that 32 "
            "divides is needed"
        )
    rows, columns = codes.shape
    parts = codes.reshape((rows, columns // 32, 2, 2, 4, 2))
    pairs = permuted(parts, (0, 1, 4, 5, 2, 3)).reshape((rows, columns // 2, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


@tw.jit
def packed_codes(codes):
    """Return the bytes of a vector of codes."""
    parts = tl.reshape(codes, (codes.shape[0] // 32, 2, 2, 4, 2))
    pairs = tl.reshape(tl.permute(parts, (0, 3, 4, 1, 2)), (codes.shape[0] // 2, 2))
    low, high = tl.split(pairs)
    return (low | (high << 4)).to(tl.uint8)


@tw.jit
def codes_of_words(words):
    """Return the codes of the words along the last axis of a matrix, in the order of its rows."""
    a = tl.join(words & 15, (words >> 16) & 15)
    b = tl.join((words >> 4) & 15, (words >> 20) & 15)
    c = tl.join((words >> 8) & 15, (words >> 24) & 15)
    d = tl.join((words >> 12) & 15, (words >> 28) & 15)
    x = tl.join(tl.join(a, b), tl.join(c, d))  # h, then the low bit of j, then its high bit
    rows: tl.constexpr = words.shape[0]
    count: tl.constexpr = words.shape[1]
    x = tl.reshape(x, (rows, count // 4, 4, 2, 2, 2))
    return tl.reshape(tl.permute(x, (0, 1, 5, 4, 2, 3)), (rows, 8 * count)).to(tl.uint8)


def _look_up(dtype: str) -> str:
    """Return PTX for four pairs of 16-bit numbers of NF4 from the codes in a word.

    `prmt` chooses bytes: for each four codes among the first and among the last eight numbers, low
    and high bytes apart, and then by the highest bit of the codes between the two.
    """
    element = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    bits = np.array(NF4, np.float32).astype(element).view(np.uint16)
    tables = [x.astype(np.uint8).view(np.uint32) for x in (bits & 255, bits >> 8)]
    text = [
        "{ .reg .b32 codes, high, chosen, last, a, b, c, d, first, second;",
        "and.b32 codes, $4, 0x77777777; shr.u32 high, $4, 1;",
    ]
    for half, (one, two) in enumerate((("first", "second"), ("$0", "$2"))):
        if half:
            text.append("shr.u32 codes, codes, 16; shr.u32 high, high, 16;")
        text.append("lop3.b32 chosen, high, 0x4444, 0x3210, 0xEA;")
        for names, table in zip(("ab", "cd"), tables, strict=True):
            for number, name in enumerate(names):
                text.append(f"mov.b32 {name}, {table[2 * number]}; mov.b32 last,")
                text.append(f"{table[2 * number + 1]}; prmt.b32 {name}, {name}, last, codes;")
        text.append("prmt.b32 a, a, b, chosen; prmt.b32 c, c, d, chosen;")
        text.append(f"prmt.b32 {one}, a, c, 0x5140; prmt.b32 {two}, a, c, 0x7362;")
    text.append("prmt.b32 $1, first, $0, 0x7632; prmt.b32 $0, first, $0, 0x5410;")
    text.append("prmt.b32 $3, second, $2, 0x7632; prmt.b32 $2, second, $2, 0x5410; }")
    return "\n".join(text)


LOOK_UP_BF16 = tl.constexpr(_look_up("bfloat16"))
LOOK_UP_FP16 = tl.constexpr(_look_up("float16"))


@tw.jit
def looked_up(words, DTYPE: tl.constexpr):
    """Return the numbers of NF4 whose codes are in the words, in 16 bits each."""
    LOOK_UP: tl.constexpr = LOOK_UP_FP16 if tl.float16 == DTYPE else LOOK_UP_BF16
    a, b, c, d = tl.inline_asm_elementwise(
        LOOK_UP,
        "=&r,=&r,=&r,=&r,r",
        [words],
        (tl.uint32, tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    pairs = tl.join(tl.join(a, b), tl.join(c, d))
    halves = tl.join(pairs & 0xFFFF, pairs >> 16).to(tl.uint16).to(DTYPE, bitcast=True)
    rows: tl.constexpr = words.shape[0]
    count: tl.constexpr = words.shape[1]
    x = tl.reshape(halves, (rows, count // 4, 4, 2, 2, 2))
    return tl.reshape(tl.permute(x, (0, 1, 4, 3, 2, 5)), (rows, 8 * count))


@tw.jit
def less_zero_points(codes, zero, DTYPE: tl.constexpr):
    """Return codes less the zero points of their rows, exactly if these are at most 128.

    A power of two of 16 bits whose last bit stands for one takes a code into its mantissa: what it
    is more than the code is taken away with the zero point.
    """
    if tl.bfloat16 == DTYPE:
        number = (codes.to(tl.uint16) | 0x4300).to(tl.bfloat16, bitcast=True)
        return number - (zero.to(tl.bfloat16) + 128.0).to(tl.bfloat16)[:, None]
    if tl.float16 == DTYPE:
        number = (codes.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True)
        return number - (zero.to(tl.float16) + 1024.0).to(tl.float16)[:, None]
    return codes.to(tl.int8).to(DTYPE) - zero.to(DTYPE)[:, None]


@tw.jit
def numbers_of_words(words, codes_ptr, zero, KIND: tl.constexpr, DTYPE: tl.constexpr):
    """Return what the codes in a matrix of words stand for, without scales.

    `zero`: a vector of the zero points of rows, or `None`. `KIND`: "int4"; "nf4", whose numbers are
    at `codes_ptr`; or "nf4 by prmt", for 16 bits on GPUs.
    """
    words = words.to(tl.uint32, bitcast=True)
    if KIND == "int4":
        if zero is None:
            return (codes_of_words(words).to(tl.int8) - 8).to(DTYPE)
        return less_zero_points(codes_of_words(words), zero, DTYPE)
    elif KIND == "nf4":  # noqa: RET505 - only one is compiled
        return tl.load(codes_ptr + codes_of_words(words).to(tl.int32)).to(DTYPE)
    else:
        return looked_up(words, DTYPE)


@tw.jit
def whole_number(words, BIT: tl.constexpr):
    """Return the codes - 8 in the four bits of words from `BIT` on, in fp32.

    In the mantissa of a power of two whose last bit stands for one, a code is that power and the
    code, wherever the four bits are in it: a shift is needed for the upper bits only.
    """
    SHIFT: tl.constexpr = tl.constexpr(12 if BIT > 16 else 0)
    PLACE: tl.constexpr = BIT - SHIFT
    mantissa = (words >> SHIFT) & (15 << PLACE)
    power: tl.constexpr = 1 << (23 - PLACE)
    x = (mantissa | ((150 - PLACE) << 23)).to(tl.float32, bitcast=True)
    return x - (power + 8.0)
