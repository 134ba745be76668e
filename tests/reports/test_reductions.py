"""Public reports about reductions, scans and sorting (triton-lang/triton, by number)."""

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit

INF, NAN = np.inf, np.nan


@jit
def compact(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    keep = x >= 0
    tl.store(out_ptr + tl.cumsum(keep, 0) - 1, x, mask=keep)


@pytest.mark.parametrize("values", [[5, 1, 7, 12], [5, -1, 7, -2], [-1, -1, -1, 3], [-1] * 4])
def test_5897_a_running_sum_of_bools_counts(launch, values):
    out = np.full(4, -1, np.int32)
    launch(compact, (1,), np.int32(values), out, N=4)
    kept = [v for v in values if v >= 0]
    assert out.tolist() == kept + [-1] * (4 - len(kept))


@jit
def compose(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@jit
def recurrence(a_ptr, b_ptr, out_ptr, N: tl.constexpr, BACKWARD: tl.constexpr):
    offsets = tl.arange(0, N)
    pair = tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)
    _, result = tl.associative_scan(pair, 0, compose, reverse=BACKWARD)
    tl.store(out_ptr + offsets, result)


@pytest.mark.parametrize("size", [1, 2, 64, 100, 1024])
@pytest.mark.parametrize("backward", [False, True])
def test_2359_a_scan_keeps_the_order_of_its_operands(launch, size, backward):
    a, b = np.random.default_rng(size).uniform(-1, 1, (2, size)).astype(np.float32)
    out = np.zeros(size, np.float32)
    launch(recurrence, (1,), a, b, out, N=size, BACKWARD=backward)
    steps = slice(None, None, -1 if backward else 1)
    expected, state = [], 0.0
    for x, y in zip(a[steps].tolist(), b[steps].tolist(), strict=True):
        state = x * state + y
        expected.append(state)
    np.testing.assert_allclose(out[steps], expected, rtol=0, atol=1e-5)


@jit
def half_and_add(x, y):
    return 0.5 * x + y


@jit
def discounted(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), tl.associative_scan(x, 0, half_and_add))


def test_3485_a_scan_is_sequential_so_any_function_is_defined(launch):
    out = np.zeros(4, np.float32)
    launch(discounted, (1,), np.float32([1, 2, 3, 4]), out, N=4)
    assert out.tolist() == [1, 2.5, 4.25, 6.125]


@jit
def latter(x, y):
    return tl.where(y == 0, x, y)


@jit
def last_nonzero(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.reduce(x, 0, latter))


@pytest.mark.parametrize("size", [3, 8, 37, 256])
def test_2359_a_reduction_keeps_the_order_of_its_operands(launch, size):
    x = np.random.default_rng(size).permutation(np.arange(size, dtype=np.int32))
    x[-1] = 0
    out = np.zeros(1, np.int32)
    launch(last_nonzero, (1,), x, out, N=size)
    assert out[0] == x[np.flatnonzero(x)[-1]]


@jit
def larger_or_nan(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@jit
def extremes(x_ptr, out_ptr, N: tl.constexpr, LEFT: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    largest, where_largest = tl.max(x, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(out_ptr, tl.max(x, 0))
    tl.store(out_ptr + 1, tl.min(x, 0))
    tl.store(out_ptr + 2, tl.argmax(x, 0, tie_break_left=LEFT))
    tl.store(out_ptr + 3, tl.argmin(x, 0, tie_break_left=LEFT))
    tl.store(out_ptr + 4, largest)
    tl.store(out_ptr + 5, where_largest)
    tl.store(out_ptr + 6, tl.reduce(x, 0, larger_or_nan))


EXTREMES = [
    # values, largest, smallest, place of the largest, place of the smallest: left and right
    ([INF, NAN], INF, INF, (0, 0), (0, 0)),
    ([NAN, INF], INF, INF, (1, 1), (1, 1)),
    ([NAN, 6, 8], 8, 6, (2, 2), (1, 1)),
    ([NAN, -INF, NAN, -INF], -INF, -INF, (1, 3), (1, 3)),
    ([NAN, NAN], NAN, NAN, (0, 1), (0, 1)),
    ([2, 5, 5, 2], 5, 2, (1, 2), (0, 3)),
]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(("values", "largest", "smallest", "top", "bottom"), EXTREMES)
def test_9022_10291_10697_extremes_ignore_nan(launch, values, largest, smallest, top, bottom, left):
    out = np.zeros(7, np.float32)
    launch(extremes, (1,), np.float32(values), out, N=len(values), LEFT=left)
    place = 0 if left else 1
    expected = [largest, smallest, top[place], bottom[place], largest, top[place]]
    expected.append(NAN if np.isnan(values).any() else largest)
    np.testing.assert_array_equal(out, np.float32(expected))


@jit
def sorted_copy(x_ptr, out_ptr, N: tl.constexpr, DESCENDING: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), tl.sort(x, descending=DESCENDING))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("values", [[INF, 3.14, NAN, -1], [NAN] * 4, [NAN, 1, NAN, -INF, 0, 2, 2]])
def test_5999_sorting_keeps_every_element_and_nan_is_largest(launch, values, descending):
    x = np.float32(values)
    out = np.zeros_like(x)
    launch(sorted_copy, (1,), x, out, N=x.size, DESCENDING=descending)
    np.testing.assert_array_equal(out, np.sort(x)[:: -1 if descending else 1])


@jit
def total_of_rows(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr, tl.sum(x))
    tl.store(out_ptr + 1 + tl.arange(0, M), tl.sum(x, 1))


@pytest.mark.parametrize("shape", [(257, 257), (33, 64), (5, 3)])
def test_8898_tiles_of_any_size(launch, shape):
    if launch.is_gpu and shape == (257, 257):
        pytest.skip("a tile of 2048 registers a thread")
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    out = np.zeros(1 + shape[0], np.float32)
    launch(total_of_rows, (1,), x, out, M=shape[0], N=shape[1])
    assert out.tolist() == [x.sum(), *x.sum(1)]


@jit
def histogram_beside_others(x_ptr, out_ptr, N: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    counts = tl.histogram(x, BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)
    tl.store(out_ptr + BINS, tl.argmin(counts, 0))


def test_6987_histogram_beside_argmin(launch):
    x = np.random.default_rng(0).integers(0, 16, 512).astype(np.int32)
    out = np.zeros(17, np.int32)
    launch(histogram_beside_others, (1,), x, out, N=512, BINS=16)
    counts = np.bincount(x, minlength=16)
    assert out.tolist() == [*counts, counts.argmin()]
