"""Attention of new tokens to caches."""

import pytest
import torch

import tilewright as tw
from tests.library.checking import assert_close, compiles, holds_contracts, tensor
from tilewright import kernels
from tilewright.kernels.attention import decode


def reference(query, keys, values, lengths, window=None, slopes=None, cap=0.0):
    """Caches are (sequences, tokens, key heads, width); one sequence at a time."""
    results = []
    for q, k, v, length in zip(
        query.double(), keys.double(), values.double(), lengths, strict=True
    ):
        tokens, heads, width = q.shape
        own_k, own_v = (x[:length].repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
        logits = torch.einsum("qhd,khd->hqk", q, own_k) / width**0.5
        if cap:
            logits = cap * torch.tanh(logits / cap)
        position = torch.arange(tokens, device=q.device)[:, None] + length - tokens
        key = torch.arange(length, device=q.device)
        if slopes is not None:
            logits = logits - slopes.double()[:, None, None] * (position - key).abs()
        seen = key <= position
        if window is not None:
            seen &= key >= position - window
        weights = torch.softmax(logits.masked_fill(~seen, -torch.inf), -1).nan_to_num(0.0)
        results.append(torch.einsum("hqk,khd->qhd", weights, own_v))
    return torch.stack(results)


def caches(sequences, tokens, key_heads, width, dtype, device, page=16):
    """Caches of pages, their table, and the same as a row for each sequence."""
    pages = sequences * tokens // page
    paged = [
        tensor((pages, page, key_heads, width), dtype, device, requires_grad=False) for _ in "kv"
    ]
    table = torch.randperm(pages, device=device, dtype=torch.int32).view(sequences, -1)
    rows = [cache[table.long()].flatten(1, 2) for cache in paged]
    return paged, table, rows


@pytest.mark.parametrize(
    ("tokens", "heads", "width", "dtype", "splits"),
    [(1, 8, 64, "float32", 1), (3, 4, 40, "bfloat16", 4), (1, 2, 128, "float16", 2)],
)
def test_agrees_with_its_definition(device, monkeypatch, tokens, heads, width, dtype, splits):
    monkeypatch.setattr(decode, "_splits", lambda *_: splits)
    (keys, values), table, rows = caches(3, 160, 2, width, dtype, device)
    lengths = torch.tensor([160, 17, tokens], dtype=torch.int32, device=device)
    q = tensor((3, tokens, heads, width), dtype, device, requires_grad=False)
    actual = kernels.paged_attention(q, keys, values, table, lengths)
    assert_close(actual, reference(q, *rows, lengths.tolist()))
    others = {"window": 20, "alibi_slopes": torch.rand(heads, device=device), "softcap": 2.0}
    actual = kernels.decode_attention(q, *(x.transpose(1, 2) for x in rows), lengths, **others)
    assert_close(actual, reference(q, *rows, lengths.tolist(), *others.values()))


def test_parts_are_for_long_sequences():
    q = torch.empty(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "on_cpu", lambda _: False)
        assert decode._splits(q, 1, 100) == 1
        assert decode._splits(q, 8, 8192) == 32
        assert decode._splits(q, 8, 1024) == 4
        assert decode._splits(q, 500, 8192) == 1


def test_contracts_with_pytorch(device):
    (keys, values), table, _ = caches(2, 32, 1, 16, "float32", device)
    lengths = torch.tensor([20, 0], dtype=torch.int32, device=device)
    q = tensor((2, 1, 2, 16), device=device, requires_grad=False)
    operator = torch.ops.tilewright.decode_attention.default
    holds_contracts(operator, q, keys, values, table, lengths, None, [], 0.5, 0.0, -1, "", "")
    compiles(lambda q: kernels.paged_attention(q, keys, values, table, lengths), q)
    assert not kernels.paged_attention(q, keys, values, table, lengths)[1].any()


def test_arguments_that_cannot_be():
    (keys, values), table, _ = caches(2, 32, 2, 16, "float32", "cpu")
    lengths = torch.tensor([20, 30], dtype=torch.int32)
    q = tensor((2, 3, 16))
    with pytest.raises(ValueError, match="the 3 heads are no multiple of the cache's 2"):
        kernels.paged_attention(q, keys, values, table, lengths)
    with pytest.raises(ValueError, match="pages of 15 tokens"):
        kernels.paged_attention(q, keys[:, :15], values[:, :15], table, lengths)


def test_on_an_emulated_gpu(monkeypatch):
    monkeypatch.setattr(decode, "_splits", lambda *_: 2)
    (keys, values), table, rows = caches(1, 160, 1, 64, "bfloat16", "cpu")
    lengths = torch.tensor([150], dtype=torch.int32)
    q = tensor((1, 1, 4, 64), "bfloat16", requires_grad=False)
    with tw.emulate("sm_90a", races=True):
        actual = kernels.paged_attention(q, keys, values, table, lengths)
    assert_close(actual, reference(q, *rows, [150]))
