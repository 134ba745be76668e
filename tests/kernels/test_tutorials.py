"""Kernels in the style of Triton's tutorials, on the CPU target and eagerly, against float64."""

import numpy as np
import pytest

import tilewright as tw
from tests.executors import product_tolerance
from tests.kernels import attention, elementwise, layer_norm, matmul

pytestmark = pytest.mark.usefixtures("launched_on")

compiled = pytest.param(False, id="compiled")
eager = pytest.param(True, id="eager")


def launcher(kernel, is_eager):
    return kernel.debug if is_eager else kernel


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def check_close(got, want, dtype=np.float32, scale=1.0):
    tolerance = scale * (product_tolerance(2e-5) if dtype == np.float32 else 2e-2)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


# 01: vector addition


@pytest.mark.parametrize(
    ("is_eager", "n", "block"),
    [(False, 1, 8), (False, 1000, 256), (False, 98432, 1024), (False, 777, 100), (True, 100, 32)],
)
def test_add(is_eager, n, block):
    x, y = normal(n), normal(n, seed=1)
    out = np.full(n + 8, 7, np.float32)
    launcher(elementwise.add, is_eager)[lambda meta: (tw.cdiv(n, meta["BLOCK"]),)](
        x, y, out, n, BLOCK=block
    )
    np.testing.assert_array_equal(out[:n], x + y)
    assert (out[n:] == 7).all()


# 02: fused softmax


def softmax(x):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("is_eager", "rows", "columns"),
    [(False, 1823, 781), (False, 3, 1), (False, 16, 256), (True, 5, 33)],
)
def test_softmax(launched_on, is_eager, rows, columns):
    x = normal(rows, columns) * 3
    block = tw.next_power_of_2(columns)
    out = np.zeros_like(x)
    launcher(elementwise.softmax_row, is_eager)[(rows,)](
        out, x, columns, columns, columns, BLOCK=block
    )
    check_close(out, softmax(x))
    again = np.zeros_like(x)
    launcher(elementwise.softmax_persistent, is_eager)[(7,)](
        again, x, columns, columns, rows, columns, BLOCK=block, STAGES=4, num_warps=8
    )
    check_close(again, softmax(x))
    if launched_on == "cpu":  # others sum in another order on more warps
        np.testing.assert_array_equal(again, out)


# 03: matrix multiplication


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize(
    ("is_eager", "m", "n", "k", "blocks"),
    [
        (False, 128, 128, 128, (32, 64, 32)),
        (False, 77, 130, 51, (32, 32, 16)),
        (False, 5, 3, 200, (16, 16, 64)),
        (False, 60, 50, 40, (24, 20, 10)),
        (True, 20, 17, 35, (16, 16, 16)),
    ],
)
def test_matmul(is_eager, m, n, k, blocks, activation, dtype):
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    c = np.zeros((m, n), dtype)
    block_m, block_n, block_k = blocks
    launcher(matmul.matmul, is_eager)[(tw.cdiv(m, block_m) * tw.cdiv(n, block_n),)](
        a, b, c, m, n, k, k, 1, n, 1, n, 1,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=3, ACTIVATION=activation,
    )  # fmt: skip
    want = a.astype(np.float64) @ b.astype(np.float64)
    want = np.where(want >= 0, want, 0.01 * want) if activation else want
    check_close(c, want, dtype)


def test_matmul_of_turned_matrices():
    a, b = normal(40, 70), normal(30, 40, seed=1)
    c = np.zeros((30, 70), np.float32)
    matmul.matmul[(3 * 4,)](
        a, b, c, 70, 30, 40, 1, 70, 1, 40, 1, 70,
        BLOCK_M=24, BLOCK_N=8, BLOCK_K=16, GROUP_M=2, ACTIVATION="",
    )  # fmt: skip
    check_close(c.T, a.T.astype(np.float64) @ b.T)


# 04: low-memory dropout


