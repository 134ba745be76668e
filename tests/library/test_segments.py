"""Reductions of segments, and embeddings, whose gradients are such."""

import functools

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
LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=4) | st.just([3000, 0, 1])


def reference(data, reduce, lengths):
    functions = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}
    empty = {"sum": 0.0, "mean": float("nan"), "max": -float("inf"), "min": float("inf")}
    return torch.stack(
        [
            functions[reduce](part, 0)
            if len(part)
            else torch.full(part.shape[1:], empty[reduce], dtype=part.dtype, device=part.device)
            for part in data.split(lengths)
        ]
    )


@given(
    lengths=LENGTHS,
    inner=st.sampled_from([(), (3,), (2, 300)]),
    reduce=st.sampled_from(["sum", "mean", "max", "min"]),
    dtype=dtypes,
    layout=layouts,
)
@examples(25)
def test_segments_agree_with_the_formula(device, lengths, inner, reduce, dtype, layout):
    if sum(lengths) > 1000 and inner:
        inner = (3,)
    data = tensor((sum(lengths), *inner), dtype, device, layout)
    agrees(
        lambda x: kernels.segment_reduce(x, reduce, lengths=torch.tensor(lengths, device=device)),
        lambda x: reference(x, reduce, lengths),
        data,
        factor=4,
    )


@given(
    shape=st.sampled_from([(), (0,), (5,), (3, 40)]),
    table=st.sampled_from([(1, 3), (9, 70)]),
    dtype=dtypes,
    layout=layouts,
    padded=st.booleans(),
)
@examples(12)
def test_embedding_agrees_with_pytorch(device, shape, table, dtype, layout, padded):
    index = torch.randint(0, table[0], shape, device=device)
    weight = tensor(table, dtype, device, layout)
    padding = -1 if padded else None
    agrees(
        lambda weight: kernels.embedding(index, weight, padding),
        lambda weight: F.embedding(index, weight, padding),
        weight,
    )


@pytest.mark.parametrize("runs", [[65, 64, 1, 200], [63, 129, 130, 1], [300]])
def test_gradients_of_rows_that_are_looked_up_often(device, runs):
    index = torch.repeat_interleave(torch.arange(len(runs)) + 1, torch.tensor(runs))
    index = index[torch.randperm(len(index))].to(device)
    weight = tensor((len(runs) + 2, 3), device=device)
    for padding in (None, 1):
        case = functools.partial(kernels.embedding, index, padding_idx=padding)
        agrees(case, functools.partial(F.embedding, index, padding_idx=padding), weight)
    same_bits_again(case, weight)


def test_derivatives(device):
    data, offsets = tensor((5, 2), "float64", device), torch.tensor([0, 2, 2, 5], device=device)
    index = torch.tensor([0, 4, 4], device=device)
    cases = [
        lambda x: kernels.segment_reduce(x, "mean", offsets=offsets),
        lambda x: kernels.segment_reduce(x, "max", offsets=offsets[1:]),
        lambda x: kernels.embedding(index, x),
    ]
    for case in cases:
        if case is not cases[0]:
            assert torch.autograd.gradcheck(lambda x, case=case: case(x).nan_to_num(0, 0, 0), data)
        compiles(case, data)
        same_bits_again(case, data)
    actual = torch.func.grad(lambda x: cases[2](x).square().sum())(data.detach())
    expected = torch.func.grad(lambda x: F.embedding(index, x).square().sum())(data.detach())
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    data, offsets = tensor((5, 2), device=device), torch.tensor([0, 2, 5], device=device)
    holds_contracts(torch.ops.tilewright.segment_reduce.default, data, offsets, "max")
    holds_contracts(torch.ops.tilewright.embedding.default, offsets[:2], data, 1)


def test_nan_is_an_extreme(device):
    data = torch.tensor([1.0, float("nan"), 2.0], device=device)
    lengths = torch.tensor([2, 1], device=device)
    assert kernels.segment_reduce(data, "max", lengths=lengths).isnan().tolist() == [True, False]


def test_numpy_arrays():
    data = np.random.default_rng(0).standard_normal((6, 2), dtype=np.float32)
    actual = kernels.segment_reduce(data, "min", offsets=np.array([0, 4, 6]))
    np.testing.assert_array_equal(actual, [data[:4].min(0), data[4:].min(0)])
    np.testing.assert_array_equal(kernels.embedding(np.array([[5], [0]]), data), data[[[5], [0]]])


def test_on_an_emulated_gpu():
    data, lengths = tensor((20, 3)), torch.tensor([7, 0, 13])
    index = torch.randint(0, 20, (9,))
    with tw.emulate("sm_90a", races=True):
        for reduce in ("sum", "max"):
            agrees(
                lambda x, r=reduce: kernels.segment_reduce(x, r, lengths=lengths),
                lambda x, r=reduce: reference(x, r, lengths.tolist()),
                data,
            )
        agrees(lambda x: kernels.embedding(index, x), lambda x: F.embedding(index, x), data)


def test_arguments_that_cannot_be():
    data, index = torch.zeros(3, 2), torch.tensor([0, 3])
    with pytest.raises(ValueError, match="one of `lengths` and `offsets` is needed"):
        kernels.segment_reduce(data, "sum")
    with pytest.raises(ValueError, match="`reduce` is 'prod'; one of 'sum', 'mean', 'max', 'min'"):
        kernels.segment_reduce(data, "prod", offsets=index)
    with pytest.raises(IndexError, match="`padding_idx` is 3, and the table has 3 rows"):
        kernels.embedding(index, data, 3)
    assert kernels.embedding(index, data).isnan().tolist() == [[False, False], [True, True]]
