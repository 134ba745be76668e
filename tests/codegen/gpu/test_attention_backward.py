"""The backward pass of attention: five products of an iteration, and a sum in memory."""

from __future__ import annotations

import itertools
import math
import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.systems import TILEWRIGHT, load
from tests.codegen.gpu import harness

attention_backward_kernel = load(TILEWRIGHT, "attention_backward")["attention_backward_kernel"]
LOG2_E = math.log2(math.e)


@tw.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, sums_ptr, k_grad_ptr, v_grad_ptr, lse_ptr, delta_ptr,
    scale, scale_log2, length, heads, rows, columns, HEAD: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr, IS_TRANSPOSED: tl.constexpr,
):  # fmt: skip
    tall: tl.constexpr = [BLOCK_M, HEAD]
    wide: tl.constexpr = [BLOCK_N, HEAD]
    flat: tl.constexpr = [1, BLOCK_M]
    if IS_TRANSPOSED:
        sums = tl.make_tensor_descriptor(sums_ptr, [columns, length], [length, 1], [HEAD, BLOCK_M])
    else:
        sums = tl.make_tensor_descriptor(sums_ptr, [rows, HEAD], [HEAD, 1], tall)
    attention_backward_kernel(
        tl.make_tensor_descriptor(q_ptr, [rows, HEAD], [HEAD, 1], tall),
        tl.make_tensor_descriptor(k_ptr, [rows, HEAD], [HEAD, 1], wide),
        tl.make_tensor_descriptor(v_ptr, [rows, HEAD], [HEAD, 1], wide),
        tl.make_tensor_descriptor(grad_ptr, [rows, HEAD], [HEAD, 1], tall),
        sums,
        tl.make_tensor_descriptor(k_grad_ptr, [rows, HEAD], [HEAD, 1], wide),
        tl.make_tensor_descriptor(v_grad_ptr, [rows, HEAD], [HEAD, 1], wide),
        tl.make_tensor_descriptor(lse_ptr, [heads, length], [length, 1], flat),
        tl.make_tensor_descriptor(delta_ptr, [heads, length], [length, 1], flat),
        scale, scale_log2, length, HEAD, BLOCK_M, BLOCK_N, IS_CAUSAL, IS_TRANSPOSED,
    )  # fmt: skip


def exact_gradients(q, k, v, grad, is_causal):
    """The gradients of queries, keys and values, and what the forward pass leaves."""
    scale = q.shape[-1] ** -0.5
    logits = q @ k.swapaxes(-1, -2) * scale
    if is_causal:
        logits[..., np.triu(np.ones(logits.shape[-2:], np.bool_), 1)] = -np.inf
    top = logits.max(axis=-1, keepdims=True)
    lse = top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    p = np.exp(logits - lse)
    delta = ((p @ v) * grad).sum(axis=-1)
    ds = p * (grad @ v.swapaxes(-1, -2) - delta[..., None]) * scale
    turned = ds.swapaxes(-1, -2)
    return ds @ k, turned @ q, p.swapaxes(-1, -2) @ grad, lse[..., 0] * LOG2_E, delta


def arguments(heads, length, head, *, is_causal, is_transposed):
    """The arguments of the kernel before the constants, and the exact gradients."""
    random = np.random.default_rng(0)
    rounded = [
        random.standard_normal((heads, length, head)).astype(ml_dtypes.bfloat16) for _ in range(4)
    ]
    *exact, lse, delta = exact_gradients(*(x.astype(np.float64) for x in rounded), is_causal)
    sums = np.zeros((heads, head, length) if is_transposed else (heads, length, head), np.float32)
    k_grad, v_grad = (np.zeros_like(rounded[0]) for _ in range(2))
    values = [
        *rounded, sums, k_grad, v_grad, lse.astype(np.float32), delta.astype(np.float32),
        head**-0.5, head**-0.5 * LOG2_E, length, heads, heads * length, heads * head,
    ]  # fmt: skip
    return values, exact


@pytest.mark.parametrize(
    ("is_causal", "is_transposed"),
    [
        (False, False),
        pytest.param(True, True, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("head", "blocks", "num_warps", "num_stages"),
    [
        (64, (64, 64), 4, 2),
        pytest.param(64, (64, 128), 8, 3, marks=pytest.mark.slow),
        pytest.param(128, (64, 128), 8, 2, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_close_to_exact_ones(
    head, blocks, num_warps, num_stages, is_causal, is_transposed
):  # fmt: skip
    values, exact = arguments(2, 256, head, is_causal=is_causal, is_transposed=is_transposed)
    pairs = harness.run_both(
        backward_kernel, (256 // blocks[1], 2), values, num_warps=num_warps,
        num_stages=num_stages, HEAD=head, BLOCK_M=blocks[0], BLOCK_N=blocks[1],
        IS_CAUSAL=is_causal, IS_TRANSPOSED=is_transposed,
    )  # fmt: skip
    summed = pairs[4][1].swapaxes(1, 2) if is_transposed else pairs[4][1]
    found = summed * head**-0.5, pairs[5][1], pairs[6][1]
    for gradient, right in zip(found, exact, strict=True):
        error = np.abs(gradient.astype(np.float64) - right).max()
        assert error < 0.02 * np.abs(right).max()


def test_products_run_while_threads_work_on_others():
    values, _ = arguments(1, 256, 128, is_causal=False, is_transposed=False)
    constants = {"HEAD": 128, "BLOCK_M": 64, "BLOCK_N": 128}
    constants |= {"IS_CAUSAL": False, "IS_TRANSPOSED": False}
    ptx = harness.ptx_of(backward_kernel, values, num_warps=8, num_stages=2, **constants)
    words = "wgmma.commit_group|wgmma.wait_group.sync.aligned (\\d)|(ex2)|(stmatrix)"
    found = re.finditer(words, ptx[ptx.index("wgmma.fence") :])
    steps = [next(filter(None, step.groups()), "start") for step in found]
    assert [step for step, _ in itertools.groupby(steps)][:8] == [
        "start", "1", "ex2", "start", "1", "stmatrix", "start", "1",
    ]  # fmt: skip
    assert ptx.count("wgmma.wait_group.sync.aligned 0") == 1  # where the iteration ends
    # Threads meet before the shared operand is put, before it is read, and before the sums are.
    assert (
        len(re.findall(r"bar\.sync", ptx[ptx.index("wgmma.fence") : ptx.index("cp.reduce")])) == 3
    )
    assert "ldmatrix" not in ptx  # the product that takes it transposed reads it from there
