"""Products that no instruction multiplies: operands pass through shared memory, step by step."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.systems import TILEWRIGHT, load
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import check, kernel_of, numbers, small_integers

BF16 = ml_dtypes.bfloat16
LOG2_E = 1.4426950408889634
attention_kernel = load(TILEWRIGHT, "attention")["pointer_attention_kernel"]


@tw.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_ak, stride_bk, stride_bn,
    M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, K, BLOCK):
        acc = tl.dot(tl.load(a), tl.load(b), acc, input_precision="ieee")
        a += BLOCK * stride_ak
        b += BLOCK * stride_bk
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


def matrix(rows, columns, dtype, *, is_turned, seed=0):
    """A matrix, and how far apart its rows and columns are."""
    if is_turned:
        return small_integers((columns, rows), dtype, seed).T, (1, rows)
    return small_integers((rows, columns), dtype, seed), (columns, 1)


# On the first architecture operands are put into shared memory, on the other they are copied there.
@pytest.mark.parametrize("is_b_turned", [False, True])
@pytest.mark.parametrize("is_a_turned", [False, True])
@pytest.mark.parametrize(
    ("target", "dtype"), [("sm_75", BF16), ("sm_75", np.float32), ("sm_80", np.float32)]
)
def test_loads_are_16_bytes_wide_and_wait_for_no_bank(target, dtype, is_a_turned, is_b_turned):
    m, n, k = 64, 64, 64
    a, a_strides = matrix(m, k, dtype, is_turned=is_a_turned)
    b, b_strides = matrix(k, n, dtype, is_turned=is_b_turned, seed=1)
    c = np.zeros((m, n), np.float32)
    values = [a, b, c, k, *a_strides, *b_strides]
    function, raw = harness.lowered(matmul_kernel, values, {"M": m, "N": n, "BLOCK": 32})
    kernel = harness.compiled(function, harness.ARCHITECTURES[target], num_warps=2)
    assert "ld.shared.v4.b32" in kernel.ptx
    assert kernel.ptx.count("ld.shared") == kernel.ptx.count("ld.shared.v4.b32")
    options = {"races": True, "uninitialised": True, "profile": True}
    report = harness.emulate(kernel, (1, 1, 1), harness.passed(values, raw), **options)
    assert not report.findings, report
    assert report.bank_conflicts == 0
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_code_does_not_grow_with_k():
    def multiply_adds(block):
        a, b, c = (np.zeros(shape, np.float32) for shape in ((64, block), (block, 64), (64, 64)))
        values = [a, b, c, block, block, 1, 64, 1]
        constants = {"M": 64, "N": 64, "BLOCK": block, "num_warps": 2}
        return kernel_of(matmul_kernel, values, target="sm_75", **constants).ptx.count("fma.rn")

    assert multiply_adds(32) == multiply_adds(128) > 0


@tw.jit
def held_kernel(
    a_ptr, b_ptr, c_ptr, TURNED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """The left operand is the same in all iterations."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = (
        tl.trans(tl.load(a_ptr + m[None, :] + k[:, None] * M))
        if TURNED
        else tl.load(a_ptr + m[:, None] * K + k[None, :])
    )
    acc = tl.zeros((M, N), tl.float32)
    for i in range(2):
        b = tl.load(b_ptr + i * K * N + k[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


# One operand fits, none, and so large ones that each is put there in four parts.
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("shape", "num_warps"), [((128, 32, 64), 4), ((64, 64, 256), 8), ((16, 16, 600), 8)]
)
def test_operands_that_do_not_fit_pass_in_parts(shape, num_warps, is_turned):
    m, n, k = shape
    a = small_integers((k, m) if is_turned else (m, k))
    b, c = small_integers((2, k, n), seed=1), np.zeros((m, n), np.float32)
    sizes = {"M": m, "N": n, "K": k, "TURNED": is_turned}
    check(held_kernel, (1,), [a, b, c], target="sm_75", num_warps=num_warps, **sizes)


@tw.jit
def square_kernel(a_ptr, c_ptr, TURNED: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    product = tl.dot(a, tl.trans(a) if TURNED else a, input_precision="ieee")
    for _ in range(2):
        product = tl.dot(a, tl.trans(a) if TURNED else a, product, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * M + m[None, :], product)


@pytest.mark.parametrize(("is_turned", "k"), [(True, 48), (False, 32)])
def test_both_operands_are_one_matrix(is_turned, k):
    values = [small_integers((32, k)), np.zeros((32, 32), np.float32)]
    check(square_kernel, (1,), values, target="sm_75", TURNED=is_turned, M=32, K=k)


@pytest.mark.parametrize(("is_causal", "num_warps"), [(False, 4), (True, 2)])
def test_attention(is_causal, num_warps):
    length, head = 64, 32
    q, k, v = (numbers((2, length, head), BF16, seed) for seed in range(3))
    out, lse = np.zeros_like(q), np.zeros((2, length), np.float32)
    values = [q, k, v, out, lse, LOG2_E / head**0.5, length]
    constants = {"HEAD": head, "BLOCK_M": 32, "BLOCK_N": 32, "IS_CAUSAL": is_causal}
    options = {"target": "sm_75", "num_warps": num_warps, "tolerance": 2.0**-7}
    check(attention_kernel, (2, 2), values, **options, **constants)
