"""Descriptors of addresses, and the names by which older kernels use them."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileError, LaunchError
from tilewright.tools.experimental_descriptor import (
    create_1d_tma_descriptor,
    create_2d_tma_descriptor,
)


@tw.jit
def product(a_desc, b_desc, c_desc, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl._experimental_descriptor_load(a_desc, [0, k], [M, BLOCK], tl.float16)
        b = tl._experimental_descriptor_load(b_desc, [k, 0], [BLOCK, N], tl.float16)
        total = tl.dot(a, b, total)
    tl._experimental_descriptor_store(c_desc, total, [0, 0])


@pytest.mark.numpy_only
def test_matrices(launch):
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (16, 64)).astype(np.float16)
    b = rng.integers(-3, 4, (64, 16)).astype(np.float16)
    c = np.zeros((16, 16), np.float32)
    descriptors = [
        create_2d_tma_descriptor(x.ctypes.data, *x.shape, *block, x.itemsize)
        for x, block in ((a, (16, 32)), (b, (32, 16)), (c, (16, 16)))
    ]
    launch(product, (1,), *descriptors, 64, M=16, N=16, BLOCK=32)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@tw.jit
def double(x_desc, y_ptr, n, BLOCK: tl.constexpr):
    y_desc = tl._experimental_make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    x = tl._experimental_descriptor_load(x_desc, [4], [BLOCK], tl.float32)
    tl._experimental_descriptor_store(y_desc, x * 2, [0])


@pytest.mark.numpy_only
def test_vectors(launch):
    x, y = np.arange(10, dtype=np.float32), np.ones(12, np.float32)
    launch(double, (1,), create_1d_tma_descriptor(x.ctypes.data, 10, 8, 4), y, 12, BLOCK=8)
    assert y.tolist() == [8, 10, 12, 14, 16, 18, 0, 0, 1, 1, 1, 1]


def test_what_does_not_fit():
    x = np.zeros(16, np.float32)
    descriptor = create_1d_tma_descriptor(x.ctypes.data, 16, 4, 4)
    with pytest.raises(CompileError, match="the blocks of the descriptor are"):
        double[(1,)](descriptor, x, 16, BLOCK=8)
    with pytest.raises(LaunchError, match="elements of 3 bytes"):
        create_1d_tma_descriptor(x.ctypes.data, 16, 4, 3)
