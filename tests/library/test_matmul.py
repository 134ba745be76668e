"""Matrix products: layouts, batches, and what follows the product."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import (
    agrees,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels.matmul import blocks, operator
from tilewright.kernels.matmul.product import Sizes

GELU = torch.nn.functional.gelu
SIZES = st.sampled_from([0, 1, 3, 33, 64, 130])
ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": GELU,
    "gelu_tanh": lambda x: GELU(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def layered(a, b, bias, residual, activation, scale):
    return ACTIVATIONS[activation](scale * (a @ b) + bias) + residual


def ours(a, b, bias, residual, activation, scale):
    return kernels.matmul(a, b, bias=bias, activation=activation, residual=residual, scale=scale)


@given(m=SIZES, n=SIZES, k=SIZES, dtype=dtypes, left=layouts, right=layouts)
@examples(6)
def test_agrees_with_pytorch(device, m, n, k, dtype, left, right):
    a, b = tensor((m, k), dtype, device, left), tensor((k, n), dtype, device, right)
    agrees(kernels.matmul, torch.matmul, a, b, factor=4)


@given(
    batch=st.sampled_from([((), (2,)), ((2,), ()), ((3, 2), (1, 2)), ((0,), (0,)), ((2, 1), (3,))]),
    m=SIZES,
    n=SIZES,
    k=SIZES,
    dtype=dtypes,
    activation=st.sampled_from(sorted(ACTIVATIONS)),
)
@examples(4)
def test_batches_and_what_follows(device, batch, m, n, k, dtype, activation):
    a = tensor((*batch[0], m, k), dtype, device)
    b = tensor((*batch[1], k, n), dtype, device)
    others = tensor((n,), dtype, device), tensor((m, 1), dtype, device)
    agrees(
        lambda *x: ours(*x, activation, 0.5),
        lambda *x: layered(*x, activation, 0.5),
        *(a, b, *others),
        factor=4,
    )


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (5, 4)), ((3, 4, 5), (5,))])
def test_vectors(device, shapes):
    a, b = (tensor(shape, device=device) for shape in shapes)
    agrees(kernels.matmul, torch.matmul, a, b)


def test_parts_of_the_inner_axis(device, monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST_CHUNK", 64)
    a, b = tensor((20, 1500), device=device), tensor((1500, 30), device=device)
    bias = tensor((30,), device=device)

    def function(a, b, bias):
        return kernels.matmul(a, b, bias=bias, activation="silu")

    def reference(a, b, bias):
        return torch.nn.functional.silu(a @ b + bias)

    agrees(function, reference, a, b, bias, factor=4)


def test_linear(device):
    x, weight, bias = (tensor(shape, device=device) for shape in ((2, 3, 20), (30, 20), (30,)))
    agrees(kernels.linear, torch.nn.functional.linear, x, weight, bias)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_derivatives(device, activation):
    shapes = ((2, 3, 4), (2, 4, 5), (5,), (2, 3, 5))
    inputs = [tensor(shape, "float64", device) for shape in shapes]

    def function(*x):
        return ours(*x, activation, 0.5)

    assert torch.autograd.gradcheck(function, inputs)
    if activation == "gelu":
        compiles(function, *inputs)
        same_bits_again(function, *inputs)
    actual = torch.func.grad(lambda a: function(a, *inputs[1:]).sum())(inputs[0])
    expected = torch.func.grad(lambda a: layered(a, *inputs[1:], activation, 0.5).sum())(inputs[0])
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    a, b, bias = (tensor(shape, device=device) for shape in ((1, 3, 5), (1, 5, 4), (4,)))
    arguments = (a, b, bias, None, None, None, 0.5, "gelu", True, "float32")
    holds_contracts(torch.ops.tilewright.matmul.default, *arguments)


def test_autocast_computes_in_lower_precision(device):
    with torch.autocast(device, torch.bfloat16):
        product = kernels.matmul(tensor((2, 3), device=device), tensor((3, 4), device=device))
    assert product.dtype == torch.bfloat16


def test_numpy_arrays():
    a, b = (np.random.default_rng(0).standard_normal(shape) for shape in ((3, 5), (5, 4)))
    np.testing.assert_allclose(kernels.matmul(a, b, scale=2.0), 2 * (a @ b))


def test_arguments_that_cannot_be():
    a, b = tensor((3, 5)), tensor((5, 4))
    with pytest.raises(ValueError, match="5 columns, and 3 rows"):
        kernels.matmul(a, a)
    with pytest.raises(ValueError, match="`activation` is 'tanh'; one of relu"):
        kernels.matmul(a, b, activation="tanh")
    with pytest.raises(ValueError, match=r"`bias` has the shape \(3,\)"):
        kernels.matmul(a, b, bias=tensor((3,)))
    with pytest.raises(TypeError, match="`other` of float16"):
        kernels.matmul(a, b.half())


@pytest.mark.parametrize("is_transposed", [False, True])
def test_on_an_emulated_gpu(monkeypatch, is_transposed):
    for module in (operator, blocks):
        monkeypatch.setattr(module, "on_cpu", lambda _: False)
    a, b = tensor((200, 150), "bfloat16"), tensor((150, 136), "bfloat16")
    bias = tensor((136,), "bfloat16")
    if is_transposed:
        b = b.detach().T.contiguous().T.requires_grad_()

    def function(a, b, bias):
        return kernels.matmul(a, b, bias=bias, activation="gelu")

    with tw.emulate("sm_90a", races=True):
        agrees(function, lambda a, b, bias: GELU(a @ b + bias), a, b, bias, factor=4)


@pytest.mark.parametrize(
    ("sizes", "parts", "tile"),
    [
        ((4096, 4096, 4096), 1, (128, 256)),
        ((2304, 2304, 4096), 1, (128, 128)),  # 162 tiles of 128 x 256 take two turns, too
        ((1024, 1024, 1024), 1, (64, 128)),  # as many tiles as multiprocessors
        ((512, 512, 16384), 8, (128, 128)),
        ((16, 8192, 8192), 4, (64, 256)),
        ((8, 8, 8), 1, (64, 64)),
    ],
)
def test_tiles_and_parts_keep_all_multiprocessors_busy(monkeypatch, sizes, parts, tile):
    monkeypatch.setattr(blocks, "on_cpu", lambda _: False)
    rows, columns, inner = sizes
    a = np.empty((1, 1), np.float16)
    chunk = blocks.chunk_for(a, 2, 1, rows, columns, inner)
    assert tw.cdiv(inner, chunk) == parts
    out = np.empty((1, 1), np.float16 if parts == 1 else np.float32)
    launch = {"a_ptr": a, "out_ptr": out, "sizes": Sizes(1, *sizes, parts, chunk, parts)}
    values = blocks._worth_a_trial(launch)[0].kwargs
    assert (values["BLOCK_M"], values["BLOCK_N"]) == tile


def test_parts_on_an_emulated_gpu(monkeypatch):
    for module in (operator, blocks):
        monkeypatch.setattr(module, "on_cpu", lambda _: False)
    monkeypatch.setattr(blocks, "NARROW", (blocks.Blocks(64, 64, 128, 4, 3, True, 9.0),))
    monkeypatch.setattr(blocks, "_LEAST_STEPS", 1)
    a, b = tensor((70, 450), "bfloat16"), tensor((450, 80), "bfloat16")
    assert tw.cdiv(450, blocks.chunk_for(a, 2, 1, 70, 80, 450)) == 8
    with tw.emulate("sm_90a", races=True):
        agrees(kernels.matmul, torch.matmul, a, b, factor=4)


@pytest.mark.parametrize("layout", ["sliced", "expanded"])
def test_a_bias_of_any_strides(device, layout):
    x, weight = tensor((3, 16), device=device), tensor((8, 16), device=device)
    bias = tensor((8,), device=device, layout=layout)
    agrees(kernels.linear, torch.nn.functional.linear, x, weight, bias)
