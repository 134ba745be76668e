"""Sparse matrices by rows, and weights of two in four."""

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
from tilewright.kernels import semi_sparse


def pattern(rows, columns, device="cpu", part=0.3):
    """Where elements are: (crow_indices, col_indices), and the row of each."""
    mask = torch.rand(rows, columns, device=device) < part
    row, column = mask.nonzero().unbind(1)
    crow = torch.zeros(rows + 1, dtype=torch.int64, device=device)
    crow[1:] = mask.sum(1).cumsum(0)
    return crow, column, row


def dense(row, column, values, shape):
    return values.new_zeros(shape).index_put((row, column), values, accumulate=True)


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    width=st.sampled_from([1, 5, 70]),
    dtype=dtypes,
    layout=layouts,
)
@examples(4)
def test_products(device, rows, columns, width, dtype, layout):
    crow, column, row = pattern(rows, columns, device)
    values = tensor(column.shape, dtype, device)
    b = tensor((columns, width), dtype, device, layout)
    agrees(
        lambda v, b: kernels.spmm(crow, column, v, b),
        lambda v, b: dense(row, column, v, (rows, columns)) @ b,
        *(values, b),
    )
    a, b = tensor((rows, width), dtype, device, layout), tensor((width, columns), dtype, device)
    agrees(
        lambda a, b: kernels.sddmm(crow, column, a, b),
        lambda a, b: (a @ b)[row, column],
        *(a, b),
    )


def test_derivatives(device):
    crow, column, _ = pattern(4, 5, device, 0.5)
    values, b = tensor(column.shape, "float64", device), tensor((5, 3), "float64", device)
    a, c = tensor((4, 3), "float64", device), tensor((3, 5), "float64", device)

    def both(values, b, a, c):
        product = kernels.spmm(crow, column, values, b)
        return product, kernels.sddmm(crow, column, a, c)

    assert torch.autograd.gradcheck(both, (values, b, a, c))
    compiles(both, values, b, a, c)
    same_bits_again(both, values, b, a, c)


def test_elements_in_any_order(device):
    row = torch.tensor([2, 0, 2, 2], device=device)
    column = torch.tensor([1, 3, 0, 1], device=device)
    values, b = tensor((4,), device=device), tensor((4, 6), device=device)
    agrees(
        lambda v, b: kernels.spmm(*kernels.coo_to_csr(row, column, v, 3), b),
        lambda v, b: dense(row, column, v, (3, 4)) @ b,
        *(values, b),
    )


def test_contracts_with_pytorch(device):
    crow, column, _ = pattern(4, 5, device, 0.5)
    values, b = tensor(column.shape, device=device), tensor((5, 3), device=device)
    operators = torch.ops.tilewright
    holds_contracts(operators.sparse_spmm.default, crow, column, values, b)
    a, b = tensor((4, 3), device=device), tensor((3, 5), device=device)
    holds_contracts(operators.sparse_sddmm.default, crow, column, a, b)
    values, places = kernels.compress_semi_sparse(tensor((5, 16), device=device).detach())
    x = tensor((3, 16), device=device)
    values.requires_grad_()
    holds_contracts(operators.semi_sparse_linear.default, x, values, places)


def test_nothing(device):
    crow = torch.zeros(4, dtype=torch.int64, device=device)
    none = torch.zeros(0, device=device)
    b = torch.ones(2, 3, device=device)
    assert not kernels.spmm(crow, none.long(), none, b).any()
    assert kernels.sddmm(crow, none.long(), b.new_ones(3, 2), b).shape == (0,)


@given(
    batch=st.lists(st.integers(1, 5), max_size=2),
    rows=st.integers(1, 70),
    groups=st.integers(1, 5),
    dtype=dtypes,
    has_bias=st.booleans(),
)
@examples(3)
def test_two_in_four(device, batch, rows, groups, dtype, has_bias):
    weight = tensor((rows, 8 * groups), dtype, device)
    x = tensor((*batch, 8 * groups), dtype, device)
    bias = tensor((rows,), dtype, device) if has_bias else None
    values, places = kernels.compress_semi_sparse(weight.detach())
    whole = kernels.expand_semi_sparse(values, places)
    kept = whole.unflatten(1, (-1, 4)) != 0
    assert kept.sum(-1).max() <= 2
    assert torch.equal(whole, weight.detach() * kept.flatten(1))
    numbers = torch.arange(1.0, values.numel() + 1).view(values.shape)
    index = kernels.expand_semi_sparse(numbers, places.cpu())

    def reference(x, values, bias):
        full = values.new_zeros(index.shape).masked_scatter(index.to(device) > 0, values)
        return torch.nn.functional.linear(x, full, bias)

    agrees(
        lambda x, v, b: kernels.semi_sparse_linear(x, v, places, b),
        reference,
        *(x, values.requires_grad_(), bias),
    )


