"""Random numbers: Philox 4x32-10 and 4x64-10, counter-based, so the same on every target.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC
2011). The streams are those of Triton, bit for bit.
"""

# The parameters of functions in the language have the types of their arguments, and a
# `constexpr` parameter takes plain values.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="assignment, redundant-expr, arg-type"

from __future__ import annotations

from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import device_function
from tilewright.frontend.iterators import static_range
from tilewright.language.creation import full, to_tensor
from tilewright.language.debug import static_assert
from tilewright.language.dtypes import int32, int64, uint32, uint64
from tilewright.language.elementwise import maximum, where
from tilewright.language.math import cos, log, sin, sqrt, umulhi

__all__ = [
    "N_ROUNDS_DEFAULT", "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x",
    "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float",
]  # fmt: skip

N_ROUNDS_DEFAULT = constexpr(10)

KEY_A_32, KEY_B_32 = constexpr(0x9E3779B9), constexpr(0xBB67AE85)
ROUND_A_32, ROUND_B_32 = constexpr(0xD2511F53), constexpr(0xCD9E8D57)
KEY_A_64, KEY_B_64 = constexpr(0x9E3779B97F4A7C15), constexpr(0xBB67AE8584CAA73B)
ROUND_A_64, ROUND_B_64 = constexpr(0xD2E7470EE14C6C93), constexpr(0xCA5A826395121157)

# The largest factors that keep the product with the largest integer below 1 in fp32.
SCALE_32, SCALE_64 = constexpr(4.6566127342e-10), constexpr(1.0842020432385337e-19)


@device_function
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Run `n_rounds` rounds of Philox on the counter (c0, c1, c2, c3) with the key (k0, k1)."""
    static_assert(c0.dtype in (uint32, uint64), "philox: counters are uint32 or uint64")
    narrow: constexpr = c0.dtype == uint32
    key_a: constexpr = KEY_A_32 if narrow else KEY_A_64
    key_b: constexpr = KEY_B_32 if narrow else KEY_B_64
    round_a: constexpr = ROUND_A_32 if narrow else ROUND_A_64
    round_b: constexpr = ROUND_B_32 if narrow else ROUND_B_64
    for _ in static_range(n_rounds):
        old_c0 = c0
        old_c2 = c2
        c0 = umulhi(old_c2, round_b) ^ c1 ^ k0
        c2 = umulhi(old_c0, round_a) ^ c3 ^ k1
        c1 = old_c2 * round_b
        c3 = old_c0 * round_a
        k0 = k0 + key_a
        k1 = k1 + key_b
    return c0, c1, c2, c3


@device_function
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return four blocks of random bits for a `seed` and a counter of 32- or 64-bit integers."""
    seed = to_tensor(seed)
    c0 = to_tensor(c0)
    c1 = to_tensor(c1)
    c2 = to_tensor(c2)
    c3 = to_tensor(c3)
    static_assert(seed.dtype.is_int(), "philox: the seed must be an integer")
    seed = seed.to(uint64)
    narrow: constexpr = c0.dtype.primitive_bitwidth == 32
    static_assert(
        narrow or c0.dtype.primitive_bitwidth == 64, "philox: counters have 32 or 64 bits"
    )
    word: constexpr = uint32 if narrow else uint64
    if narrow:
        low = seed.to(uint32)
        high = (seed >> 32).to(uint32)
    else:
        low = seed
        high = full((), 0, uint64)
    return philox_impl(
        c0.to(word, bitcast=True),
        c1.to(word, bitcast=True),
        c2.to(word, bitcast=True),
        c3.to(word, bitcast=True),
        low,
        high,
        n_rounds,
    )


@device_function
def randint4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return four blocks of random uint32, from a scalar `seed` and a block of integer offsets.

    The cheapest way to random numbers: one Philox call makes all four.
    """
    offset = to_tensor(offset)
    low = offset.to(uint32)
    zero = low * 0
    high = (offset >> 32).to(uint32) if offset.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


@device_function
def randint(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return a block of random uint32, from a scalar `seed` and a block of integer offsets.

    Equal seeds and offsets give equal numbers, in every program and on every target.

    >>> tl.randint(0, tl.arange(0, 2))
    tensor([1713891541, 4175744164], u32[2])
    """
    result, _, _, _ = randint4x(seed, offset, n_rounds)
    return result


@device_function
def uint_to_uniform_float(x):
    """Turn random integers of 32 or 64 bits into fp32 numbers uniform in [0, 1)."""
    narrow: constexpr = x.dtype.primitive_bitwidth == 32
    static_assert(narrow or x.dtype.primitive_bitwidth == 64, "expected integers of 32 or 64 bits")
    signed = x.to(int32 if narrow else int64, bitcast=True)
    folded = where(signed < 0, ~signed, signed)
    return folded * (SCALE_32 if narrow else SCALE_64)


@device_function
def rand(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return a block of fp32 numbers uniform in [0, 1), from a `seed` and a block of offsets.

    >>> tl.rand(0, tl.arange(0, 2))
    tensor([0.7980929 , 0.05551759], fp32[2])
    """
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@device_function
def rand4x(seed, offsets, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return four blocks of fp32 numbers uniform in [0, 1); the arguments are those of `rand`."""
    i1, i2, i3, i4 = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(i1),
        uint_to_uniform_float(i2),
        uint_to_uniform_float(i3),
        uint_to_uniform_float(i4),
    )


@device_function
def pair_uniform_to_normal(u1, u2):
    """Turn two uniform numbers into two of the standard normal distribution (Box-Muller)."""
    radius = sqrt(-2.0 * log(maximum(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * cos(angle), radius * sin(angle)


@device_function
def randn(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return a block of fp32 numbers of the standard normal distribution, as `rand` does.

    >>> tl.randn(0, tl.arange(0, 2)).shape
    (2,)
    """
    i1, i2, _, _ = randint4x(seed, offset, n_rounds)
    result, _ = pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))
    return result


@device_function
def randn4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Return four blocks of fp32 numbers of the standard normal distribution, as `rand4x` does."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(u1, u2)
    n3, n4 = pair_uniform_to_normal(u3, u4)
    return n1, n2, n3, n4
