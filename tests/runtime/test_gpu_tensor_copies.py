"""Tensor descriptors on a real GPU: blocks of every type and rank, products, changes, graphs."""

import numpy as np
import pytest

from tests.kernels.descriptors import matmul_persistent, matmul_persistent_made_in_kernel
from tests.language.blocks import load_block, store_block
from tests.runtime.descriptor_kernels import (
    DTYPES,
    PLACES,
    increment_described,
    move,
    move_described,
    numbers,
)
from tilewright.errors import LaunchError
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
DEVICE = "cuda"


def on_device(array, name):
    """A copy of a NumPy array as a tensor of PyTorch's type `name`."""
    raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8))
    return raw.to(DEVICE).view(getattr(torch, name))


def from_device(tensor, dtype):
    return tensor.view(torch.uint8).cpu().numpy().view(dtype)


def check_moved(shape, block, place, name, padding="zero"):
    """Move a block from `place` to the origin, and one from there to `place`."""
    dtype, origin = DTYPES[name], (0,) * len(shape)
    array, strides = numbers(shape, dtype)
    x = TensorDescriptor(on_device(array, name), shape, strides, block, padding)
    fill = np.nan if padding == "nan" else 0
    for source, target in ((place, origin), (origin, place)):
        result = on_device(np.zeros_like(array), name)
        y = TensorDescriptor(result, shape, strides, block)
        move[1,](x, y, FROM=source, TO=target)
        expected = np.zeros_like(array)
        loaded = load_block(array[..., : shape[-1]], source, block, fill)
        store_block(expected[..., : shape[-1]], target, loaded)
        moved = from_device(result, dtype)
        np.testing.assert_array_equal(moved.astype(float), expected.astype(float))


@pytest.mark.parametrize("name", DTYPES)
def test_blocks_of_every_type(name):
    for place in PLACES[2][2]:
        check_moved(*PLACES[2][:2], place, name)


@pytest.mark.parametrize("rank", PLACES)
def test_blocks_of_every_rank(rank):
    shape, block, places = PLACES[rank]
    for place in places:
        check_moved(shape, block, place, "bfloat16")


@pytest.mark.parametrize("name", [name for name in DTYPES if "float" in name])
def test_padding_with_nan(name):
    for place in PLACES[2][2]:
        check_moved(*PLACES[2][:2], place, name, "nan")


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256, 512])
def test_blocks_of_every_width(columns):
    check_moved((40, 3 * columns // 2), (16, columns), (32, columns // 2), "float16")


def test_descriptors_made_of_arguments():
    x, y = (torch.arange(45 * 72, device=DEVICE).reshape(45, 72).half() for _ in range(2))
    y.zero_()
    for _ in range(2):
        move_described[3, 3](x, y, 45, 70, 72, BLOCK_M=16, BLOCK_N=32)
        assert torch.equal(y[:, :70], x[:, :70])
        assert not y[:, 70:].any()
        with pytest.raises(LaunchError, match=r"`x_ptr`: tensor descriptor: .* 0, 70 elements"):
            move_described[3, 3](x, y, 45, 70, 70, BLOCK_M=16, BLOCK_N=32)
    y.zero_()
    move_described[3, 3](x, y, 0, 70, 72, BLOCK_M=16, BLOCK_N=32)
    move_described[3, 3](x, y, 45, -1, 72, BLOCK_M=16, BLOCK_N=32)
    assert not y.any()


def padded(rows, columns, dtype):
    """A random matrix whose rows begin at multiples of 16 bytes."""
    generator = torch.Generator(DEVICE).manual_seed(rows)
    whole = torch.randn(rows, -(-columns // 16) * 16, device=DEVICE, generator=generator)
    return (whole / 8).to(dtype)[:, :columns]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (300, 200, 100), (1000, 500, 77), (1, 33, 5)])
def test_matmul(sizes, dtype):
    m, n, k = sizes
    dtype = getattr(torch, dtype)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32 if dtype == torch.float32 else 64}
    a, b = padded(m, k, dtype), padded(n, k, dtype)
    expected = a.double() @ b.double().T
    # The hardware sums products of fp8 with 14 bits.
    tolerance = 2e-2 if dtype == torch.float8_e4m3fn else 2e-3
    for halves in (False, True):
        c = padded(m, n, torch.float32)
        rows = (128, 128, 128)
        columns = (blocks["BLOCK_K"], blocks["BLOCK_K"], 64 if halves else 128)
        described = [
            TensorDescriptor.from_tensor(x, block)
            for x, *block in zip((a, b, c), rows, columns, strict=True)
        ]
        named = {**blocks, "GROUP_M": 4, "PROGRAMS": 16, "HALVES": halves}
        matmul_persistent[16,](*described, m, n, k, **named)
        torch.testing.assert_close(c.double(), expected, rtol=tolerance, atol=tolerance)


def test_matmul_of_descriptors_made_in_the_kernel():
    m, n, k, stride = 200, 333, 150, 336
    a, b, c = (padded(rows, stride, torch.float16) for rows in (m, n, m))
    named = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2, "PROGRAMS": 8}
    matmul_persistent_made_in_kernel[8,](a, b, c, m, n, k, stride, HALVES=False, **named)
    expected = (a[:, :k].double() @ b[:, :k].double().T).half()
    torch.testing.assert_close(c[:, :n], expected, rtol=2e-3, atol=2e-3)


