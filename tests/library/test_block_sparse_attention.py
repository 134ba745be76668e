"""Attention among some blocks of queries and keys, in one pass over lists of these."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.attention_cases import only, operands, positions, written_out
from tests.library.checking import (
    agrees,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels.attention import tiles
from tilewright.kernels.attention.operator import Extras


def some_blocks(shape, share=0.5, device="cpu"):
    """Of (heads, rows, columns), and a row and a column of none."""
    layout = torch.rand(shape, device=device) < share
    layout[0, 0], layout[-1, :, -1] = False, False
    return layout


def seen_in(layout, size, queries, keys):
    """Which keys each query sees, by the blocks."""
    return layout.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :queries, :keys]


def case(queries, keys, size, heads, key_heads, width, dtype="float32", device="cpu", **kinds):
    """Ours, the reference and the operands; `kinds` are `alike`, `share` and arguments of ours."""
    alike, share = kinds.pop("alike", False), kinds.pop("share", 0.5)
    shape = (1 if alike else heads, tw.cdiv(queries, size), tw.cdiv(keys, size))
    layout = some_blocks(shape, share, device)
    sparsity = kernels.BlockSparsity(layout, size)
    lengths = kinds.get("key_lengths")

    def reference(logits):
        query, key = positions(logits, kinds.get("offset", 0))
        seen = seen_in(layout, size, queries, keys)
        seen = seen & (key <= query) if kinds.get("is_causal") else seen
        seen = seen if lengths is None else seen & (key < lengths.view(-1, 1, 1, 1))
        return only(logits, seen)

    def function(q, k, v):
        return kernels.block_sparse_attention(q, k, v, sparsity, enable_gqa=True, **kinds)

    inputs = operands(2, heads, key_heads, queries, keys, width, dtype, device)
    return function, written_out(reference), inputs


@given(
    queries=st.integers(1, 300),
    keys=st.integers(1, 300) | st.sampled_from([128, 256]),
    size=st.sampled_from([16, 32, 64, 128, 256]),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    width=st.integers(1, 130) | st.sampled_from([8, 64, 128, 256]),
    dtype=dtypes,
    alike=st.booleans(),
    is_causal=st.booleans(),
    offset=st.sampled_from([0, 0, -40, 70]),
    has_lengths=st.booleans(),
    share=st.sampled_from([0.0, 0.2, 0.9]),
)
@examples(40)
@pytest.mark.slow
def test_agrees_with_its_definition(device, heads, has_lengths, **kinds):
    if has_lengths:
        keys = kinds["keys"]
        lengths = torch.randint(0, keys + 1, (2,), dtype=torch.int32, device=device)
        kinds["key_lengths"] = lengths
    function, reference, inputs = case(heads=heads[0], key_heads=heads[1], device=device, **kinds)
    agrees(function, reference, *inputs, factor=2)


@pytest.mark.parametrize(
    "kinds",
    [
        {"queries": 128, "keys": 256, "size": 64},
        {"queries": 100, "keys": 90, "size": 16, "is_causal": True, "offset": 7},
        {"queries": 300, "keys": 290, "size": 128, "alike": True, "is_causal": True},
    ],
)
def test_agrees_with_its_definition_here(device, kinds):
    function, reference, inputs = case(heads=4, key_heads=2, width=24, device=device, **kinds)
    agrees(function, reference, *inputs)


def test_lists_of_which_much_is_out_of_bounds(device):
    kinds = {"is_causal": True, "offset": 500, "share": 0.95}
    function, reference, inputs = case(90, 700, 16, 1, 1, 16, device=device, **kinds)
    agrees(function, reference, *inputs)


def test_lengths_of_keys(device):
    lengths = torch.tensor([0, 130], dtype=torch.int32, device=device)
    function, reference, inputs = case(
        96, 200, 32, 2, 1, 16, "bfloat16", device, key_lengths=lengths
    )
    agrees(function, reference, *inputs)


def test_beside_other_arguments_of_attention(device):
    layout = some_blocks((2, 3, 4), 0.6, device)
    sparsity = kernels.BlockSparsity(layout, 32)
    q, k, v = operands(1, 2, 2, 96, 128, 16, device=device)
    bias = tensor((2, 96, 128), device=device)

    def function(q, k, v, bias):
        return kernels.attention(q, k, v, bias, window=(40, 20), softcap=2.0, sparsity=sparsity)

    def reference(logits, bias):
        query, key = positions(logits)
        seen = seen_in(layout, 32, 96, 128) & (key >= query - 40) & (key <= query + 20)
        return only(2 * torch.tanh(logits / 2) + bias, seen)

    agrees(function, written_out(reference), q, k, v, bias)


def test_work_is_that_of_blocks_that_are_there():
    """What is not there is never read: it may be NaN."""
    layout = torch.eye(4, dtype=torch.bool)
    sparsity = kernels.BlockSparsity(layout, 16)
    q, k, v = operands(1, 1, 1, 64, 64, 16)
    kept = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    out = kernels.block_sparse_attention(q, k, v, sparsity)
    with torch.no_grad():
        for x in kept:
            x[:, :, 16:] = torch.nan
    other = kernels.block_sparse_attention(*kept, sparsity)
    torch.testing.assert_close(other[:, :, :16], out[:, :, :16], rtol=0, atol=0)
    gradients = torch.autograd.grad(other[:, :, :16].sum(), kept)
    expected = torch.autograd.grad(out[:, :, :16].sum(), (q, k, v))
    for actual, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(actual[:, :, :16], right[:, :, :16], rtol=0, atol=0)


def test_derivatives(device):
    layout = torch.tensor([[True, False, True], [False, False, False], [True, True, False]])
    sparsity = kernels.BlockSparsity(layout.to(device), 16)
    q, k, v = operands(1, 2, 1, 35, 40, 3, "float64", device)

    def function(q, k, v):
        return kernels.block_sparse_attention(
            q, k, v, sparsity, True, 0.25, enable_gqa=True, offset=5
        )

    assert torch.autograd.gradcheck(function, (q, k, v), fast_mode=True)
    assert not function(q, k, v)[:, :, 16:32].any()  # a row of no block
    compiles(function, q, k, v)
    same_bits_again(function, q, k, v)
    mask = seen_in(layout[None].to(device), 16, 35, 40)
    mask = mask & (torch.arange(40, device=device) <= torch.arange(35, device=device)[:, None] + 5)
    reference = written_out(lambda logits: only(logits * 0.25 * 3**0.5, mask))
    actual = torch.func.grad(lambda q: function(q, k, v).sum())(q)
    expected = torch.func.grad(lambda q: reference(q, k, v).sum())(q)
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    sparsity = kernels.BlockSparsity(torch.ones(2, 3, dtype=torch.bool, device=device), 16)
    q, k, v = operands(1, 2, 2, 20, 40, 8, device=device)
    extras = Extras(tensors=[], scale=0.5, blocks=sparsity.table, sparsity=[1, 2, 3, 6, 16])
    holds_contracts(torch.ops.tilewright.attention.default, q, k, v, *extras)


def test_autocast_computes_in_lower_precision(device):
    sparsity = kernels.BlockSparsity(torch.ones(1, 1, dtype=torch.bool, device=device), 16)
    q, k, v = operands(1, 1, 1, 3, 5, 8, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert kernels.block_sparse_attention(q, k, v, sparsity).dtype == torch.bfloat16


def test_no_blocks_and_no_rows(device):
    sparsity = kernels.BlockSparsity(torch.zeros(2, 2, dtype=torch.bool, device=device), 16)
    q, k, v = operands(1, 1, 1, 32, 32, 8, device=device)
    out = kernels.block_sparse_attention(q, k, v, sparsity)
    assert not out.any()
    assert not any(x.any() for x in torch.autograd.grad(out.sum(), (q, k, v)))
    sparsity = kernels.BlockSparsity(torch.zeros(0, 2, dtype=torch.bool, device=device), 16)
    assert kernels.block_sparse_attention(q[:, :, :0], k, v, sparsity).shape == (1, 1, 0, 8)


def test_numpy_arrays():
    layout = some_blocks((2, 2, 3))
    q, k, v = (x.detach() for x in operands(1, 2, 2, 20, 40, 8))
    expected = kernels.block_sparse_attention(q, k, v, kernels.BlockSparsity(layout, 16))
    sparsity = kernels.BlockSparsity(layout.numpy(), 16)
    actual = kernels.block_sparse_attention(q.numpy(), k.numpy(), v.numpy(), sparsity)
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-6)


def test_arguments_that_cannot_be():
    q, k, v = operands(1, 4, 2, 40, 64, 8)
    sparsity = kernels.BlockSparsity(torch.ones(2, 4).bool(), 16)
    with pytest.raises(ValueError, match="`query` has 4 heads, and `key` 2: `enable_gqa=True`"):
        kernels.block_sparse_attention(q, k, v, sparsity)
    wrong = (
        r"`sparsity` is of \(1, 2, 4\) blocks of 16; for 40 queries and 64 keys, \(heads, 3, 4\)"
    )
    with pytest.raises(ValueError, match=wrong + " with 4 heads or 1 are needed"):
        kernels.block_sparse_attention(q, k, v, sparsity, enable_gqa=True)
    with pytest.raises(TypeError, match="`sparsity` is a Tensor; a BlockSparsity is needed"):
        kernels.block_sparse_attention(q, k, v, torch.ones(3, 4).bool(), enable_gqa=True)
    of_numpy = kernels.BlockSparsity(np.ones((3, 4), bool), 16)
    with pytest.raises(TypeError, match="all have to be of one kind"):
        kernels.block_sparse_attention(q, k, v, of_numpy, enable_gqa=True)


@pytest.mark.parametrize(
    ("size", "is_causal"),
    [(16, True), (64, False), pytest.param(128, True, marks=pytest.mark.slow)],
)
def test_on_an_emulated_gpu(monkeypatch, size, is_causal):
    monkeypatch.setattr(tiles, "on_cpu", lambda _: False)
    function, reference, inputs = case(
        2 * size, 256, size, 2, 1, 64, "bfloat16", is_causal=is_causal, offset=40
    )
    with tw.emulate("sm_90a", races=True):
        agrees(function, reference, *inputs)
