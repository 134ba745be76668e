"""A kernel of a published package on NumPy arrays, without PyTorch: a part of every `make test`."""

import numpy as np
import pytest

HEADS, GROUPS, SIZE, BLOCK = 4, 2, 24, 16
QUERIES, LENGTHS = [1, 5, 30], [40, 5, 61]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(q, keys, values, tables, *, softcap, window):
    """Causal attention, sequence by sequence, over keys and values gathered from their blocks."""
    out, first = np.empty_like(q), 0
    for table, count, length in zip(tables, QUERIES, LENGTHS, strict=True):
        k, v = (x[table].reshape(-1, GROUPS, SIZE)[:length] for x in (keys, values))
        k, v = (np.repeat(x, HEADS // GROUPS, axis=1) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q[first : first + count], k) / np.sqrt(SIZE)
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        behind = np.arange(length - count, length)[:, None] - np.arange(length)
        scores = np.where((behind >= 0) & (behind < (window or length)), scores, -np.inf)
        out[first : first + count] = np.einsum("hqk,khd->qhd", softmax(scores), v)
        first += count
    return out


def strides(x):
    return [stride // x.itemsize for stride in x.strides]


@pytest.mark.parametrize(("softcap", "window"), [(0.0, 0), (5.0, 0), (0.0, 12)])
def test_attention_over_blocks(softcap, window):
    name = "conch.third_party.vllm.unified_attention"
    kernel = pytest.importorskip(name, exc_type=ImportError).kernel_unified_attention_2d
    rng = np.random.default_rng(0)
    q = rng.standard_normal((sum(QUERIES), HEADS, SIZE), dtype=np.float32)
    keys, values = rng.standard_normal((2, 20, BLOCK, GROUPS, SIZE), dtype=np.float32)
    tables = rng.permutation(20)[:12].reshape(3, 4).astype(np.int32)
    out = np.zeros_like(q)
    rows = 16 // (HEADS // GROUPS)
    kernel[(q.shape[0] // rows + len(QUERIES), GROUPS)](
        *(out, q, keys, values, tables, np.array(LENGTHS, np.int32), None),
        *(SIZE**-0.5, None, None, softcap, HEADS, HEADS // GROUPS, tables.shape[1]),
        *strides(q)[:2],
        *strides(out)[:2],
        *(BLOCK, SIZE, 32, False, softcap > 0, window),
        *strides(keys),
        *strides(values),
        *(np.cumsum([0, *QUERIES]).astype(np.int32), rows, len(QUERIES)),
    )
    expected = reference(q, keys, values, tables, softcap=softcap, window=window)
    np.testing.assert_allclose(out, expected, atol=2e-5)
