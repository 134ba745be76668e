"""Kernels on tensor descriptors, in the style of Triton's tutorials 09 and 06, against float64."""

import numpy as np
import pytest

import tilewright as tw
from tests.kernels import descriptors
from tests.kernels.test_tutorials import attention_reference, check_close, normal
from tilewright.tools.tensor_descriptor import TensorDescriptor


def run(where, kernel, grid, *args, **named):
    if where == "eager":
        kernel.debug[grid](*args, **named)
    elif where == "cpu":
        kernel[grid](*args, **named)
    else:
        with tw.emulate(where, races=True):
            kernel[grid](*args, **named)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(
    ("where", "sizes", "blocks", "dtype"),
    [
        ("cpu", (128, 96, 64), (32, 32, 32), np.float32),
        ("cpu", (77, 130, 51), (32, 64, 16), np.float32),
        ("cpu", (200, 60, 300), (64, 32, 64), np.float16),
        ("eager", (20, 17, 35), (16, 16, 16), np.float32),
        ("sm_80", (40, 50, 70), (32, 32, 32), np.float16),
        ("sm_90a", (70, 33, 40), (64, 32, 16), np.float16),
        ("sm_90a", (70, 103, 40), (64, 64, 16), np.float16),
    ],
)
def test_persistent_matmul(where, sizes, blocks, dtype, halves):
    stride = 304
    m, n, k = sizes
    block_m, block_n, block_k = blocks
    a, b = (normal(rows, stride, dtype=dtype, seed=i) for i, rows in enumerate((m, n)))
    want = a[:, :k].astype(np.float64) @ b[:, :k].astype(np.float64).T
    constants = {
        "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 2, "PROGRAMS": 3,
        "HALVES": halves,
    }  # fmt: skip
    c = np.full((m, stride), 7, dtype)
    arguments = [
        TensorDescriptor(a, [m, k], [stride, 1], [block_m, block_k]),
        TensorDescriptor(b, [n, k], [stride, 1], [block_n, block_k]),
        TensorDescriptor(c, [m, n], [stride, 1], [block_m, block_n // 2 if halves else block_n]),
    ]
    run(where, descriptors.matmul_persistent, (3,), *arguments, m, n, k, **constants)
    check_close(c[:, :n], want, dtype)
    assert (c[:, n:] == 7).all()

    again = np.full((m, stride), 7, dtype)
    kernel = descriptors.matmul_persistent_made_in_kernel
    run(where, kernel, (3,), a, b, again, m, n, k, stride, **constants)
    np.testing.assert_array_equal(again, c)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("where", "heads", "n", "head", "block_m", "block_n", "dtype"),
    [
        ("cpu", 3, 128, 64, 32, 32, np.float32),
        ("cpu", 2, 192, 32, 64, 32, np.float16),
        ("eager", 1, 32, 16, 16, 16, np.float32),
        ("sm_80", 2, 64, 16, 32, 16, np.float16),
        ("sm_90a", 1, 64, 32, 64, 32, np.float16),
    ],
)
def test_attention(where, heads, n, head, block_m, block_n, dtype, causal):
    q, k, v = (normal(heads * n, head, dtype=dtype, seed=i) for i in range(3))
    scale = 0.5 / np.sqrt(head).item()
    tiles = [x.reshape(heads, n, head) for x in (q, k, v)]
    want, *_ = attention_reference(*tiles, scale, causal, tiles[0])
    rows = (block_m, block_n, block_n, block_m)
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "HEAD": head, "STAGE": 3 if causal else 1}
    results = []
    for by_host in (True, False):
        out, log_sum = np.zeros_like(q), np.zeros(heads * n, np.float32)
        arrays = [q, k, v, out]
        if by_host:
            arrays = [
                TensorDescriptor.from_tensor(array, [count, head])
                for array, count in zip(arrays, rows, strict=True)
            ]
        grid = (n // block_m, heads)
        run(where, descriptors.attention, grid, *arrays, log_sum, scale, heads, n, **constants)
        check_close(out.reshape(want.shape), want, dtype)
        results.append(out)
    np.testing.assert_array_equal(*results)
