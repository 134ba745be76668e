"""Dropout without a mask."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import (
    compiles,
    dtypes,
    examples,
    holds_contracts,
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels

SHAPES = st.sampled_from([(), (0, 3), (7,), (3, 50), (2, 3, 700)])


@given(shape=SHAPES, dtype=dtypes, layout=layouts, p=st.sampled_from([0.0, 0.25, 1.0]))
@examples(15)
def test_elements_are_0_or_scaled(device, shape, dtype, layout, p):
    x = tensor(shape, dtype, device, layout)
    y = kernels.dropout(x, p, seed=5)
    scaled = (x.detach().double() / (1 - p)).to(x.dtype) if p < 1 else torch.zeros_like(x)
    kept = kernels.dropout(torch.ones_like(x), p, seed=5) != 0
    torch.testing.assert_close(y, torch.where(kept, scaled, 0), rtol=1e-2, atol=0)
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx != 0, kept)
    if y.numel() > 1000:
        assert abs(kept.double().mean().item() - (1 - p)) < 0.03


def test_derivatives(device):
    x = tensor((3, 5), "float64", device)

    def dropped(x):
        return kernels.dropout(x, 0.3, seed=1)

    assert torch.autograd.gradcheck(dropped, x)
    compiles(dropped, x)
    same_bits_again(dropped, x)
    dx = torch.func.grad(lambda x: dropped(x).sum())(x.detach())
    torch.testing.assert_close(dx, dropped(torch.ones_like(x)))


def test_contracts_with_pytorch(device):
    seed = torch.tensor([3], device=device)
    holds_contracts(torch.ops.tilewright.dropout.default, tensor((3, 5), device=device), seed, 0.5)


def test_seeds(device):
    x = torch.ones(1000, device=device)
    torch.manual_seed(0)
    first, second = kernels.dropout(x), kernels.dropout(x)
    torch.manual_seed(0)
    torch.testing.assert_close(kernels.dropout(x), first)
    assert (first != second).any()
    seed = torch.tensor(7, device=device)
    torch.testing.assert_close(kernels.dropout(x, seed=seed), kernels.dropout(x, seed=7))
    assert kernels.dropout(x, training=False) is x


def test_layouts_and_devices_agree():
    x = torch.ones(30, 40)
    expected = kernels.dropout(x, 0.5, seed=9)
    torch.testing.assert_close(kernels.dropout(x.T.contiguous().T, 0.5, seed=9), expected)
    np.testing.assert_array_equal(kernels.dropout(x.numpy(), 0.5, seed=9), expected.numpy())
    with tw.emulate("sm_90a", races=True):
        torch.testing.assert_close(kernels.dropout(x, 0.5, seed=9), expected)


def test_results_have_the_layout_of_the_input(device):
    images = torch.ones(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
    turned = torch.ones(4, 2, 3, device=device).permute(2, 0, 1)
    for given_layout in (images, turned, images[:, :2], images[..., 1:]):
        x = given_layout.detach().requires_grad_()
        y = kernels.dropout(x, 0.5, seed=3)
        assert y.stride() == torch.empty_like(x).stride()
        torch.testing.assert_close(y, kernels.dropout(x.contiguous(), 0.5, seed=3))
        # The gradient is 0 where the result is, also if that of the result has another layout.
        (dx,) = torch.autograd.grad(y, x, torch.ones(y.shape, device=device))
        torch.testing.assert_close(dx, y.detach())


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError, match="`p` is 2; it has to be from 0 to 1"):
        kernels.dropout(torch.zeros(2), 2)
    with pytest.raises(TypeError, match="`input` is of int64"):
        kernels.dropout(torch.zeros(2, dtype=torch.int64))