def test_descriptors_of_products_of_arguments():
    for heads, n, width in ((3, 7, 5), (2, 33, 4), (3, 7, 5)):
        x = torch.randn(heads * n * 2, width * 16, device=DEVICE)
        y = torch.zeros_like(x)
        kernel = increment_described[1,](x, y, heads, n, width, SIDE=16, HEAD=16)
        assert torch.equal(y, x + 1)
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"] or not kernel.code.gpu.target.has_tma


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8, 16, 32])
def test_clusters_of_every_size(num_warps):
    m, n, k = 200, 144, 160
    a, b = padded(m, k, torch.float16), padded(n, k, torch.float16)
    expected = (a.double() @ b.double().T).half()
    for num_ctas in (1, 2, 4, 8, 16):
        c = padded(m, n, torch.float16)
        described = [
            TensorDescriptor.from_tensor(x, block)
            for x, block in ((a, [64, 32]), (b, [64, 32]), (c, [64, 64]))
        ]
        named = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2, "PROGRAMS": 4}
        options = {"num_warps": num_warps, "num_ctas": num_ctas}
        matmul_persistent[4,](*described, m, n, k, **named, HALVES=False, **options)
        torch.testing.assert_close(c, expected, rtol=2e-3, atol=2e-3)


def moved(x, y, described_x, described_y):
    y.zero_()
    kernel = move[1,](described_x, described_y, FROM=(0, 0), TO=(0, 0))
    rows, columns = described_x.shape
    expected = torch.zeros_like(y)
    expected[:rows, :columns] = described_x.base[:rows, :columns]
    assert torch.equal(y, expected)
    return kernel


def test_changes_of_descriptors_are_seen(monkeypatch):
    x, y, other = (torch.randn(32, 64, device=DEVICE) for _ in range(3))
    described = [TensorDescriptor.from_tensor(t, [32, 64]) for t in (x, y)]
    kernel = moved(x, y, *described)
    # From here on, launches are machine code.
    monkeypatch.setattr(kernel.code.function, "launch", None)
    assert moved(x, y, *described) is kernel
    described[0].shape[0] = 9
    assert moved(x, y, *described) is kernel
    described[0].base = other
    assert moved(x, y, *described) is kernel
    for _ in range(3):
        described[0].base = torch.randn(32, 64, device=DEVICE)
        assert moved(x, y, *described) is kernel
    monkeypatch.undo()
    described[0].shape = (9, 32)
    for descriptor in described:
        descriptor.block_shape = [32, 32]
    assert moved(x, y, *described) is not kernel


def test_a_launch_is_recorded_in_a_graph():
    x, y = (torch.randn(32, 64, device=DEVICE) for _ in range(2))
    described = [TensorDescriptor.from_tensor(t, [32, 64]) for t in (x, y)]
    moved(x, y, *described)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        move[1,](*described, FROM=(0, 0), TO=(0, 0))
    x.normal_()
    graph.replay()
    assert torch.equal(y, x)
