"""Activations, and gated ones of two halves."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
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

F = torch.nn.functional
SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple) | st.sampled_from([(3, 1000), (40000,)])


def gelu_tanh(x):
    return kernels.gelu(x, "tanh")


PAIRS = [
    (kernels.relu, F.relu),
    (kernels.silu, F.silu),
    (kernels.gelu, F.gelu),
    (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("function", "reference"), PAIRS)
@given(shape=SHAPES, dtype=dtypes, layout=layouts)
@examples(6)
def test_activations_agree_with_pytorch(device, function, reference, shape, dtype, layout):
    agrees(function, reference, tensor(shape, dtype, device, layout))


GATED = [
    (kernels.swiglu, lambda gate, up: F.silu(gate) * up),
    (kernels.geglu, lambda gate, up: F.gelu(gate) * up),
]


@pytest.mark.parametrize(("function", "reference"), GATED)
@given(shape=SHAPES, dtype=dtypes, layout=layouts)
@examples(6)
def test_gated_activations_agree_with_pytorch(device, function, reference, shape, dtype, layout):
    gate, up = tensor(shape, dtype, device, layout), tensor(shape, dtype, device)
    agrees(function, reference, gate, up)
    if shape:
        both = tensor((*shape[:-1], 2 * shape[-1]), dtype, device, layout)
        agrees(function, lambda x: reference(*x.chunk(2, -1)), both)
        agrees(lambda x: function(*x.chunk(2, -1)), lambda x: reference(*x.chunk(2, -1)), both)


@pytest.mark.parametrize(("function", "reference"), PAIRS)
def test_derivatives(device, function, reference):
    x = tensor((3, 5), "float64", device)
    assert torch.autograd.gradcheck(function, x)
    compiles(function, x)
    same_bits_again(function, x)
    actual = torch.func.grad(lambda x: function(x).square().sum())(x.detach())
    expected = torch.func.grad(lambda x: reference(x).square().sum())(x.detach())
    torch.testing.assert_close(actual, expected)


def test_derivatives_of_gated_activations(device):
    gate, up = tensor((3, 4), "float64", device), tensor((3, 4), "float64", device)
    for case in ((kernels.swiglu, gate, up), (kernels.geglu, gate, up), (kernels.swiglu, gate)):
        assert torch.autograd.gradcheck(case[0], case[1:])
        compiles(*case)
        same_bits_again(*case)


def test_contracts_with_pytorch(device):
    x = tensor((3, 6), device=device)
    holds_contracts(torch.ops.tilewright.activation.default, x, "silu")
    holds_contracts(torch.ops.tilewright.gated_activation.default, x, x.detach(), "gelu")
    holds_contracts(torch.ops.tilewright.gated_activation.default, x, None, "silu")


def test_nan_and_infinity(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0], device=device)
    torch.testing.assert_close(kernels.relu(x), F.relu(x), equal_nan=True)


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_gradients_at_the_edges_are_those_of_pytorch(device, number):
    name = ("relu", "silu", "gelu", "gelu_tanh")[number]
    function, reference = PAIRS[number]
    edges = [float("nan"), float("inf"), 0.0, 1e30, 3e38, 88.0, 104.0, 1e-40]
    x = torch.tensor([[*edges, *(-edge for edge in edges)]] * 4, device=device, requires_grad=True)
    eye = torch.eye(x.shape[1], device=device)
    upstream = torch.tensor([[1.0], [float("inf")], [float("nan")], [0.0]], device=device)
    upstream = upstream.expand(x.shape)
    (expected,) = torch.autograd.grad(reference(x), x, upstream)
    (actual,) = torch.autograd.grad(function(x), x, upstream)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    # The activation of a product, here of what is added to a product of zeros.
    product = kernels.linear(0 * eye[:4], eye, x[0], activation=name)
    (actual,) = torch.autograd.grad(product.sum(), x)
    torch.testing.assert_close(actual[0], 4 * expected[0], equal_nan=True)


def test_results_have_the_layout_of_the_input(device):
    images = tensor((2, 3, 4, 5), device=device).to(memory_format=torch.channels_last)
    turned = tensor((2, 3, 4), device=device).permute(2, 0, 1)
    for x in (images, turned, turned[:, ::2], images[..., 1:]):
        for function, reference in ((kernels.silu, F.silu), (kernels.relu, F.relu)):
            y, expected = function(x), reference(x)
            torch.testing.assert_close(y, expected)
            assert y.stride() == expected.stride()
            (dx,) = torch.autograd.grad(y, x, x.detach().contiguous())
            torch.testing.assert_close(dx, torch.autograd.grad(expected, x, x.detach())[0])
        gated = kernels.swiglu(x, x.detach().contiguous())
        torch.testing.assert_close(gated, F.silu(x) * x)
        assert gated.stride() == (F.silu(x) * x).stride()


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    expected = F.gelu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(kernels.gelu(x), expected, rtol=1e-5, atol=1e-6)


def test_on_an_emulated_gpu():
    x = tensor((3, 50))
    with tw.emulate("sm_90a", races=True):
        agrees(kernels.swiglu, lambda x: F.silu(x[:, :25]) * x[:, 25:], x)
        agrees(kernels.gelu, F.gelu, x)


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="`approximate` is 'erf'; one of 'none', 'tanh' is needed"):
        kernels.gelu(x, "erf")
    with pytest.raises(ValueError, match=r"`gate` has the shape .* the last size has to be even"):
        kernels.swiglu(x)
    with pytest.raises(TypeError, match="`gate` is of float32, and `up` of float64"):
        kernels.swiglu(x, x.double())
