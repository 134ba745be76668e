"""Python that Triton's compiler refuses or takes for something else, in every executor."""

# The kernels show every construct, good style or not.
# ruff: noqa: B905

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit


@jit
def keyword_only(out_ptr, n, *, m, TIMES: tl.constexpr = 3):
    tl.static_assert(TIMES == 3)
    tl.store(out_ptr, n * 10 + m * TIMES)


def test_keyword_only_parameters(launch):
    out = np.zeros(1, np.float32)
    launch(keyword_only, (1,), out, 3, m=5)
    assert out[0] == 45


@jit
def weighted(first, *others, weight: tl.constexpr = 2):
    total = first
    for place, value in enumerate(others, 1):
        total += value * place * weight
    return total


@jit
def any_number(out_ptr, *values, OFFSET: tl.constexpr = 1):
    tl.store(out_ptr, weighted(*values, weight=3) + OFFSET)
    tl.store(out_ptr + 1, len(values))
    tl.store(out_ptr + 2, weighted(values[0], *values[1:]))


@pytest.mark.parametrize("values", [(4.5,), (4.5, 2), (1, 2, 3.5, 8)])
def test_any_number_of_arguments(launch, values):
    out = np.zeros(3, np.float32)
    launch(any_number, (1,), out, *values)
    weighted_sum = sum(place * value for place, value in enumerate(values))
    expected = [values[0] + 3 * weighted_sum + 1, len(values), values[0] + 2 * weighted_sum]
    assert out.tolist() == expected


@jit
def over_tuples(out_ptr, n):
    total = 0
    for place, (a, b) in enumerate(zip((1, 2), (n, 5)), 1):
        total += place * a * b
    tl.store(out_ptr, total)
    digits = 0
    for digit in reversed((n, 2, 3)):
        digits = digits * 10 + digit
    tl.store(out_ptr + 1, digits)
    chosen = [i * n for i in (1, 2, 3, 4, 5) if i % 2 == 0 if i > 2]
    pairs = tuple(i + j for i in (10, 20) for j in (n, i) if i > 10)
    tl.store(out_ptr + 2, chosen[0] + 100 * len(chosen))
    tl.store(out_ptr + 3, pairs[0] + pairs[1] + 100 * len(pairs))


def test_loops_and_comprehensions_over_tuples(launch):
    out = np.zeros(4, np.float32)
    launch(over_tuples, (1,), out, 4)
    assert out.tolist() == [24, 324, 116, 264]


@jit
def operators(out_ptr, n, x):
    a = b = c = n + 1
    tl.store(out_ptr, a + b + c)
    p, (q, r) = whole = (n, (2, 3))
    tl.store(out_ptr + 1, p * q * r + len(whole))
    tl.store(out_ptr + 2, +x + (+n))
    tl.store(out_ptr + 3, 0 < n < 5 <= n + 3)
    tl.store(out_ptr + 4, 4 > n > 1)
    tl.store(out_ptr + 5, n**3 + 2**n - (-n) ** n)
    tl.store(out_ptr + 6, x**2 + x**-1 + n**0.5)
    tl.store(out_ptr + 7, n % 3**2)


def test_operators(launch):
    out = np.zeros(8, np.float32)
    launch(operators, (1,), out, 4, 0.5)
    assert out.tolist() == [15, 26, 4.5, 1, 0, 64 + 16 - 256, 0.25 + 2 + 2, 4]


@jit
def formats(out_ptr, N: tl.constexpr):
    text = f"{N:04d}|{N!r:>4}|{1.5:.2f}|{N:{N}}|{N + 1}"
    tl.static_assert(text == "0005|   5|1.50|    5|6", text)
    tl.store(out_ptr, len(text))


def test_formats_of_f_strings(launch):
    out = np.zeros(1, np.int32)
    launch(formats, (1,), out, N=5)
    assert out[0] == 22


@jit
def starred(out_ptr, n):
    first, *middle, last = (n, 2, 3, 4)
    *start, (x, y) = (5, (6, 7))
    everything = middle + start
    tl.store(out_ptr, first * 1000 + everything[1] * 100 + last * 10 + len(everything))
    tl.store(out_ptr + 1, x * y)


def test_starred_targets(launch):
    out = np.zeros(2, np.int32)
    launch(starred, (1,), out, 9)
    assert out.tolist() == [9343, 42]


FAR = tl.constexpr(2**33)


@jit
def convert(out_ptr, n, SCALE: tl.constexpr):
    tl.static_assert(n.dtype == tl.int32)
    tl.static_assert(SCALE.shape == ())
    tl.store(out_ptr, n.to(tl.int64) * SCALE.to(tl.int64))
    widened = lambda x: x.to(tl.int64)  # noqa: E731
    tl.store(out_ptr + 1, widened(n) + SCALE.bit_length())
    tl.store(out_ptr + 2, FAR.to(tl.int64) + n)


@pytest.mark.parametrize("n", [1, 2])
def test_numbers_have_the_attributes_of_scalars(launch, n):
    out = np.zeros(3, np.int64)
    launch(convert, (1,), out, n, SCALE=2**40)
    assert out.tolist() == [n * 2**40, n + 41, 2**33 + n]


@jit
def ask_for_none(out_ptr, x_ptr, y_ptr):
    if x_ptr == None:  # noqa: E711
        tl.store(out_ptr, 1)
    if y_ptr != None:  # noqa: E711
        tl.store(out_ptr + 1, tl.load(y_ptr))


def test_none_is_compared_at_compile_time(launch):
    out = np.zeros(2, np.int32)
    launch(ask_for_none, (1,), out, None, np.int32([5]))
    assert out.tolist() == [1, 5]
