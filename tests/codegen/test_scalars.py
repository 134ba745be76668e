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
