"""Products with weights of four bits."""

import numpy as np
import pytest
import torch

import tilewright as tw
from tests.library.checking import (
    agrees,
    assert_close,
    compiles,
    holds_contracts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels.matmul import weight_only
from tilewright.kernels.matmul.weight_only_kernels import NF4


def codes(packed):
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()


def whole(packed, scales, kind):
    """The weight by its definition."""
    numbers = torch.tensor(NF4 if kind == "nf4" else range(-8, 8), device=packed.device)
    group = 2 * packed.shape[1] // scales.shape[1]
    return numbers.double()[codes(packed)] * scales.double().repeat_interleave(group, 1)


@pytest.mark.parametrize(("kind", "group", "worst"), [("int4", 128, 0.5 / 7), ("nf4", 64, 0.16)])
def test_quantized_weights_are_near(device, kind, group, worst):
    weight = torch.randn(5, 256, device=device)
    weight[2] = 0
    packed, scales = kernels.quantize_weight(weight, kind, group)
    exact = whole(packed, scales, kind)
    error = (exact - weight).abs() / scales.repeat_interleave(group, 1).clamp_min(1e-9)
    assert error.max() <= worst * (7 if kind == "int4" else 1) + 1e-3
    assert_close(kernels.dequantize_weight(packed, scales, kind), exact)


@pytest.mark.parametrize("rows", [1, 17, 70])
@pytest.mark.parametrize(("kind", "group"), [("int4", 128), ("nf4", 64)])
def test_agrees_with_its_definition(device, rows, kind, group):
    dtype = "float32" if rows == 17 else "bfloat16"
    weight = tensor((75, 512), dtype, device, requires_grad=False)
    packed, scales = kernels.quantize_weight(weight, kind, group)
    x, bias = tensor((rows, 512), dtype, device), tensor((75,), dtype, device)
    exact = whole(packed, scales, kind)

    def function(x, bias):
        return kernels.quantized_linear(x, packed, scales, bias, kind=kind)

    agrees(function, lambda x, bias: x @ exact.T + bias, x, bias, factor=4)


def test_contracts_with_pytorch(device):
    packed, scales = kernels.quantize_weight(torch.randn(3, 64, device=device), "nf4", 32)
    x = tensor((2, 64), device=device)

    def function(x):
        return kernels.quantized_linear(x, packed, scales, kind="nf4")

    compiles(function, x)
    same_bits_again(function, x)
    operator = torch.ops.tilewright.quantized_linear.default
    holds_contracts(operator, x, packed, scales, None, "nf4")
    holds_contracts(torch.ops.tilewright.dequantize_weight.default, packed, scales, "int4")
    weight = torch.randn(3, 64, device=device)
    holds_contracts(torch.ops.tilewright.quantize_weight.default, weight, "int4", 32)


def test_numpy_arrays():
    weight = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)
    packed, scales = kernels.quantize_weight(weight, group=32)
    product = kernels.quantized_linear(weight, packed, scales)
    np.testing.assert_allclose(
        product, weight @ kernels.dequantize_weight(packed, scales).T, rtol=1e-4, atol=1e-4
    )


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError, match="with a K that 128 divides"):
        kernels.quantize_weight(torch.randn(3, 64))
    packed, scales = kernels.quantize_weight(torch.randn(3, 128))
    with pytest.raises(ValueError, match="`input` has rows of 64, and `packed` of 128 numbers"):
        kernels.quantized_linear(torch.randn(2, 64), packed, scales)
    with pytest.raises(ValueError, match="`kind` is 'int8'; one of int4, nf4 is needed"):
        kernels.quantized_linear(torch.randn(2, 128), packed, scales, kind="int8")


@pytest.mark.parametrize("kind", ["int4", "nf4"])
def test_on_an_emulated_gpu(monkeypatch, kind):
    monkeypatch.setattr(weight_only, "on_cpu", lambda _: False)
    with tw.emulate("sm_90a", races=True):
        test_agrees_with_its_definition("cpu", 3, kind, 64)
