"""A program reads and writes memory as if each op finished before the next began."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

RUNS = [
    pytest.param(lambda k: k[(1,)], id="cpu"),
    pytest.param(lambda k: k.debug[(1,)], id="eager"),
]


@tw.jit
def increment_with_equal_addresses(y):
    places = y + tl.arange(0, 64) % 3
    tl.store(places, tl.load(places) + 1)


@tw.jit
def shift_in_place(y, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + offsets + 1, tl.load(y + offsets))


@tw.jit
def reverse_in_place(y, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + SIZE - 1 - offsets, tl.load(y + offsets))


@tw.jit
def transpose_in_place(y, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    tl.store(y + columns * SIZE + rows, tl.load(y + rows * SIZE + columns))


@tw.jit
def old_value_after_two_stores(x, out, other, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    value = tl.load(x + offsets)
    tl.store(out + offsets, value + 1)
    tl.store(other + offsets, value * 2)


@pytest.mark.parametrize("run", RUNS)
def test_lanes_with_one_address_read_the_old_value(run):
    y = np.ones(8, np.float32)
    run(increment_with_equal_addresses)(y)
    assert y.tolist() == [2, 2, 2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("size", [7, 64, 100])
def test_moving_elements_in_place(run, size):
    start = np.arange(size + 1, dtype=np.float32)
    y = start.copy()
    run(shift_in_place)(y, size)
    assert (y[1:] == start[:-1]).all()
    y = start.copy()
    run(reverse_in_place)(y, size)
    assert (y[:size] == start[:size][::-1]).all()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("size", [5, 32])
def test_transposing_in_place(run, size):
    start = np.arange(size * size, dtype=np.float32).reshape(size, size)
    y = start.copy()
    run(transpose_in_place)(y, size)
    assert (y == start.T).all()


@pytest.mark.parametrize("run", RUNS)
def test_one_array_for_two_parameters(run):
    x, other = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    run(old_value_after_two_stores)(x, x, other, 50)
    assert (x == np.arange(50) + 1).all()
    assert (other == np.arange(50) * 2).all()
