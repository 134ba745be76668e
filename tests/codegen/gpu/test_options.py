"""Neither `num_warps`, `num_stages` nor `num_ctas` changes a result."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from examples import attention, rows
from examples.matmul import matmul_kernel
from tests.kernels.descriptors import matmul_persistent
from tilewright.tools.tensor_descriptor import TensorDescriptor

TARGETS = ["sm_80", "sm_90a"]
ALL = list(itertools.product([1, 2, 4, 8], [1, 2, 3, 4, 5]))
FEW = [(1, 5), (4, 2), (8, 3)]
CASES = [
    pytest.param(target, *options, marks=[] if options in FEW else pytest.mark.slow)
    for target in TARGETS
    for options in ALL
]
CLUSTERS = [
    pytest.param(target, *options, marks=[] if options in [(4, 2), (8, 16)] else pytest.mark.slow)
    for target in TARGETS
    for options in itertools.product([1, 2, 4, 8, 16, 32], [2, 4, 8, 16])
]
over_options = pytest.mark.parametrize(("target", "num_warps", "num_stages"), CASES)


def integers(*shape, dtype=np.float16, seed=0):
    """Numbers whose sums of products are exact in every order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@over_options
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_matmul(target, num_warps, num_stages, dtype):
    m, n, k = 60, 64, 200
    a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype, seed=1)
    out = np.zeros((m, n), np.float32)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
    with tw.emulate(target, races=True):
        matmul_kernel[(2,)](
            a, b, out, m, n, k, k, 1, n, 1, n, 1,
            **blocks, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@tw.jit
def mixed_kernel(x_ptr, index_ptr, out_ptr, steps, N: tl.constexpr):
    """A loop with loads that depend on loads, a scan, a store that is read again, and a branch."""
    i = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for step in range(steps):
        index = tl.load(index_ptr + step * N + i)
        x = tl.load(x_ptr + index)
        if step % 2 == 1:
            x = tl.cumsum(x, 0)
        total += x + tl.load(out_ptr + (N - 1 - i))
        tl.debug_barrier()
        tl.store(out_ptr + i, total)
    tl.store(out_ptr + N + i, total + tl.sum(total))


@over_options
def test_a_loop_that_does_much(target, num_warps, num_stages):
    n, steps = 128, 5
    x = integers(n, dtype=np.float32)
    index = np.random.default_rng(1).integers(0, n, (steps, n), np.int32)
    expected, out = np.zeros((2, 2 * n), np.float32)
    mixed_kernel.debug[(1,)](x, index, expected, steps, N=n)
    with tw.emulate(target, races=True):
        mixed_kernel[(1,)](
            x, index, out, steps, N=n, num_warps=num_warps, num_stages=num_stages
        )  # fmt: skip
    np.testing.assert_array_equal(out, expected)


@over_options
def test_within_rounding(target, num_warps, num_stages):
    options = {"num_warps": num_warps, "num_stages": num_stages}
    x, out = normal(3, 500), np.zeros((3, 500), np.float32)
    q, k, v = normal(3, 1, 1, 80, 32).astype(np.float16)
    mixed = np.zeros_like(q)
    with tw.emulate(target, races=True):
        rows.softmax_kernel[(3,)](x, out, 500, 500, 500, BLOCK=512, **options)
        attention.attention_kernel[(2, 1)](
            q, k, v, mixed, 0.25, 80, HEAD=32, BLOCK_M=64, BLOCK_N=16, CAUSAL=True, **options
        )
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)
    logits = (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * 0.25) * np.log(2)
    logits = np.where(np.tri(80, dtype=bool), logits, -np.inf)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    expected = p @ v.astype(np.float64) / p.sum(-1, keepdims=True)
    np.testing.assert_allclose(mixed.astype(np.float64), expected, atol=4e-3)


@pytest.mark.parametrize(("target", "num_warps", "num_ctas"), CLUSTERS)
def test_clusters_of_every_size(target, num_warps, num_ctas):
    """A program is one block, of as many warps as the cluster has or a block can have."""
    m, n, k, steps = 100, 72, 96, 3
    a, b, c = integers(m, k), integers(n, k, seed=1), np.zeros((m, n), np.float16)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}
    sides = [("M", "K"), ("N", "K"), ("M", "N")]
    descriptors = [
        TensorDescriptor.from_tensor(array, [blocks[f"BLOCK_{axis}"] for axis in axes])
        for array, axes in zip((a, b, c), sides, strict=True)
    ]
    x = integers(64, dtype=np.float32)
    index = np.random.default_rng(1).integers(0, 64, (steps, 64), np.int32)
    expected, out = np.zeros((2, 2 * 64), np.float32)
    mixed_kernel.debug[(1,)](x, index, expected, steps, N=64)
    options = {"num_warps": num_warps, "num_ctas": num_ctas}
    with tw.emulate(target, races=True):
        kernel = matmul_persistent[(2,)](
            *descriptors, m, n, k, **blocks, GROUP_M=2, PROGRAMS=2, HALVES=False, **options
        )
        mixed_kernel[(1,)](x, index, out, steps, N=64, **options)
    assert kernel.num_warps == min(num_warps * num_ctas, 32)
    np.testing.assert_array_equal(
        c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(c.dtype)
    )
    np.testing.assert_array_equal(out, expected)
