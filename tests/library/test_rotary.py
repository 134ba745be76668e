"""Rotary position embedding."""

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

SHAPES = st.sampled_from([(0, 4), (3, 2), (2, 5, 8), (2, 3, 5, 12), (2, 1, 2, 3, 6)])


def reference(x, cos, sin, interleaved):
    pairs = cos.shape[1]
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        pair = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        pair = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((pair, rest), -1)


@pytest.mark.parametrize("interleaved", [False, True])
@given(shape=SHAPES, dtype=dtypes, layout=layouts, fewer=st.integers(0, 1))
@examples(12)
def test_agrees_with_the_formula(device, interleaved, shape, dtype, layout, fewer):
    x = tensor(shape, dtype, device, layout)
    pairs = max(shape[-1] // 2 - fewer, 1)
    angle = torch.randn(shape[-2], pairs, device=device)
    cos, sin = angle.cos(), angle.sin()
    agrees(
        lambda x: kernels.rotary_embedding(x, cos, sin, interleaved),
        lambda x: reference(x, cos.double(), sin.double(), interleaved),
        x,
        factor=2,
    )


def test_derivatives(device):
    x = tensor((2, 3, 6), "float64", device)
    cos, sin = (tensor((3, 2), "float64", device, requires_grad=False) for _ in range(2))

    def turned(x):
        return kernels.rotary_embedding(x, cos, sin)

    assert torch.autograd.gradcheck(turned, x)
    compiles(turned, x)
    same_bits_again(turned, x)
    actual = torch.func.grad(lambda x: turned(x).square().sum())(x.detach())
    expected = torch.func.grad(lambda x: reference(x, cos, sin, False).square().sum())(x.detach())
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x, angle = tensor((2, 3, 6), device=device), torch.randn(3, 2, device=device)
    operator = torch.ops.tilewright.rotary_embedding.default
    holds_contracts(operator, x, angle.cos(), angle.sin(), True, False)


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((2, 3, 4), dtype=np.float32)
    angle = np.ones((3, 2), np.float32)
    y = kernels.rotary_embedding(x, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose((y**2).sum(-1), (x**2).sum(-1), rtol=1e-5)


def test_on_an_emulated_gpu():
    x, angle = tensor((2, 3, 20)), torch.randn(3, 8)
    with tw.emulate("sm_90a", races=True):
        for interleaved in (False, True):
            agrees(
                lambda x, i=interleaved: kernels.rotary_embedding(x, angle.cos(), angle.sin(), i),
                lambda x, i=interleaved: reference(x, angle.cos(), angle.sin(), i),
                x,
            )


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match=r"with 2 \* pairs <= size"):
        kernels.rotary_embedding(x, torch.zeros(3, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"`sin` has the shape \(3, 1\); \(3, 2\) is needed"):
        kernels.rotary_embedding(x, torch.zeros(3, 2), torch.zeros(3, 1))
