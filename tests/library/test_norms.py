"""Layer norm and RMS norm, also of a sum."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import (
    agrees,
    assert_close,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels import rows as sums_of_rows

F = torch.nn.functional
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple) | st.sampled_from(
    [(3, 1000), (2, 17000), (300, 2, 3)]
)


def plain(function):
    """The same norm of PyTorch."""
    return {kernels.layer_norm: F.layer_norm, kernels.rms_norm: F.rms_norm}[function]


@pytest.mark.parametrize("function", [kernels.layer_norm, kernels.rms_norm])
@given(shape=SHAPES, dtype=dtypes, layout=layouts, weighted=st.booleans(), dims=st.integers(1, 3))
@examples(12)
def test_norms_agree_with_pytorch(device, function, shape, dtype, layout, weighted, dims):
    x = tensor(shape, dtype, device, layout)
    over = shape[-min(dims, len(shape)) :]
    count = (1 if function is kernels.rms_norm else 2) if weighted else 0
    parameters = [tensor(over, dtype, device) for _ in range(count)]

    def of(norm):
        return lambda x, *parameters: norm(x, over, *parameters, eps=1e-3)

    agrees(of(function), of(plain(function)), x, *parameters, factor=2)


@given(shape=st.sampled_from([(0, 3), (5, 7), (2, 3, 40)]), dtype=dtypes, layout=layouts)
@examples(6)
def test_norms_of_sums_agree_with_pytorch(device, shape, dtype, layout):
    x, residual = tensor(shape, dtype, device, layout), tensor(shape, dtype, device)
    weight, bias = (tensor(shape[-1:], dtype, device) for _ in range(2))

    def layer(x, residual, weight, bias):
        return F.layer_norm(x + residual, shape[-1:], weight, bias), x + residual

    def rms(x, residual, weight):
        return F.rms_norm(x + residual, shape[-1:], weight, 1e-4), x + residual

    agrees(
        lambda x, r, w, b: kernels.add_layer_norm(x, r, shape[-1], w, b),
        layer,
        *(x, residual, weight, bias),
        factor=2,
    )
    agrees(
        lambda x, r, w: kernels.add_rms_norm(x, r, shape[-1], w, 1e-4),
        rms,
        *(x, residual, weight),
        factor=2,
    )


def test_derivatives(device):
    x, residual = (tensor((3, 2, 5), "float64", device) for _ in range(2))
    weight, bias = (tensor((2, 5), "float64", device) for _ in range(2))
    layer = (lambda x, w, b: kernels.layer_norm(x, (2, 5), w, b), x, weight, bias)
    total = (lambda x, r, w: kernels.add_rms_norm(x, r, (2, 5), w), x, residual, weight)
    for case in (layer, total):
        assert torch.autograd.gradcheck(case[0], case[1:])
        compiles(*case)
        same_bits_again(*case)
    actual = torch.func.grad(lambda w: kernels.rms_norm(x, (2, 5), w).square().sum())(weight)
    expected = torch.func.grad(lambda w: F.rms_norm(x, (2, 5), w).square().sum())(weight)
    torch.testing.assert_close(actual, expected)


def test_one_result_of_a_sum_is_enough(device):
    x, residual = tensor((3, 5), device=device), tensor((3, 5), device=device)
    y, total = kernels.add_rms_norm(x, residual, 5)
    (dx,) = torch.autograd.grad(total.sum(), x, retain_graph=True)
    torch.testing.assert_close(dx, torch.ones_like(dx))
    (dx,) = torch.autograd.grad(y.square().sum(), x)
    assert dx.abs().max() < 1e-4


def test_long_rows_with_parameters(device):
    x = tensor((3, 20000), device=device)
    weight, bias = tensor((20000,), device=device), tensor((20000,), device=device)
    agrees(
        lambda x, w, b: kernels.layer_norm(x, 20000, w, b),
        lambda x, w, b: F.layer_norm(x, (20000,), w, b),
        *(x, weight, bias),
        factor=3,
    )


def test_contracts_with_pytorch(device):
    x, weight = tensor((3, 5), device=device), tensor((5,), device=device)
    holds_contracts(torch.ops.tilewright.normalize.default, x, weight, weight, 1, 1e-5, False)
    arguments = x, tensor((3, 5), device=device), weight, None, 1, 1e-5, True
    holds_contracts(torch.ops.tilewright.add_normalize.default, *arguments)


def test_autocast_computes_in_fp32(device):
    with torch.autocast(device, torch.bfloat16):
        assert kernels.layer_norm(tensor((2, 3), "bfloat16", device), 3).dtype == torch.float32


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 4, 5), dtype=np.float32)
    expected = F.layer_norm(torch.from_numpy(x), (4, 5)).numpy()
    np.testing.assert_allclose(kernels.layer_norm(x, (4, 5)), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("gpu", ["sm_80", "sm_90a"])
def test_on_an_emulated_gpu(gpu):
    x, weight = tensor((5, 40)), tensor((40,))
    with tw.emulate(gpu, races=True):
        agrees(
            lambda x, w: kernels.layer_norm(x, 40, w),
            lambda x, w: F.layer_norm(x, (40,), w),
            x,
            weight,
        )


@pytest.mark.parametrize("gpu", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 45, 600])
def test_sums_over_rows_on_an_emulated_gpu(monkeypatch, gpu, dtype, rows):
    monkeypatch.setattr(sums_of_rows, "on_cpu", lambda _: False)
    both = [tensor((rows, 70), dtype, requires_grad=False) for _ in range(2)]
    for matrices in (both[:1], both):
        sums = [torch.empty(70, dtype=x.dtype) for x in matrices]
        with tw.emulate(gpu, races=True):
            sums_of_rows.column_sums(list(zip(matrices, sums, strict=True)))
        for x, total in zip(matrices, sums, strict=True):
            assert_close(total, x.double().sum(0), factor=2)


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 3)
    with pytest.raises(
        ValueError, match=r"`normalized_shape` is \(4,\), and `input` has the shape"
    ):
        kernels.layer_norm(x, 4)
    with pytest.raises(ValueError, match=r"`weight` has the shape \(2,\); \(3,\) is needed"):
        kernels.rms_norm(x, 3, torch.zeros(2))
    with pytest.raises(TypeError, match="`residual` is of float64, and `input` of float32"):
        kernels.add_rms_norm(x, x.double(), 3)
    with pytest.raises(TypeError, match="`input` is a tensor of PyTorch, and `weight` an array"):
        kernels.layer_norm(x, 3, np.zeros(3))