@pytest.mark.parametrize("is_eager", [compiled, eager])
def test_dropout(is_eager):
    n, p = 1000, 0.25
    x = normal(n)
    keep = np.random.default_rng(2).random(n) > p
    out = np.zeros_like(x)
    launcher(elementwise.dropout, is_eager)[(4,)](x, keep.astype(np.int32), out, n, p, BLOCK=256)
    np.testing.assert_allclose(out, np.where(keep, x / (1 - p), 0), rtol=1e-6)


@pytest.mark.parametrize("is_eager", [compiled, eager])
def test_seeded_dropout(is_eager):
    n, p = 3001, 0.5
    x = normal(n) + 10

    def run(seed):
        out = np.zeros_like(x)
        launcher(elementwise.seeded_dropout, is_eager)[(tw.cdiv(n, 1024),)](
            x, out, n, p, seed, BLOCK=1024
        )
        return out

    first, again, other = run(123), run(123), run(512)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert abs((first == 0).mean() - p) < 0.05
    np.testing.assert_allclose(first[first != 0], x[first != 0] / (1 - p), rtol=1e-6)


def test_random_numbers_agree():
    results = []
    for kernel in (elementwise.random_numbers, elementwise.random_numbers.debug):
        uniform, gaussian, bits = (
            np.zeros(300, np.float32),
            np.zeros(300, np.float32),
            np.zeros(300, np.uint32),
        )
        kernel[(3,)](uniform, gaussian, bits, 42, BLOCK=100)
        results.append((uniform, gaussian, bits))
    (uniform, gaussian, bits), expected = results
    np.testing.assert_array_equal(uniform, expected[0])
    np.testing.assert_allclose(gaussian, expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(bits, expected[2])


# 05: layer norm


@pytest.mark.parametrize(
    ("is_eager", "rows", "n", "dtype"),
    [
        (False, 151, 300, np.float32),
        (False, 64, 1000, np.float16),
        (False, 1, 7, np.float32),
        (True, 6, 37, np.float32),
    ],
)
def test_layer_norm(is_eager, rows, n, dtype):
    x, dy = normal(rows, n, dtype=dtype) * 2 - 1, normal(rows, n, dtype=dtype, seed=1)
    w, b = normal(n, dtype=dtype, seed=2), normal(n, dtype=dtype, seed=3)
    y, dx = np.zeros_like(x), np.zeros_like(x)
    mean, rstd = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    launcher(layer_norm.forward, is_eager)[(rows,)](x, y, w, b, mean, rstd, n, n, 1e-5, BLOCK=128)
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    normalized = (wide - wide.mean(1, keepdims=True)) / deviation
    check_close(y, normalized * w.astype(np.float64) + b.astype(np.float64), dtype)

    groups = 4
    locks = np.zeros(2 * groups, np.int32)
    dw, db = np.full((2, groups, n), np.nan, np.float32)
    block = tw.next_power_of_2(n)
    launcher(layer_norm.backward_input, is_eager)[(rows,)](
        dx, dy, dw, db, x, w, mean, rstd, locks, n, n, GROUPS=groups, BLOCK=block
    )
    used = min(rows, groups)
    assert locks.tolist() == [0] * groups + [1] * used + [0] * (groups - used)
    final_dw, final_db = np.zeros((2, n), np.float32)
    launcher(layer_norm.backward_weights, is_eager)[(tw.cdiv(n, 64),)](
        dw, db, final_dw, final_db, used, n, BLOCK_M=8, BLOCK_N=64
    )
    upper = dy.astype(np.float64)
    weighted = upper * w.astype(np.float64)
    c1, c2 = (weighted * normalized).mean(1, keepdims=True), weighted.mean(1, keepdims=True)
    check_close(dx, (weighted - normalized * c1 - c2) / deviation, dtype)
    check_close(final_dw, (upper * normalized).sum(0), dtype, scale=5)
    check_close(final_db, upper.sum(0), dtype, scale=5)


# 06: fused attention


def attention_reference(q, k, v, scale, causal, dout):
    """The output and the gradients of q, k and v, in float64."""
    q, k, v, dout = (x.astype(np.float64) for x in (q, k, v, dout))
    scores = q @ k.swapaxes(1, 2) * scale
    if causal:
        scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
    p = softmax(scores)
    out = p @ v
    dp = dout @ v.swapaxes(1, 2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    return out, ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ dout


ATTENTION_CASES = [
    (False, 2, 128, 64, 32, 32, np.float32),
    (False, 3, 100, 32, 32, 16, np.float32),
    (False, 1, 75, 16, 64, 32, np.float16),
    (True, 1, 33, 16, 16, 16, np.float32),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("is_eager", "heads", "n", "head", "block_m", "block_n", "dtype"), ATTENTION_CASES
)
def test_attention(is_eager, heads, n, head, block_m, block_n, dtype, causal):
    q, k, v, dout = (normal(heads, n, head, dtype=dtype, seed=i) for i in range(4))
    scale = 0.5 / np.sqrt(head).item()
    want, want_dq, want_dk, want_dv = attention_reference(q, k, v, scale, causal, dout)
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HEAD": head, "CAUSAL": causal}
    grid, key_grid = (tw.cdiv(n, block_m), heads), (tw.cdiv(n, block_n), heads)

    out = np.zeros_like(q)
    log_sum, delta = np.zeros((2, heads, n), np.float32)
    launcher(attention.forward, is_eager)[grid](
        q, k, v, out, log_sum, scale, n * head, head, n, **constants
    )
    check_close(out, want, dtype)

    blocks = np.zeros_like(q)
    launcher(attention.forward_block_pointers, is_eager)[grid](
        q, k, v, blocks, scale, n * head, head, n, **constants
    )
    check_close(blocks, want, dtype)

    dq, dk, dv = (np.zeros_like(q) for _ in range(3))
    launcher(attention.backward_prepare, is_eager)[grid](
        out, dout, delta, n, BLOCK_M=block_m, HEAD=head
    )
    launcher(attention.backward_keys, is_eager)[key_grid](
        q, k, v, dout, dk, dv, log_sum, delta, scale, n, **constants
    )
    launcher(attention.backward_queries, is_eager)[grid](
        q, k, v, dout, dq, log_sum, delta, scale, n, **constants
    )
    check_close(dv, want_dv, dtype, scale=3)
    check_close(dk, want_dk, dtype, scale=3)
    check_close(dq, want_dq, dtype, scale=3)


# 08: grouped GEMM


@pytest.mark.parametrize(
    ("is_eager", "sizes", "programs", "block"),
    [
        (False, [(64, 64, 64), (33, 70, 20), (128, 16, 40), (5, 5, 5)], 5, 32),
        (False, [(100, 90, 80)], 3, 48),
        (True, [(20, 17, 9), (16, 33, 16)], 2, 16),
    ],
)
def test_grouped_matmul(is_eager, sizes, programs, block):
    a = [normal(m, k, dtype=np.float16, seed=i) for i, (m, n, k) in enumerate(sizes)]
    b = [normal(k, n, dtype=np.float16, seed=9 + i) for i, (m, n, k) in enumerate(sizes)]
    c = [np.zeros((m, n), np.float16) for m, n, k in sizes]
    addresses = [np.array([x.ctypes.data for x in group], np.int64) for group in (a, b, c)]
    strides = np.array([(k, n, n) for m, n, k in sizes], np.int32)
    launcher(matmul.grouped_matmul, is_eager)[(programs,)](
        *(x.ctypes.data for x in addresses), np.array(sizes, np.int32), strides, len(sizes),
        PROGRAMS=programs, BLOCK_M=block, BLOCK_N=block, BLOCK_K=32,
    )  # fmt: skip
    for x, y, z in zip(a, b, c, strict=True):
        check_close(z, x.astype(np.float64) @ y.astype(np.float64), np.float16)
