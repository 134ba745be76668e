"""Products and softmax of matrices of which only some blocks are there."""

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

SIZE = 16


def random_layout(heads, rows, columns, device="cpu"):
    """Half of the blocks, and a row and a column of none."""
    layout = torch.rand((heads, rows, columns), device=device) < 0.5
    layout[0, 0], layout[-1, :, -1] = False, False
    return layout


def mask_of(layout, size=SIZE):
    return layout.repeat_interleave(size, -2).repeat_interleave(size, -1)


def dense(values, layout):
    """The matrix of blocks, with zeros where there are none."""
    heads, rows, columns = layout.shape
    size = values.shape[-1]
    out = values.new_zeros((values.shape[0], heads, rows, columns, size, size))
    index = layout.nonzero().unbind(1)
    out = out.index_put(_at(index, values.shape[0]), values)
    return out.transpose(3, 4).reshape(values.shape[0], heads, rows * size, columns * size)


def _at(index, batch):
    first = torch.arange(batch, device=index[0].device)[:, None]
    return (first, *(i[None] for i in index))


def blocks(x, layout, size=SIZE):
    """The blocks of a matrix that are there."""
    _, rows, columns = layout.shape
    x = x.unflatten(3, (columns, size)).unflatten(2, (rows, size)).transpose(3, 4)
    return x[_at(layout.nonzero().unbind(1), x.shape[0])]


@given(
    heads=st.integers(1, 2),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    depth=st.integers(1, 40),
    size=st.sampled_from([16, 32]),
    dtype=dtypes,
    layout=layouts,
)
@examples(3)
def test_products(device, heads, rows, columns, depth, size, dtype, layout):
    there = random_layout(heads, rows, columns, device)
    sparsity = kernels.BlockSparsity(there, size)
    a = tensor((2, heads, rows * size, depth), dtype, device, layout)
    b = tensor((2, heads, depth, columns * size), dtype, device, layout)
    agrees(
        lambda a, b: kernels.sdd_matmul(a, b, sparsity),
        lambda a, b: blocks(a @ b, there, size),
        *(a, b),
    )
    values = tensor((2, sparsity.blocks, size, size), dtype, device)
    b = tensor((2, heads, columns * size, depth), dtype, device, layout)
    agrees(
        lambda v, b: kernels.dsd_matmul(v, b, sparsity), lambda v, b: dense(v, there) @ b, values, b
    )
    a = tensor((2, heads, depth, rows * size), dtype, device, layout)
    agrees(
        lambda a, v: kernels.dds_matmul(a, v, sparsity), lambda a, v: a @ dense(v, there), a, values
    )


def softmax(values, layout, scale=1.0, causal=False):
    """Of whole rows: those of nothing are left out by `blocks`."""
    size = values.shape[-1]
    x = dense(values, layout) * scale
    mask = mask_of(layout, size)
    if causal:
        mask = mask & torch.ones_like(mask, dtype=torch.bool).tril()
    x = x.masked_fill(~mask, -float("inf"))
    # Rows of nothing have no result, and none of their gradient may be NaN.
    x = torch.where(mask.any(-1, keepdim=True), x, 0.0)
    return blocks(torch.softmax(x, -1), layout, size)


@pytest.mark.parametrize("causal", [False, True])
def test_softmax(device, causal):
    there = random_layout(2, 3, 3, device)
    there[:, range(3), range(3)] = True
    sparsity = kernels.BlockSparsity(there, SIZE)
    values = tensor((2, sparsity.blocks, SIZE, SIZE), device=device)
    agrees(
        lambda v: kernels.block_sparse_softmax(v, sparsity, 0.7, causal),
        lambda v: softmax(v, there, 0.7, causal),
        values,
    )


def attention(q, k, v, sparsity):
    """By products and softmax, as a user may write it where weights are needed, too."""
    scores = kernels.sdd_matmul(q, k.mT, sparsity)
    return kernels.dsd_matmul(kernels.block_sparse_softmax(scores, sparsity), v, sparsity)


def test_derivatives(device):
    there = random_layout(1, 2, 2, device) | torch.eye(2, device=device).bool()
    sparsity = kernels.BlockSparsity(there, SIZE)
    q, k, v = (tensor((1, 1, 2 * SIZE, 3), "float64", device) for _ in range(3))

    def function(q, k, v):
        return attention(q, k, v, sparsity)

    assert torch.autograd.gradcheck(function, (q, k, v), fast_mode=True)
    compiles(function, q, k, v)
    same_bits_again(function, q, k, v)
    values = tensor((1, sparsity.blocks, SIZE, SIZE), "float64", device)
    a = tensor((1, 1, 3, 2 * SIZE), "float64", device)
    assert torch.autograd.gradcheck(
        lambda a, v: kernels.dds_matmul(a, v, sparsity), (a, values), fast_mode=True
    )


