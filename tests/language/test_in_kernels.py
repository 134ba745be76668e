"""The language inside kernels: compiled and eager runs give the same types and values."""

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import ir_of, kernel, returned, stored
from tilewright.errors import CompileError

WIDTH = tl.constexpr(8)


def library(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, WIDTH))
    wide = x[:, None] * x[None, :]
    largest, where = tl.max(x, 0, return_indices=True)
    return (
        tl.sum(x),
        x.max(0),
        largest,
        where,
        x.argmin(0),
        tl.softmax(wide, 1),
        wide.softmax(0),
        tl.sigmoid(x),
        x.cumsum(0, reverse=True),
        tl.cumprod(x, 0),
        tl.sort(x, descending=True),
        x.flip(),
        tl.topk(x, 3),
        tl.dot(wide, wide.T, allow_tf32=False),
        tl.where(x > 0, x, 0.0).to(tl.float16),
        tl.clamp(x, -1.0, 1.0),
        tl.interleave(x, -x),
        tl.cat(x, x).reshape(2, WIDTH),
        tl.gather(x, tl.arange(0, 4) * 2, 0),
        tl.zeros_like(wide),
        abs(x) ** 2,
        tl.math.exp2(x),
        tl.fma(x, x, x),
    )


def test_the_library_agrees_in_both_executors():
    x = np.float32([1.5, -2, 0.25, 3, -0.5, 7, -7, 2])
    results = returned(kernel(library), x)
    assert results[0] == x.sum()
    assert (results[1], results[2], results[3], results[4]) == (7, 7, 5, 6)
    assert results[10] == sorted(x.tolist(), reverse=True)


def integers(x_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 8))
    i, j = tl.swizzle2d(n, 3, 4, 4, 2)
    return (
        tl.cdiv(x, n),
        tl.cdiv(n, 4),
        tl.cdiv(WIDTH, 3),
        tl.xor_sum(x, 0),
        tl.cumsum(x > 0, 0),
        tl.histogram(x & 3, 4),
        tl.umulhi(x, 1 << 30),
        i,
        j,
        x // 2 % 3,
        x.to(tl.int8) + n,
        tl.full((2,), n, tl.int64),
    )


def test_integers_agree_in_both_executors():
    x = np.int32([1, -2, 3, 4, -5, 6, 7, 100])
    results = returned(kernel(integers), x, 3)
    assert results[0] == [1, 0, 1, 2, -1, 2, 3, 34]
    assert (results[1], results[2]) == (1, np.bitwise_xor.reduce(x))


def randoms(seed, n):
    offsets = tl.arange(0, 8)
    u1, u2, _, _ = tl.rand4x(seed, offsets)
    return (
        tl.randint(seed, offsets),
        tl.rand(seed, offsets + n),
        tl.randn(seed, offsets),
        tl.randn4x(seed, offsets.to(tl.int64) << 33),
        tl.pair_uniform_to_normal(u1, u2),
        tl.randint4x(seed, offsets, n_rounds=6),
        tl.philox(
            seed, offsets.to(tl.uint64), 0 * offsets.to(tl.uint64), n.to(tl.uint64), n.to(tl.uint64)
        ),
    )


def test_random_numbers_agree_in_both_executors():
    returned(kernel(randoms), 1234, 5)


def scans(a_ptr, b_ptr):
    a = tl.load(a_ptr + tl.arange(0, 8))
    b = tl.load(b_ptr + tl.arange(0, 8))
    return tl.associative_scan((a, b), 0, compose), tl.reduce((a, b), 0, compose), a.reduce(0, add)


@kernel
def compose(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@kernel
def add(x, y):
    return x + y


def test_combine_functions_of_the_user():
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, (2, 8)).astype(np.float32)
    *_, product, recurrence, total = returned(kernel(scans), a, b)
    expected = np.float64(0)
    for x, y in zip(a, b, strict=True):
        expected = x * expected + y
    assert product == pytest.approx(np.prod(a), rel=1e-6)
    assert recurrence == pytest.approx(expected, rel=1e-6)
    assert total == pytest.approx(a.sum(), rel=1e-6)


def blocks(out_ptr, x_ptr, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    source = tl.make_block_ptr(
        x_ptr, (rows, columns), (columns, 1), (0, 0), (HEIGHT, WIDTH), (1, 0)
    )
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for _ in range(0, columns, WIDTH):
        total += tl.load(source, boundary_check=(0, 1))
        source = tl.advance(source, (0, WIDTH))
    target = tl.make_block_ptr(
        out_ptr, (HEIGHT, WIDTH), (WIDTH, 1), (0, 0), (HEIGHT, WIDTH), (1, 0)
    )
    tl.store(target, total)


def test_a_loop_carries_a_block_pointer():
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    out = stored(kernel(blocks), np.zeros((4, 2), np.float32), x, 3, 5, HEIGHT=4, WIDTH=2)
    padded = np.pad(x, ((0, 1), (0, 1)))
    np.testing.assert_array_equal(out, padded.reshape(4, 3, 2).sum(1))


def constants(x_ptr, BLOCK: tl.constexpr):
    half = BLOCK // 2
    offsets = tl.arange(0, half)
    tl.static_assert(BLOCK % 2 == 0, "even")
    for i in tl.static_range(2):
        tl.store(x_ptr + i * half + offsets, offsets + i)
    tl.device_assert(half > 0, "some")
    tl.multiple_of(offsets, half)


def test_a_constant_survives_being_named():
    out = stored(kernel(constants), np.zeros(8, np.int32), BLOCK=8)
    assert out.tolist() == [0, 1, 2, 3, 1, 2, 3, 4]


def runtime_size(x_ptr, n):
    tl.store(x_ptr + tl.arange(0, n), 0)


def test_a_mistake_shows_its_line():
    with pytest.raises(CompileError, match="arange: the end must be a compile-time") as caught:
        ir_of(kernel(runtime_size), np.zeros(8, np.int32), 4)
    text = str(caught.value)
    assert "tl.arange(0, n)" in text
    assert "^^^" in text
    assert "tl.constexpr" in text


def mixed(x_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 8))
    return x + tl.arange(0, n + 4)


def test_a_shape_mistake_shows_its_line():
    with pytest.raises(CompileError, match="compile-time constant") as caught:
        ir_of(kernel(mixed), np.zeros(8, np.int32), 4)
    assert caught.value.location is not None
