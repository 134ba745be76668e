"""What this language allows and Triton does not, in every executor."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def jumps(x_ptr, out_ptr, n):
    """`break`, `continue`, `while True`, several targets, and names that live on after loops."""
    total = count = 0
    i = -1  # the loop may run no iteration
    for i in range(n):
        x = tl.load(x_ptr + i)
        if x < 0:
            continue
        if x > 100:
            break
        total += x
    while True:
        count += 1
        if count * count > total:
            break
    tl.store(out_ptr, total)
    tl.store(out_ptr + 1, i)
    tl.store(out_ptr + 2, count)
    for step in range(2):
        last = step
    tl.store(out_ptr + 3, last)


@tw.jit
def first_above(x_ptr, n, limit):
    for i in range(n):
        if tl.load(x_ptr + i) > limit:
            return i
    return -1


@tw.jit
def returns(x_ptr, out_ptr, n):
    tl.store(out_ptr, first_above(x_ptr, n, 5))
    tl.store(out_ptr + 1, first_above(x_ptr, n, 1000))
    for i in range(n):
        if tl.load(x_ptr + i) > 7:
            return
        tl.store(out_ptr + 2, i)


@tw.jit
def tuples(x_ptr, out_ptr, *, scale: tl.constexpr = 2):
    """Loops over tuples, `enumerate`, `zip`, conditions in comprehensions, f-strings, keywords."""
    values = (3, 5, 7, 9)
    total = tl.load(x_ptr) * 0
    for value in values:
        total += value
    for i, (a, b) in enumerate(zip(values, values[::-1])):  # noqa: B905 - as users write it
        total += i * a * b
    odd = [v for v in values if v % 4 == 1]
    tl.static_assert(f"{len(odd):03d}" == "002")

    def scaled(v):
        return v * scale

    following = lambda v: v + 1  # noqa: E731 - as users write it
    tl.store(out_ptr, scaled(total) + following(odd[0]))


@tw.jit
def operators(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    inside = 2 < x < 6
    tl.store(out_ptr + tl.arange(0, N), tl.where(inside, x**3, +x))


@tw.jit
def indexing(x_ptr, out_ptr, place, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 4)[:, None] * N + tl.arange(0, N))
    tl.store(out_ptr, x[1, 2])
    tl.store(out_ptr + 1, tl.sum(x[place]))
    tl.store(out_ptr + 2, tl.sum(x[..., 0]))
    tl.store(out_ptr + 3, tl.sum(x[1:3, ::2]))
    tl.store(out_ptr + 4, x[-1, -1])


@tw.jit
def falling(out_ptr, start, stop, step):
    total = 0
    for i in range(start, stop, step):
        total = total * 3 + i
    tl.store(out_ptr, total)


@tw.jit
def ordered(x_ptr, out_ptr, ROWS: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    tl.store(out_ptr + rows * N + columns, tl.argsort(x, 0).to(tl.float8e5).to(tl.int32))


@tw.jit
def largest(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.atomic_max(out_ptr + tl.arange(0, N) % 2, x)


def test_jumps_and_names_after_loops(launch):
    x = np.int32([1, -5, 30, 4, 200, 7])
    out = np.zeros(4, np.int32)
    launch(jumps, (1,), x, out, 6)
    assert out.tolist() == [35, 4, 6, 1]


def test_returns_in_loops(launch):
    out = np.full(3, -7, np.int32)
    launch(returns, (1,), np.int32([2, 5, 6, 9, 1]), out, 5)
    assert out.tolist() == [2, -1, 2]


@pytest.mark.parametrize("scale", [2, 5])
def test_tuples_comprehensions_and_nested_functions(launch, scale):
    out = np.zeros(1, np.int32)
    launch(tuples, (1,), np.int32([11]), out, scale=scale)
    values = [3, 5, 7, 9]
    total = sum(values) + sum(i * a * b for i, (a, b) in enumerate(zip(values, values[::-1])))  # noqa: B905
    assert out[0] == total * scale + 6


def test_chains_of_comparisons_and_powers(launch):
    x = np.arange(7, dtype=np.int32)
    out = np.zeros(7, np.int32)
    launch(operators, (1,), x, out, N=7)
    assert out.tolist() == [0, 1, 2, 27, 64, 125, 6]


def test_indexing_reads_elements_rows_and_slices(launch):
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    out = np.zeros(5, np.int32)
    launch(indexing, (1,), x, out, 2, N=6)
    expected = [x[1, 2], x[2].sum(), x[:, 0].sum(), x[1:3, ::2].sum(), x[-1, -1]]
    assert out.tolist() == expected


@pytest.mark.parametrize("bounds", [(9, -1, -2), (0, 9, 4), (3, 3, -1), (5, 9, -1)])
def test_ranges_with_steps_that_are_known_at_run_time(launch, bounds):
    out = np.zeros(1, np.int32)
    launch(falling, (1,), out, *bounds)
    total = 0
    for i in range(*bounds):
        total = total * 3 + i
    assert out[0] == total


def test_argsort_along_any_axis_and_casts_between_integers_and_fp8(launch):
    x = np.random.default_rng(0).permutation(21).astype(np.float32).reshape(3, 7)
    out = np.zeros((3, 7), np.int32)
    launch(ordered, (1,), x, out, ROWS=3, N=7)
    np.testing.assert_array_equal(out, np.argsort(x, 0))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_atomics_on_narrow_floats(launch, dtype):
    x = np.random.default_rng(0).standard_normal(24).astype(dtype)
    out = np.full(2, -9, dtype)
    launch(largest, (1,), x, out, N=24)
    assert out.tolist() == [x[::2].max(), x[1::2].max()]


def test_a_kernel_made_by_exec(launch):
    text = "def doubled(x_ptr, N: tl.constexpr):\n    i = tl.arange(0, N)\n"
    text += "    tl.store(x_ptr + i, tl.load(x_ptr + i) * 2)\n"
    namespace = {"tl": tl}
    exec(text, namespace)
    x = np.arange(5, dtype=np.int32)
    launch(tw.jit(namespace["doubled"], source=text), (1,), x, N=5)
    assert x.tolist() == [0, 2, 4, 6, 8]
