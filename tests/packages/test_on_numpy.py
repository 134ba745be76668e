"""Kernels of a published package on NumPy arrays, without PyTorch: a part of every `make test`.

Its host code, which is for tensors of PyTorch, is not used.
"""

import importlib
import importlib.util
import sys
import types

import numpy as np
import pytest

RANDOM = np.random.default_rng(0)

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


@pytest.fixture
def conch(monkeypatch):
    """`conch(module)` imports a module of kernels; PyTorch is a stand-in where it is missing."""
    pytest.importorskip("conch")
    if importlib.util.find_spec("torch") is None:
        stand_in = types.ModuleType("torch")
        stand_in.Tensor = np.ndarray
        monkeypatch.setitem(sys.modules, "torch", stand_in)

    def load(name):
        module = importlib.import_module(f"conch.kernels.{name}")
        monkeypatch.delitem(sys.modules, module.__name__)
        return module

    return load


def test_silu_and_product(conch):
    kernel = conch("activation.silu_and_mul")._silu_and_mul_kernel
    x = RANDOM.standard_normal((9, 2 * 85), dtype=np.float32)
    out = np.empty((9, 85), np.float32)
    kernel[(9,)](out, x, *strides(out)[:1], *strides(x)[:1], 85, cxpr_block_size=64)
    np.testing.assert_allclose(out, x[:, :85] / (1 + np.exp(-x[:, :85])) * x[:, 85:], rtol=1e-5)


@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(conch, with_residual):
    kernel = conch("normalization.rms_norm")._rms_norm_kernel
    x, residual = RANDOM.standard_normal((2, 9, 100), dtype=np.float32)
    weight = RANDOM.standard_normal(100, dtype=np.float32)
    out, total = x.copy(), x + residual if with_residual else x
    kernel[(9,)](out, out, residual, weight, 100, 1e-6, 128, with_residual)
    expected = total / np.sqrt((total * total).mean(-1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(out, expected, rtol=2e-5)
    if with_residual:
        np.testing.assert_array_equal(residual, total)


def test_rotary_embeddings(conch):
    kernel = conch("embedding.rotary_embedding")._rotary_embedding_kernel
    q, k = (RANDOM.standard_normal((7, heads, 24), dtype=np.float32) for heads in (4, 2))
    angles = np.arange(50)[:, None] * 100.0 ** -(np.arange(12) / 12)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    places = RANDOM.permutation(50)[:7].astype(np.int32)
    expected = []
    for x in (q, k):
        low, high, c, s = x[..., :12], x[..., 12:], cos[places, None], sin[places, None]
        expected.append(np.concatenate([low * c - high * s, high * c + low * s], axis=-1))
    table = np.concatenate([cos, sin], axis=1)
    kernel[(7,)](places, q, k, table, 24, *strides(q)[:1], *strides(k)[:1], 4, 2, 24, 32)
    for found, other in zip((q, k), expected, strict=True):
        np.testing.assert_allclose(found, other, atol=1e-6)


def test_boxes_that_overlap_better_ones(conch):
    module = conch("vision.nms")
    count, most = 60, 0.3
    boxes = RANDOM.uniform(0, 100, (count, 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2]
    overlaps, kept = np.zeros((count, count), np.bool_), np.ones(count, np.bool_)
    module._create_iou_mask_kernel.fn[(count,)](boxes, overlaps, count, most, 4, count, 16)
    module._nms_suppression_kernel.fn[(1,)](overlaps, kept, count, count, 32)
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    shared = np.maximum(high - low, 0).prod(-1)
    too_close = shared / (areas[:, None] + areas - shared) > most
    expected = np.ones(count, np.bool_)
    for box in range(count):
        expected[box + 1 :] &= not expected[box] or ~too_close[box, box + 1 :]
    np.testing.assert_array_equal(kept, expected)
