"""Products of matrices of 8 bits with scales."""

import pytest
import torch

import tilewright as tw
from tests.library.checking import assert_close, compiles, holds_contracts, same_bits_again
from tilewright import kernels
from tilewright.kernels.matmul import blocks, operator

KINDS = ["float8_e4m3fn", "int8"]


def assert_near(actual, expected, kind):
    """Tensor cores cut off sums of fp8 products 13 binary places behind the largest."""
    is_cut = actual.device.type == "cuda" and kind != "int8"
    assert_close(actual, expected, factor=50 if is_cut else 8)


def quantized(rows, columns, kind, device, group=None):
    return kernels.quantize_rows(torch.randn(rows, columns, device=device), kind, group)


@pytest.mark.parametrize("kind", [*KINDS, "float8_e5m2"])
def test_quantized_numbers_are_near(device, kind):
    x = torch.randn(5, 300, device=device)
    x[2] = 0
    q, scales = kernels.quantize_rows(x, kind)
    error = (q.float() * scales - x).abs().amax(1) / x.abs().amax(1).clamp_min(1e-9)
    assert error.max() < {"int8": 0.005, "float8_e4m3fn": 0.04, "float8_e5m2": 0.08}[kind]
    _, scales = kernels.quantize_rows(x[:, :256].bfloat16(), kind, 128)
    assert scales.shape == (5, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_by_row", [False, True])
def test_scales_of_all_and_of_rows(device, kind, is_by_row):
    (a, a_scales), (b, b_scales) = (quantized(rows, 144, kind, device) for rows in (70, 50))
    if not is_by_row:
        a_scales, b_scales = a_scales[:1, :1], b_scales[:1, :1]
    bias = torch.randn(50, device=device)
    actual = kernels.scaled_mm(a, b.T, a_scales, b_scales.T, bias, torch.float32)
    expected = (a.double() * a_scales) @ (b.double() * b_scales).T + bias
    assert_near(actual, expected, kind)
    assert kernels.scaled_mm(a, b.T, a_scales, b_scales.T).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_blocks(device, kind):
    (a, a_scales), (b, _) = (quantized(rows, 384, kind, device, 128) for rows in (70, 200))
    b_scales = torch.rand(3, 2, device=device)
    spread = b_scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:, :200]
    actual = kernels.scaled_mm(a, b.T, a_scales, b_scales, out_dtype=torch.float32)
    expected = (a.double() * a_scales.repeat_interleave(128, 1)) @ (b.double().T * spread)
    assert_near(actual, expected, kind)


def test_contracts_with_pytorch(device):
    (a, a_scales), (b, b_scales) = (quantized(rows, 32, "int8", device) for rows in (3, 4))

    def function(a_scales, b_scales):
        return kernels.scaled_mm(a, b.T, a_scales, b_scales.T)

    compiles(function, a_scales, b_scales)
    same_bits_again(function, a_scales, b_scales)
    operator = torch.ops.tilewright.block_scaled_mm.default
    holds_contracts(operator, a, b.T, a_scales, b_scales[:1], None, "float32")
    holds_contracts(torch.ops.tilewright.quantize_rows.default, torch.ones(2, 8), "int8", 8)


def test_arguments_that_cannot_be():
    a, one = torch.ones(3, 16, dtype=torch.int8), torch.ones(1)
    with pytest.raises(TypeError, match=r"`mat_b` of torch\.float32; both of one of int8"):
        kernels.scaled_mm(a, torch.ones(16, 3), one, one)
    with pytest.raises(ValueError, match="`scale_a` has 2 scales; 1 or 3 are needed"):
        kernels.scaled_mm(a, a.T, torch.ones(2), one)
    with pytest.raises(ValueError, match="`group` is 3; a power of two that divides 16"):
        kernels.quantize_rows(torch.ones(3, 16), group=3)


@pytest.mark.parametrize("kind", KINDS)
def test_on_an_emulated_gpu(monkeypatch, kind):
    for module in (operator, blocks):
        monkeypatch.setattr(module, "on_cpu", lambda _: False)
    with tw.emulate("sm_90a", races=True):
        test_scales_of_all_and_of_rows("cpu", kind, True)
        test_scales_of_blocks("cpu", kind)
