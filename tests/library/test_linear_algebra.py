"""Cholesky factors and triangular systems of small matrices."""

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

SIZES = st.sampled_from([1, 3, 16, 20, 64])
BATCHES = st.sampled_from([(), (2,), (0,), (2, 3)])


def positive(x):
    """Positive definite matrices with a small condition number."""
    n = x.shape[-1]
    return x @ x.mT / n + 2 * torch.eye(n, dtype=x.dtype, device=x.device)


def triangular(x):
    """Matrices whose halves are triangular ones with a small condition number."""
    n = x.shape[-1]
    return x / n + 2 * torch.eye(n, dtype=x.dtype, device=x.device)


@given(batch=BATCHES, n=SIZES, layout=layouts)
@examples(10)
def test_cholesky_agrees_with_pytorch(device, batch, n, layout):
    x = tensor((*batch, n, n), "float32", device, layout)
    agrees(
        lambda x: kernels.cholesky(positive(x)),
        lambda x: torch.linalg.cholesky(positive(x)),
        x,
        factor=8,
    )


@given(
    batch=BATCHES,
    n=SIZES,
    k=st.sampled_from([1, 5, 40]),
    layout=layouts,
    upper=st.booleans(),
    left=st.booleans(),
    unit=st.booleans(),
)
@examples(15)
def test_systems_agree_with_pytorch(device, batch, n, k, layout, upper, left, unit):
    x = tensor((*batch, n, n), "float32", device, layout)
    b = tensor((*batch[1:], *((n, k) if left else (k, n))), "float32", device)
    options = {"upper": upper, "left": left, "unitriangular": unit}

    def plain(x, b):
        A = triangular(x).triu() if upper else triangular(x).tril()
        return torch.linalg.solve_triangular(A, b, **options)

    agrees(
        lambda x, b: kernels.solve_triangular(triangular(x), b, **options), plain, x, b, factor=8
    )


@given(dtype=dtypes)
@examples(3)
def test_dtypes(device, dtype):
    x = tensor((2, 5, 5), dtype, device, requires_grad=False)
    A = positive(x.double()).to(x.dtype)
    expected = torch.linalg.cholesky(A.double())
    torch.testing.assert_close(kernels.cholesky(A).double(), expected, rtol=1e-2, atol=1e-2)


def test_derivatives(device):
    x, b = tensor((2, 4, 4), "float64", device), tensor((2, 4, 3), "float64", device)
    cases = [
        (lambda x: kernels.cholesky(positive(x)), x),
        (lambda x, b: kernels.solve_triangular(triangular(x), b, upper=True), x, b),
    ]
    for function, *inputs in cases:
        assert torch.autograd.gradcheck(function, inputs)
        compiles(function, *inputs)
        same_bits_again(function, *inputs)
    actual = torch.func.grad(lambda x: cases[0][0](x).square().sum())(x.detach())
    expected = torch.func.grad(lambda x: torch.linalg.cholesky(positive(x)).square().sum())(
        x.detach()
    )
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x = positive(tensor((2, 4, 4), device=device)).detach().requires_grad_()
    holds_contracts(torch.ops.tilewright.cholesky.default, x)
    b = tensor((2, 4, 3), device=device)
    holds_contracts(torch.ops.tilewright.solve_triangular.default, x, b, True, False)


def test_not_positive_definite(device):
    factor = kernels.cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]], device=device))
    assert factor.isnan().tolist() == [[False, False], [False, True]]


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((2, 5, 5))
    A = x @ x.swapaxes(-1, -2) + np.eye(5)
    factor = kernels.cholesky(A)
    np.testing.assert_allclose(factor, np.linalg.cholesky(A), rtol=1e-10)
    solved = kernels.solve_triangular(factor, A, upper=False)
    np.testing.assert_allclose(factor @ solved, A, rtol=1e-10)


def test_on_an_emulated_gpu():
    x, b = tensor((1, 6, 6)), tensor((1, 6, 3))
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda x: kernels.cholesky(positive(x)), lambda x: torch.linalg.cholesky(positive(x)), x
        )
        agrees(
            lambda x, b: kernels.solve_triangular(triangular(x), b, upper=False),
            lambda x, b: torch.linalg.solve_triangular(triangular(x).tril(), b, upper=False),
            x,
            b,
        )


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError, match="larger ones are for torch"):
        kernels.cholesky(torch.zeros(65, 65))
    with pytest.raises(ValueError, match=r"`B` has the shape \(3, 2\), and `A` \(2, 2\)"):
        kernels.solve_triangular(torch.eye(2), torch.zeros(3, 2), upper=True)
    with pytest.raises(ValueError, match="the dimensions in front do not fit"):
        kernels.solve_triangular(torch.zeros(2, 2, 2), torch.zeros(3, 2, 2), upper=True)
