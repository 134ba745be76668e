"""Quotients by shared divisors: what is computed, and why it is rounded correctly."""

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import numbers, ptx_of

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 3.4e38, 1.2e-38, 1e-40, 1.4e-45]


@tw.jit
def shared_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    y = tl.load(y_ptr + tl.program_id(0))
    tl.store(out_ptr + at, tl.load(x_ptr + tl.arange(0, N)) / y)


def assert_same_numbers(got, want):
    known = ~np.isnan(want)
    assert np.isnan(got[~known]).all()
    np.testing.assert_array_equal(got[known].view(np.int32), want[known].view(np.int32))


@pytest.mark.parametrize("kind", ["ordinary", "bits", "scaled"])
def test_quotients_by_one_divisor_are_rounded_correctly(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1024).astype(np.float32)
    if kind == "bits":
        x = rng.integers(0, 2**32, x.size, dtype=np.uint32).view(np.float32)
    if kind == "scaled":
        x *= np.float32(10.0 ** rng.integers(-30, 30))
        x[::7], x[3::7] = 0.0, -0.0
    x[: len(SPECIAL)] = SPECIAL if kind != "ordinary" else 1.0
    y = np.float32([*SPECIAL, 0.7, 1e38, -1e-38, 2.0**24, 2.0**-24, 3, 7, 6, 1e6, -5])
    values = [x, y, np.zeros(y.size * x.size, np.float32)]
    with np.errstate(all="ignore"):
        want = (x[None] / y[:, None]).reshape(-1)
    *_, (_, got) = harness.run_both(shared_kernel, (y.size,), values, N=x.size)
    assert_same_numbers(got, want)


@tw.jit
def kernel_of_rows(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    y = tl.load(y_ptr + tl.arange(0, M))
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at) / y[:, None], mask=at % 5 != 0)


def test_each_divisor_is_inverted_once():
    x, y = numbers(16 * 64), np.abs(numbers(16)) + 1
    values = [x, y, np.zeros(16 * 64, np.float32)]
    ptx = ptx_of(kernel_of_rows, values, M=16, N=64)
    assert ptx.count("rcp.rn.f32") == 2
    assert ptx.count("div.rn.f32") == 8
    for want, got in harness.run_both(kernel_of_rows, (1,), values, M=16, N=64):
        assert_same_numbers(got, want)


@pytest.mark.parametrize(
    ("x", "y", "is_ordinary"),
    [
        (1.0, 3.0, True),
        (2.0**-100, 2.0**24, True),
        (-(2.0**97), 2.0**-24, True),
        (2.0**-101, 3.0, False),
        (2.0**101, 3.0, False),
        (1.0, 2.0**25, False),
        (1.0, 2.0**-25, False),
        (1.0, -3.0, False),
    ],
)
def test_ordinary_numbers_are_divided_by_reciprocals(x, y, is_ordinary):
    x = np.full(512, x, np.float32)
    x[::4] = 0.0
    values = [x, np.float32([y]), np.zeros_like(x)]
    kernel = harness.kernel_of(shared_kernel, values, N=x.size)
    differs = replace(kernel, ptx=kernel.ptx.replace("div.rn.f32", "mul.rn.f32"))
    harness.emulate(differs, (1, 1, 1), values)
    assert np.array_equal(values[2], x / values[1]) == is_ordinary


def test_quotients_by_divisors_of_their_own_are_not_branched_around():
    @tw.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, N))
        tl.store(out_ptr + tl.arange(0, N), x / (x + 1))

    ptx = ptx_of(kernel, [numbers(512), np.zeros(512, np.float32)], N=512)
    assert ptx.count("div.rn.f32") == 4
    assert "bra" not in ptx


def fused(x, y, z):
    """x * y + z in fp32, rounded once: exact as a number of fp64 and the error of its sum."""
    product, z = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = product + z
    back = total - z
    error = (product - back) + (z - (total - back))
    rounded = total.astype(np.float32)
    above, below = (np.nextafter(rounded, np.float32(side)) for side in (np.inf, -np.inf))
    middle_above = 2 * (total - rounded) == above.astype(np.float64) - rounded
    middle_below = 2 * (total - rounded) == below.astype(np.float64) - rounded
    rounded = np.where(middle_above & (error > 0), above, rounded)
    return np.where(middle_below & (error < 0), below, rounded)


def hard_pairs(y, k):
    """All x of 24 bits for which x / y is k / (2 y) ULP away from where rounding changes.

    There x * 2^24 (x >= y) or x * 2^25 is k plus an odd multiple of y.
    """
    for shift in (24, 25):
        for halvings in range((k & -k).bit_length()):
            mine = y[y & -y == 2**halvings]
            odd = mine >> halvings
            x = np.full(odd.shape, k >> halvings) % odd
            for _ in range(shift - halvings):
                x = np.where(x % 2 == 0, x // 2, (x + odd) // 2)
            for turn in range(2 << halvings):
                found = x + turn * odd
                fits = (found >= 2**23) & (found < 2**24) & ((found >= mine) == (shift == 24))
                fits &= (found * 2**shift - k) // mine % 2 == 1
                yield found[fits], mine[fits]


def pairs_that_are_wrong(ys):
    count = wrong = 0
    for k in (1, -1, 2, -2, 3, -3, 4, -4):
        for pair in hard_pairs(ys, k):
            x, y = (side.astype(np.float32) for side in pair)
            inverse = np.float32(1) / y
            quotient = x * inverse
            quotient = fused(-fused(quotient, y, -x), inverse, quotient)
            count += x.size
            wrong += np.count_nonzero(quotient != x / y)
    return count, wrong


def test_pairs_that_are_hard_to_round():
    assert pairs_that_are_wrong(np.arange(2**23, 2**24, 61)) == (381_421, 0)


@pytest.mark.slow
def test_all_pairs_that_are_hard_to_round():
    parts = (np.arange(start, start + 2**20) for start in range(2**23, 2**24, 2**20))
    count, wrong = np.sum([pairs_that_are_wrong(part) for part in parts], axis=0)
    assert count > 20_000_000
    assert wrong == 0
