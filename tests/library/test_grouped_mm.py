"""Products of rows with the matrices of their groups."""

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
from tilewright.kernels.matmul import grouped


def reference(sizes):
    def function(x, weight):
        parts = x.split([*sizes, x.shape[0] - sum(sizes)])
        products = [part @ own for part, own in zip(parts, weight, strict=False)]
        return torch.cat([*products, parts[-1] @ weight[0] * 0])

    return function


def ends_of(sizes, device):
    return torch.tensor(np.cumsum(sizes), dtype=torch.int32, device=device)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 130, 256]), min_size=1, max_size=5),
    extra=st.sampled_from([0, 3]),
    k=st.sampled_from([8, 33, 130]),
    n=st.sampled_from([1, 64, 150]),
    dtype=dtypes,
    layout=layouts,
)
@examples(4)
def test_agrees_with_its_definition(device, sizes, extra, k, n, dtype, layout):
    x = tensor((sum(sizes) + extra, k), dtype, device, layout)
    weight = tensor((len(sizes), k, n), dtype, device, layout)
    ends = ends_of(sizes, device)

    def function(x, weight):
        return kernels.grouped_mm(x, weight, offs=ends)

    agrees(function, reference(sizes), x, weight, factor=4)


def test_derivatives_and_contracts(device):
    x, weight = (tensor(shape, "float64", device) for shape in ((5, 3), (3, 3, 4)))
    ends = ends_of([2, 0, 3], device)

    def function(x, weight):
        return kernels.grouped_mm(x, weight, offs=ends)

    assert torch.autograd.gradcheck(function, (x, weight))
    compiles(function, x, weight)
    same_bits_again(function, x, weight)
    holds_contracts(torch.ops.tilewright.grouped_mm.default, x, weight, ends)
    actual = torch.func.grad(lambda x: function(x, weight).sum())(x)
    expected = torch.func.grad(lambda x: reference([2, 0, 3])(x, weight).sum())(x)
    torch.testing.assert_close(actual, expected)


def test_arguments_that_cannot_be():
    ends = torch.tensor([2, 4], dtype=torch.int32)
    with pytest.raises(ValueError, match="`mat_b` has the shape"):
        kernels.grouped_mm(tensor((4, 3)), tensor((2, 4, 5)), offs=ends)
    with pytest.raises(ValueError, match="`offs` has the shape"):
        kernels.grouped_mm(tensor((4, 3)), tensor((3, 3, 5)), offs=ends)


def test_on_an_emulated_gpu(monkeypatch):
    monkeypatch.setattr(grouped, "on_cpu", lambda _: False)
    sizes = [100, 0, 70]
    x, weight = tensor((180, 72), "bfloat16"), tensor((3, 72, 40), "bfloat16")
    ends = ends_of(sizes, "cpu")

    def function(x, weight):
        return kernels.grouped_mm(x, weight, offs=ends)

    with tw.emulate("sm_90a", races=True):
        agrees(function, reference(sizes), x, weight, factor=4)
