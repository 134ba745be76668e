"""Running sums, the largest elements, and histograms."""

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
    gradients,
    holds_contracts,
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels

SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple) | st.sampled_from(
    [(2, 5000), (20, 2, 3)]
)


@given(shape=SHAPES, dtype=dtypes, layout=layouts, data=st.data())
@examples(12)
def test_running_sums_agree_with_pytorch(device, shape, dtype, layout, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = tensor(shape, dtype, device, layout)
    agrees(lambda x: kernels.cumsum(x, dim), lambda x: torch.cumsum(x, dim), x, factor=3)


@given(
    shape=st.sampled_from([(1,), (7,), (3, 40), (4, 3, 5), (2, 5000), (0, 4)]),
    dtype=dtypes,
    layout=layouts,
    largest=st.booleans(),
    data=st.data(),
)
@examples(12)
def test_largest_elements_agree_with_pytorch(device, shape, dtype, layout, largest, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, min(shape[dim], 20)))
    x = tensor(shape, dtype, device, layout)
    values, index = kernels.topk(x, k, dim, largest)
    expected, _ = torch.topk(x, k, dim, largest)
    torch.testing.assert_close(values, expected, rtol=0, atol=0)
    torch.testing.assert_close(x.gather(dim, index), values, rtol=0, atol=0)
    upstream = torch.randn_like(values)
    (dx,) = gradients((values,), (x,), (upstream,))
    wanted = torch.zeros_like(x).scatter(dim, index, upstream)
    torch.testing.assert_close(dx, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("columns", "k"), [(40, 7), (5000, 20)])
def test_largest_elements_of_fp64(device, columns, k, largest):
    x = torch.randn((2, columns), dtype=torch.float64, device=device)
    x[:, ::3] = (4 * x[:, ::3]).round() / 4  # many are equal
    x[:, 10:14] = 3 + torch.arange(4, dtype=torch.float64, device=device) * 1e-15
    x[0, 3], x[0, 7], x[1, 8] = float("nan"), float("nan"), -float("inf")
    values, index = kernels.topk(x, k, largest=largest)
    order = torch.sort(x, dim=1, descending=largest, stable=True).indices[:, :k]
    assert torch.equal(index, order)
    torch.testing.assert_close(values, x.gather(1, order), rtol=0, atol=0, equal_nan=True)


def test_ties_and_nan(device):
    x = torch.tensor([1.0, 2.0, float("nan"), 2.0, float("inf"), -0.5], device=device)
    values, index = kernels.topk(x, 6)
    assert index.tolist() == [2, 4, 1, 3, 0, 5]
    torch.testing.assert_close(values, x[index], equal_nan=True)
    assert kernels.topk(x, 2, largest=False)[1].tolist() == [5, 0]


@given(
    size=st.sampled_from([0, 1, 100, 5000]),
    bins=st.sampled_from([1, 7, 100, 5000]),
    bounds=st.sampled_from([(0, 0), (-1, 2)]),
    dtype=dtypes,
)
@examples(12)
def test_histograms_agree_with_numpy(device, size, bins, bounds, dtype):
    x = tensor((size,), dtype, device, requires_grad=False)
    actual = kernels.histc(x, bins, *bounds).double().cpu().numpy()
    counted = size if bounds == (0, 0) else ((x >= -1) & (x <= 2)).sum().item()
    # Counts are numbers of the input's dtype.
    rounding = torch.finfo(x.dtype).eps * size
    assert abs(actual.sum() - counted) <= rounding
    if size and bounds != (0, 0):
        expected, _ = np.histogram(x.double().cpu().numpy(), bins, bounds)
        # A number beside an edge may be on the other side of it in fp32.
        assert np.abs(np.cumsum(actual) - np.cumsum(expected)).max() <= 2 + rounding


def test_derivatives(device):
    x = tensor((3, 5), "float64", device)
    assert torch.autograd.gradcheck(lambda x: kernels.cumsum(x, 1), x)
    for case in (lambda x: kernels.cumsum(x, 0), lambda x: kernels.topk(x.float(), 2)[0]):
        compiles(case, x)
        same_bits_again(case, x)
    actual = torch.func.grad(lambda x: kernels.cumsum(x, 1).square().sum())(x.detach())
    expected = torch.func.grad(lambda x: torch.cumsum(x, 1).square().sum())(x.detach())
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x = tensor((3, 5), device=device)
    holds_contracts(torch.ops.tilewright.cumsum.default, x, 1, True)
    holds_contracts(torch.ops.tilewright.topk.default, x, 2, 1, True)
    holds_contracts(torch.ops.tilewright.histc.default, x.detach(), 4, 0.0, 1.0)


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 40), dtype=np.float32)
    np.testing.assert_allclose(kernels.cumsum(x, 1), np.cumsum(x, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(kernels.topk(x, 3)[0], np.sort(x, 1)[:, :-4:-1])
    assert kernels.histc(x, 10).sum() == 120


def test_on_an_emulated_gpu():
    x = tensor((3, 40))
    with tw.emulate("sm_90a", races=True):
        agrees(lambda x: kernels.cumsum(x, 1), lambda x: torch.cumsum(x, 1), x)
        agrees(lambda x: kernels.topk(x, 3)[0], lambda x: torch.topk(x, 3)[0], x)
        assert kernels.histc(x.detach(), 10).sum() == 120


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="`k` is 4, and `input` has 3 elements along `dim`"):
        kernels.topk(x, 4)
    with pytest.raises(TypeError, match="`input` is of int64; one of float16, bfloat16, float32"):
        kernels.topk(x.long(), 1)
    with pytest.raises(ValueError, match="`bins` is 0, `min` 0 and `max` 0; there is no such"):
        kernels.histc(x, 0)
