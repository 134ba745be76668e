"""The kernels of the demonstration, at sizes that an emulated GPU can do."""

import numpy as np
import pytest

from examples import attention, matmul, rows, seed_matmul
from tests.executors import product_tolerance

pytestmark = pytest.mark.usefixtures("launched_on")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("is_tuned", [False, True])
def test_matmul(is_tuned):
    size = 256
    a, b = normal(2, size, size)
    out = np.empty((size, size), np.float32)
    if is_tuned:
        matmul.matmul(a, b, out, matmul.autotuned_matmul_kernel)
    else:
        seed_matmul.matmul(a, b, out)
    tolerance = product_tolerance(1e-3) * 10
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, atol=tolerance)


def test_softmax():
    x = normal(9, 4096)
    out = np.empty_like(x)
    rows.softmax(x, out)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), atol=1e-7)


def test_layer_norm():
    x, (weight, bias) = normal(9, 4096), normal(2, 4096, seed=1)
    out, (mean, rstd) = np.empty_like(x), np.empty((2, 9), np.float32)
    rows.layer_norm(x, weight, bias, out, mean, rstd)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    expected = centered / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(out, expected, atol=2e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = normal(3, 1, 2, 256, 64)
    out = np.empty_like(q)
    attention.attention(q, k, v, out, causal, block_m=64, block_n=64)
    logits = q.astype(np.float64) @ k.swapaxes(-1, -2) / 8
    if causal:
        logits = np.where(np.tri(256, dtype=bool), logits, -np.inf)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    expected = p @ v / p.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, expected, atol=product_tolerance(5e-6))
