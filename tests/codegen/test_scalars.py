"""Scalars of a kernel have the meaning of tiles of one element."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def extrema_with_a_whole_number(x, n, out):
    value = tl.load(x)
    tl.store(out, tl.maximum(value, n * 1.0))
    tl.store(out + 1, tl.minimum(n * 1.0, value))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_loses_against_a_converted_integer(dtype):
    out = np.zeros(2, dtype)
    extrema_with_a_whole_number[(1,)](np.array([np.nan], dtype), 5, out)
    assert out.tolist() == [5, 5]


@tw.jit
def count_and_last(start_ptr, out_ptr):
    start, stop, step = tl.load(start_ptr), tl.load(start_ptr + 1), tl.load(start_ptr + 2)
    count = 0
    last = start
    for index in range(start, stop, step):
        count += 1
        last = index
    tl.store(out_ptr, count)
    tl.store(out_ptr + 1, last)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_how_often_loops_of_any_bounds_run(launch, dtype):
    """Also across the whole type, where a distance is no number of it."""
    info = np.iinfo(dtype)
    third = info.max // 3
    cases = [(3, 20, 5), (3, 3, 1), (9, 3, 4), (info.min, info.max, third), (info.max, 0, third)]
    if info.min < 0:
        cases += [(20, 3, -5), (info.max, info.min, -third), (info.max, info.min, info.min)]
    for case in cases:
        out = np.zeros(2, dtype)
        launch(count_and_last, (1,), np.array(case, dtype), out)
        expected = range(*case)
        assert out.tolist() == [len(expected), expected[-1] if expected else case[0]], case
