"""Softmax and its logarithm."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.library.checking import (
    agrees,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels

PAIRS = [(kernels.softmax, torch.softmax), (kernels.log_softmax, torch.log_softmax)]
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple) | st.sampled_from(
    [(3, 1000), (2, 17000), (300, 2, 3)]
)


@pytest.mark.parametrize(("function", "reference"), PAIRS)
@given(shape=SHAPES, dtype=dtypes, layout=layouts, data=st.data())
@examples(25)
def test_agrees_with_pytorch(device, function, reference, shape, dtype, layout, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = tensor(shape, dtype, device, layout)
    agrees(lambda x: function(x, dim), lambda x: reference(x, dim), x)


@pytest.mark.parametrize(("function", "reference"), PAIRS)
def test_derivatives(device, function, reference):
    x = tensor((3, 2, 5), "float64", device)
    assert torch.autograd.gradcheck(lambda x: function(x, 1), x)
    compiles(lambda x: function(x, 1), x)
    same_bits_again(function, x)
    actual = torch.func.grad(lambda x: function(x).square().sum())(x.detach())
    expected = torch.func.grad(lambda x: reference(x, -1).square().sum())(x.detach())
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    holds_contracts(torch.ops.tilewright.softmax.default, tensor((3, 5), device=device), 1, True)


def test_rows_of_infinities(device):
    x = torch.full((3, 4), -float("inf"), device=device)
    x[1, 2] = 1.0
    x[2, 1] = float("inf")
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1), equal_nan=True)
    torch.testing.assert_close(kernels.log_softmax(x), torch.log_softmax(x, -1), equal_nan=True)


def test_autocast_computes_in_fp32(device):
    with torch.autocast(device, torch.bfloat16):
        assert kernels.softmax(tensor((2, 3), "bfloat16", device)).dtype == torch.float32


def test_rows_that_begin_with_minus_infinity(device):
    x = torch.full((2, 40000), -1000.0, device=device)
    x[0, :39000] = -float("inf")
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 4, 5), dtype=np.float32)
    expected = torch.softmax(torch.from_numpy(x), 1).numpy()
    np.testing.assert_allclose(kernels.softmax(x, 1), expected, rtol=1e-5)


def test_arguments_that_cannot_be():
    with pytest.raises(IndexError, match="`dim` is 2, and the array has 2 dimensions"):
        kernels.softmax(torch.zeros(2, 3), 2)
    with pytest.raises(TypeError, match="`input` is of int64"):
        kernels.softmax(torch.zeros(2, 3, dtype=torch.int64))


def test_there_is_no_second_derivative():
    x = tensor((2, 3))
    (dx,) = torch.autograd.grad(kernels.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="softmax_backward has no derivative"):
        dx.sum().backward()