def test_derivatives_of_two_in_four(device):
    values, places = kernels.compress_semi_sparse(tensor((3, 8), "float64", device).detach())
    x = tensor((2, 8), "float64", device)

    def function(x, values):
        return kernels.semi_sparse_linear(x, values, places)

    inputs = (x, values.requires_grad_())
    assert torch.autograd.gradcheck(function, inputs)
    compiles(function, *inputs)
    same_bits_again(function, *inputs)


def test_numpy_arrays():
    crow, column, row = pattern(6, 7)
    values, b = torch.randn(column.shape), torch.randn(7, 3)
    actual = kernels.spmm(*(x.numpy() for x in (crow, column, values, b)))
    np.testing.assert_allclose(actual, (dense(row, column, values, (6, 7)) @ b).numpy(), atol=1e-5)
    weight, x = np.random.default_rng(0).standard_normal((2, 4, 16), dtype=np.float32)
    values, places = kernels.compress_semi_sparse(weight)
    expected = kernels.compress_semi_sparse(torch.from_numpy(weight))
    np.testing.assert_array_equal(places, expected[1].numpy())
    actual = kernels.semi_sparse_linear(x, values, places)
    expected = x @ kernels.expand_semi_sparse(values, places).T
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_on_an_emulated_gpu(monkeypatch):
    monkeypatch.setattr(semi_sparse, "on_cpu", lambda _: False)
    crow, column, row = pattern(6, 7)
    v, b = tensor(column.shape, "float16"), tensor((7, 40), "float16")
    values, places = kernels.compress_semi_sparse(tensor((20, 48), "float16").detach())
    x = tensor((5, 48), "float16")
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda v, b: kernels.spmm(crow, column, v, b),
            lambda v, b: dense(row, column, v, (6, 7)) @ b,
            *(v, b),
        )
        agrees(
            lambda x: kernels.semi_sparse_linear(x, values, places),
            lambda x: x @ kernels.expand_semi_sparse(values, places).double().mT,
            x,
        )


def test_arguments_that_cannot_be():
    crow, column, _ = pattern(4, 5)
    values, b = torch.zeros(column.shape), torch.zeros(5, 3)
    with pytest.raises(ValueError, match="`b` has 1 dimensions; 2 are needed"):
        kernels.spmm(crow, column, values, b[:, 0])
    with pytest.raises(
        TypeError, match=r"`values` is of torch\.float32, and `b` of torch\.float16"
    ):
        kernels.spmm(crow, column, values, b.half())
    with pytest.raises(ValueError, match=r"`values` has the shape \(1,\)"):
        kernels.spmm(crow, torch.cat([column, column]), values[:1], b)
    with pytest.raises(
        ValueError, match=r"`weight` has the shape \(2, 12\); \(N, K\), 8 divides K"
    ):
        kernels.compress_semi_sparse(torch.zeros(2, 12))
    with pytest.raises(ValueError, match=r"`places` has the shape \(2, 1\); \(2, 2\) is needed"):
        kernels.semi_sparse_linear(torch.zeros(1, 16), torch.zeros(2, 8), torch.zeros(2, 1).byte())


@pytest.mark.parametrize(("dtype", "rows", "depth"), [("float16", 3, 160), ("bfloat16", 17, 288)])
def test_few_rows_on_an_emulated_gpu(monkeypatch, dtype, rows, depth):
    monkeypatch.setattr(semi_sparse, "on_cpu", lambda _: False)
    monkeypatch.setattr(semi_sparse, "steps_for", lambda *_: 2)
    values, places = kernels.compress_semi_sparse(tensor((130, depth), dtype).detach())
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda x: kernels.semi_sparse_linear(x, values, places),
            lambda x: x @ kernels.expand_semi_sparse(values, places).double().mT,
            tensor((rows, depth), dtype),
            factor=4,
        )