def test_contracts_with_pytorch(device):
    there = random_layout(1, 2, 3, device)
    sparsity = kernels.BlockSparsity(there, SIZE)
    shape = [1, 2, 3, sparsity.blocks, SIZE]
    a, b = tensor((1, 1, 32, 5), device=device), tensor((1, 1, 5, 48), device=device)
    values = tensor((1, sparsity.blocks, SIZE, SIZE), device=device)
    operators = torch.ops.tilewright
    holds_contracts(operators.block_sparse_sdd.default, a, b, sparsity.table, shape)
    dense_one = tensor((1, 1, 48, 5), device=device)
    holds_contracts(
        operators.block_sparse_dsd.default, values, dense_one, sparsity.table, shape, False
    )
    holds_contracts(
        operators.block_sparse_softmax.default, values, sparsity.table, shape, 0.5, False
    )


def test_no_blocks(device):
    sparsity = kernels.BlockSparsity(torch.zeros(2, 2, device=device).bool(), SIZE)
    a = torch.randn(1, 1, 32, 32, device=device)
    values = kernels.sdd_matmul(a, a, sparsity)
    assert values.shape == (1, 0, SIZE, SIZE)
    assert not kernels.dsd_matmul(values, a, sparsity).any()
    assert kernels.block_sparse_softmax(values, sparsity).shape == values.shape


def test_numpy_arrays():
    there = random_layout(2, 2, 3)
    ours, theirs = kernels.BlockSparsity(there.numpy(), SIZE), kernels.BlockSparsity(there, SIZE)
    assert np.array_equal(ours.table, theirs.table.numpy())
    a, b = torch.randn(1, 2, 32, 9), torch.randn(1, 2, 9, 48)
    actual = kernels.sdd_matmul(a.numpy(), b.numpy(), ours)
    np.testing.assert_allclose(actual, kernels.sdd_matmul(a, b, theirs).numpy(), atol=1e-5)


def test_rows_that_begin_with_blocks_of_minus_infinity(device):
    there = torch.ones((1, 2, 4), dtype=torch.bool, device=device)
    values = tensor((1, 8, SIZE, SIZE), device=device, requires_grad=False)
    values[0, :2] = -float("inf")
    values[0, 2, 3:] = -float("inf")
    values[0, 4, 5] = -float("inf")
    values.requires_grad_()
    sparsity = kernels.BlockSparsity(there, SIZE)
    found = kernels.block_sparse_softmax(values, sparsity)
    agrees(
        lambda v: kernels.block_sparse_softmax(v, sparsity),
        lambda v: blocks(torch.softmax(dense(v, there), -1), there),
        values,
    )
    assert not found.isnan().any()
    assert (found[0, :2] == 0).all()


def test_on_an_emulated_gpu():
    there = random_layout(1, 2, 2) | torch.eye(2).bool()
    sparsity = kernels.BlockSparsity(there, SIZE)
    q, k, v = (tensor((1, 1, 2 * SIZE, 20), "float16") for _ in range(3))
    mask = mask_of(there)
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda q, k, v: attention(q, k, v, sparsity),
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=1.0
            ),
            *(q, k, v),
            factor=3,
        )


def test_arguments_that_cannot_be():
    sparsity = kernels.BlockSparsity(torch.eye(2).bool(), SIZE)
    a = torch.zeros(1, 1, 32, 5)
    with pytest.raises(ValueError, match="`size` is 24; a power of two"):
        kernels.BlockSparsity(torch.eye(2).bool(), 24)
    with pytest.raises(ValueError, match=r"`a` has the shape \(32, 5\); \(batch, 1, rows"):
        kernels.sdd_matmul(a[0, 0], a, sparsity)
    with pytest.raises(ValueError, match=r"`b` has the shape \(1, 1, 32, 5\); \(1, 1, 5, 32\)"):
        kernels.sdd_matmul(a, a, sparsity)
    with pytest.raises(ValueError, match=r"`values` has the shape \(1, 1, 16, 16\); \(1, 2, 16"):
        kernels.dsd_matmul(torch.zeros(1, 1, 16, 16), a, sparsity)
