"""Kernels on a real GPU, against PyTorch."""

import math

import pytest

from examples.attention import attention_kernel
from examples.elementwise import add_kernel
from examples.matmul import matmul_kernel
from examples.rows import layer_norm_kernel, softmax_kernel
from tilewright.errors import LaunchError

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


def random(*shape, dtype=None):
    generator = torch.Generator("cuda").manual_seed(0)
    found = torch.randn(*shape, device="cuda", generator=generator)
    return found if dtype is None else found.to(dtype)


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, 1_000_003])
def test_add(size):
    x, y = random(size), random(size)
    out = torch.empty_like(x)
    compiled = add_kernel[(size + 1023) // 1024,](x, y, out, size, BLOCK=1024)
    assert torch.equal(out, x + y)
    assert compiled.n_spills == 0
    assert "ld.global" in compiled.asm["ptx"]


@pytest.mark.parametrize("columns", [7, 1000, 4096])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_softmax(columns, num_warps):
    x = random(33, columns)
    out = torch.empty_like(x)
    block = 1 << (columns - 1).bit_length()
    softmax_kernel[33,](x, out, columns, columns, columns, BLOCK=block, num_warps=num_warps)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_layer_norm():
    x, weight, bias = random(40, 1500), random(1500), random(1500)
    out, mean, rstd = torch.empty_like(x), *(torch.empty(40, device="cuda") for _ in range(2))
    layer_norm_kernel[40,](x, weight, bias, out, mean, rstd, 1500, 1500, 1e-5, BLOCK=2048)
    expected = torch.nn.functional.layer_norm(x, (1500,), weight, bias)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (300, 200, 100)])
def test_matmul(shape, dtype):
    m, n, k = shape
    dtype = getattr(torch, dtype)
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    out = torch.empty(m, n, device="cuda")
    grid = (-(-m // 64) * -(-n // 64),)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}
    matmul_kernel[grid](a, b, out, m, n, k, k, 1, n, 1, n, 1, **blocks)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = (random(4, 300, 64, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = math.log2(math.e) / 8
    blocks = {"HEAD": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": causal}
    attention_kernel[5, 4](q, k, v, out, scale, 300, **blocks)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)


def test_current_stream_is_used():
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(100):
            add_kernel[1024,](x, 1 + torch.zeros_like(x), x, 1 << 20, BLOCK=1024)
    stream.synchronize()
    assert bool((x == 100).all())


def test_arrays_on_two_devices_are_refused():
    x = random(8)
    with pytest.raises(LaunchError, match="several devices"):
        add_kernel[1,](x, x.cpu(), x, 8, BLOCK=8)
