"""Functions on scalars mapped over tiles: each element goes its own way."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError


@tw.jit
def collatz_steps(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:  # noqa: SIM108 - a branch, not a choice
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@tw.jit
def count_steps(x_ptr, out_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, tl.map_elementwise(collatz_steps, x))


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pytest.mark.parametrize("shape", [(8, 16), (3, 7), (1, 1)])
def test_each_element_has_a_loop_of_its_own(launch, shape):
    x = np.random.default_rng(0).integers(1, 60, shape).astype(np.int32)
    out = np.zeros_like(x)
    launch(count_steps, (1,), x, out, ROWS=shape[0], COLUMNS=shape[1])
    np.testing.assert_array_equal(out, np.vectorize(collatz)(x))


@tw.jit
def three_ways(x, y):
    if x < 0.0:
        result, kind = tl.exp(x) + y, 0
    elif x < 1.0:
        result, kind = x * y, 1
    else:
        result = y
        for i in range(3):
            if result > 8.0:
                break
            result = result * 1.5 + i
        kind = 2
    return result, kind


@tw.jit
def map_three_ways(x_ptr, y_ptr, out_ptr, kind_ptr, N: tl.constexpr):
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x, y = tl.load(x_ptr + row), tl.load(y_ptr + column)
    out, kind = tl.map_elementwise(three_ways, x, y)
    tl.store(out_ptr + row * N + column, out)
    tl.store(kind_ptr + row * N + column, kind)


def test_several_results_of_tiles_that_broadcast(launch):
    n = 16
    x = np.random.default_rng(0).uniform(-2, 3, n).astype(np.float32)
    y = np.random.default_rng(1).uniform(0, 9, n).astype(np.float32)
    out, kind = np.zeros((n, n), np.float32), np.zeros((n, n), np.int32)
    launch(map_three_ways, (1,), x, y, out, kind, N=n)
    for (i, j), got in np.ndenumerate(out):
        a, b = float(x[i]), float(y[j])
        expected = np.exp(a) + b if a < 0 else a * b
        if a >= 1:
            expected = b
            for step in range(3):
                if expected > 8:
                    break
                expected = expected * 1.5 + step
        assert got == pytest.approx(expected, rel=1e-5)
        assert kind[i, j] == (0 if a < 0 else 1 if a < 1 else 2)


@tw.jit
def quotients_and_remainders(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@tw.jit
def map_divmod(a_ptr, b_ptr, q_ptr, r_ptr, ROWS: tl.constexpr):
    places = tl.arange(0, ROWS)[:, None] * 8 + tl.arange(0, 8)
    a, b = tl.load(a_ptr + places), tl.load(b_ptr + places)
    q, r = tl.map_elementwise(quotients_and_remainders, a, b, pack=2)
    tl.store(q_ptr + places, q)
    tl.store(r_ptr + places, r)


@pytest.mark.parametrize("rows", [1, 4, 3])
def test_two_elements_at_once(launch, rows):
    a = np.random.default_rng(0).integers(0, 1000, (rows, 8)).astype(np.int32)
    b = np.random.default_rng(1).integers(1, 30, (rows, 8)).astype(np.int32)
    q, r = np.zeros_like(a), np.zeros_like(a)
    launch(map_divmod, (1,), a, b, q, r, ROWS=rows)
    np.testing.assert_array_equal(q, a // b)
    np.testing.assert_array_equal(r, a % b)


@tw.jit
def rising(*x):
    largest = x[0]
    for i in tl.static_range(1, 4):
        largest = max(largest, x[i])
    return largest, x[1], x[2], x[3] - x[0]


@tw.jit
def map_four(x_ptr, out_ptr):
    places = tl.arange(0, 32)
    tl.store(out_ptr + places, tl.map_elementwise(rising, tl.load(x_ptr + places), pack=4))


def test_four_neighbours_at_once(launch):
    x = np.random.default_rng(0).integers(-9, 9, 32).astype(np.int32)
    out = np.zeros_like(x)
    launch(map_four, (1,), x, out)
    groups = x.reshape(8, 4)
    expected = np.stack([groups.max(1), groups[:, 1], groups[:, 2], groups[:, 3] - groups[:, 0]], 1)
    np.testing.assert_array_equal(out.reshape(8, 4), expected)


@tw.jit
def in_a_loop(x_ptr, y_ptr, steps, N: tl.constexpr):
    places = tl.arange(0, N)

    def halved_down(v, limit):
        while v > limit:
            v = v / 2
        return v

    total = tl.zeros((N,), tl.float32)
    for i in range(steps):
        x = tl.load(x_ptr + i * N + places)
        total += tl.map_elementwise(halved_down, x.to(tl.float32), i + 1.0)
        total += tl.sum(total) * 0.001
    tl.store(y_ptr + places, total)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_nested_function_inside_a_loop(launch, dtype):
    n, steps = 64, 3
    x = (np.random.default_rng(0).uniform(0, 50, (steps, n))).astype(dtype)
    y = np.zeros(n, np.float32)
    launch(in_a_loop, (1,), x, y, steps, N=n)
    total = np.zeros(n)
    for i, row in enumerate(x.astype(np.float64)):
        halvings = np.ceil(np.log2(np.maximum(row / (i + 1), 1)))
        total += row / 2**halvings
        total += total.sum() * 0.001
    np.testing.assert_allclose(y, total, rtol=1e-5)


@tw.jit
def of_a_scalar(x_ptr, out_ptr, n):
    tl.store(out_ptr, tl.map_elementwise(collatz_steps, n))
    tl.store(out_ptr + 1, tl.map_elementwise(collatz_steps, tl.load(x_ptr)))


def test_scalars_have_one_element(launch):
    out = np.zeros(2, np.int32)
    launch(of_a_scalar, (1,), np.int32([6]), out, 27)
    assert out.tolist() == [111, 8]


@tw.jit
def clipped(x, low):
    if x < low:  # noqa: SIM108 - what a branch becomes is what this is about
        y = low
    else:
        y = x
    return y.to(tl.float16) * 2


@tw.jit
def map_clipped(x_ptr, out_ptr):
    places = tl.arange(0, 64)
    tl.store(out_ptr + places, tl.map_elementwise(clipped, tl.load(x_ptr + places), 0.25))


def test_functions_that_only_choose_are_computed_on_tiles(launched_on):
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = np.zeros(64, np.float16)
    compiled = map_clipped[(1,)](x, out)
    assert "map_elements" not in compiled.asm["tir"]
    np.testing.assert_array_equal(out, np.maximum(x, 0.25).astype(np.float16) * 2)


@tw.jit
def loads(pointer):
    return tl.load(pointer)


@tw.jit
def returns_a_tile(x):
    return x + tl.arange(0, 4)


@tw.jit
def wrong(x_ptr, WHAT: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 6))
    if WHAT == "loads":
        tl.map_elementwise(loads, x_ptr + tl.arange(0, 6))
    elif WHAT == "tile":
        tl.map_elementwise(returns_a_tile, x)
    elif WHAT == "pack":
        tl.map_elementwise(collatz_steps, x, pack=4)
    elif WHAT == "results":
        tl.map_elementwise(lambda a, b: a + b, x, pack=2)
    elif WHAT == "parameters":
        tl.map_elementwise(collatz_steps, x, x)
    else:
        tl.map_elementwise(abs, x)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("loads", "load in a function that is mapped over elements: it may only compute"),
        ("tile", r"`returns_a_tile` must return only scalar\(s\)"),
        ("pack", "pack must be a power of two that divides the 6 elements, got 4"),
        ("results", "the function returns 1 scalars for 2 elements"),
        ("parameters", "`collatz_steps` takes 1 values, it is given 2 elements"),
        ("function", "map_elementwise: expected a function of the language"),
    ],
)
@pytest.mark.cpu_only
def test_mistakes(launch, what, message):
    with pytest.raises(CompileError, match=message) as caught:
        launch(wrong, (1,), np.zeros(6, np.int32), WHAT=what)
    assert caught.value.location is not None
