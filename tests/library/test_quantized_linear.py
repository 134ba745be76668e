"""Products with weights of four bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import (
    agrees,
    assert_close,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels.matmul import weight_only
from tilewright.kernels.matmul.four_bits import NF4


def codes(packed):
    """Number 8 j + 2 t + h of 32 is in word t, in the four bits from 4 j + 16 h on."""
    number = torch.arange(2 * packed.shape[1], device=packed.device)
    j, t, h = number // 8 % 4, number % 8 // 2, number % 2
    bit = 4 * j + 16 * h
    byte = number // 32 * 16 + 4 * t + bit // 8
    return (packed[:, byte] >> (bit % 8) & 15).long()


def whole(packed, scales, kind, zero_points=None):
    """The weight by its definition."""
    numbers = torch.tensor(NF4 if kind == "nf4" else range(16), device=packed.device).double()
    numbers = numbers[codes(packed)].unflatten(1, (scales.shape[1], -1))
    if kind == "int4":
        numbers = numbers - (8 if zero_points is None else zero_points.double()[:, :, None])
    return (numbers * scales.double()[:, :, None]).flatten(1)


@pytest.mark.parametrize(("kind", "group", "worst"), [("int4", 128, 0.5 / 7), ("nf4", 64, 0.16)])
def test_quantized_weights_are_near(device, kind, group, worst):
    weight = torch.randn(5, 256, device=device)
    weight[2] = 0
    packed, scales = kernels.quantize_weight(weight, kind, group)
    exact = whole(packed, scales, kind)
    error = (exact - weight).abs() / scales.repeat_interleave(group, 1).clamp_min(1e-9)
    assert error.max() <= worst * (7 if kind == "int4" else 1) + 1e-3
    assert_close(kernels.dequantize_weight(packed, scales, kind), exact)


def test_codes_from_elsewhere(device):
    given = torch.randint(0, 16, (3, 96), dtype=torch.uint8, device=device)
    packed = kernels.pack_weight(given)
    assert (codes(packed) == given).all()
    assert (kernels.pack_weight(given.cpu().numpy()) == packed.cpu().numpy()).all()
    with pytest.raises(ValueError, match=r"`codes` are \(3, 95\) of torch\.uint8"):
        kernels.pack_weight(given[:, 1:])


def test_zero_points_take_what_is_not_around_zero(device):
    weight = torch.rand(6, 256, device=device) * torch.arange(-3, 3, device=device)[:, None]
    weight[5] += 1
    packed, scales, zeros = kernels.quantize_weight(weight, group=64, zero_points=True)
    assert zeros.dtype == torch.uint8
    assert zeros[:3].min() == 15  # nothing above 0
    assert zeros[3:].max() == 0
    exact = whole(packed, scales, "int4", zeros)
    assert ((exact - weight).abs() / scales.repeat_interleave(64, 1).clamp_min(1e-9)).max() < 0.501
    assert_close(kernels.dequantize_weight(packed, scales, zero_points=zeros), exact)
    symmetric = kernels.dequantize_weight(*kernels.quantize_weight(weight, group=64))
    assert (symmetric - weight).norm() > 1.9 * (exact - weight).norm()


@pytest.mark.parametrize("rows", [1, 17, 70])
@pytest.mark.parametrize(("kind", "group"), [("int4", 128), ("nf4", 64), ("zero points", 64)])
def test_agrees_with_its_definition(device, rows, kind, group):
    dtype = "float32" if rows == 17 else "bfloat16"
    has_zero_points, kind = kind == "zero points", kind.replace("zero points", "int4")
    weight = tensor((75, 512), dtype, device, requires_grad=False)
    weight = weight.abs() if has_zero_points else weight
    packed, scales, *zeros = kernels.quantize_weight(
        weight, kind, group, zero_points=has_zero_points
    )
    zero_points = zeros[0] if zeros else None
    x, bias = tensor((rows, 512), dtype, device), tensor((75,), dtype, device)
    exact = whole(packed, scales, kind, zero_points)

    def function(x, bias):
        return kernels.quantized_linear(x, packed, scales, bias, kind=kind, zero_points=zero_points)

    agrees(function, lambda x, bias: x @ exact.T + bias, x, bias, factor=4)


@given(
    rows=st.integers(0, 80),
    columns=st.integers(1, 130),
    groups=st.integers(1, 5),
    group=st.sampled_from([32, 64, 128, 256]),
    has_zero_points=st.booleans(),
    dtype=dtypes,
)
@examples(5)
def test_whole_numbers_of_all_sizes(device, rows, columns, groups, group, has_zero_points, dtype):
    shape = (columns, groups * group)
    packed = torch.randint(0, 256, (columns, shape[1] // 2), device=device, dtype=torch.uint8)
    scales = tensor((columns, groups), dtype, device, requires_grad=False)
    zeros = torch.randint(0, 16, (columns, groups), device=device, dtype=torch.uint8)
    zeros = zeros if has_zero_points else None
    exact = whole(packed, scales, "int4", zeros)
    agrees(
        lambda x: kernels.quantized_linear(x, packed, scales, zero_points=zeros),
        lambda x: x @ exact.T,
        tensor((rows, shape[1]), dtype, device),
        factor=4,
    )


@pytest.mark.parametrize("has_zero_points", [False, True])
def test_contracts_with_pytorch(device, has_zero_points):
    weight = torch.randn(3, 64, device=device)
    packed, scales, *zeros = kernels.quantize_weight(
        weight, "int4", 32, zero_points=has_zero_points
    )
    zero_points = zeros[0] if zeros else None
    x, bias = tensor((2, 64), device=device), tensor((3,), device=device)

    def function(x, bias):
        return kernels.quantized_linear(x, packed, scales, bias, zero_points=zero_points)

    compiles(function, x, bias)
    same_bits_again(function, x, bias)
    exact = whole(packed, scales, "int4", zero_points)
    inputs = (tensor((2, 64), "float64", device), tensor((3,), "float64", device))
    precise = scales.double()
    assert torch.autograd.gradcheck(
        lambda x, b: kernels.quantized_linear(x, packed, precise, b, zero_points=zero_points),
        inputs,
    )
    actual = torch.func.grad(lambda x: function(x, bias).square().sum())(x)
    expected = torch.func.grad(lambda x: (x.double() @ exact.T + bias).square().sum())(x)
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=1e-3, atol=1e-3)
    arguments = (packed, scales, zero_points)
    operators = torch.ops.tilewright
    holds_contracts(operators.quantized_linear.default, x, *arguments, None, "int4")
    holds_contracts(operators.dequantize_weight.default, *arguments, "int4")
    holds_contracts(operators.quantize_weight.default, weight, "int4", 32, has_zero_points)


def test_autocast_computes_in_lower_precision(device):
    weight = torch.randn(3, 64, device=device)
    packed, scales, zeros = kernels.quantize_weight(weight, group=32, zero_points=True)
    with torch.autocast(device, torch.bfloat16):
        product = kernels.quantized_linear(weight, packed, scales, zero_points=zeros)
    assert product.dtype == torch.bfloat16


def test_numpy_arrays():
    weight = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)
    packed, scales = kernels.quantize_weight(weight, group=32)
    product = kernels.quantized_linear(weight, packed, scales)
    np.testing.assert_allclose(
        product, weight @ kernels.dequantize_weight(packed, scales).T, rtol=1e-4, atol=1e-4
    )
    packed, scales, zeros = kernels.quantize_weight(weight, group=32, zero_points=True)
    product = kernels.quantized_linear(weight, packed, scales, zero_points=zeros)
    whole = kernels.dequantize_weight(packed, scales, zero_points=zeros)
    np.testing.assert_allclose(product, weight @ whole.T, rtol=1e-4, atol=1e-4)


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError, match="with a K that 128 divides"):
        kernels.quantize_weight(torch.randn(3, 64))
    packed, scales = kernels.quantize_weight(torch.randn(3, 128))
    with pytest.raises(ValueError, match="`input` has rows of 64, and `packed` of 128 numbers"):
        kernels.quantized_linear(torch.randn(2, 64), packed, scales)
    with pytest.raises(ValueError, match="`kind` is 'int8'; one of int4, nf4 is needed"):
        kernels.quantized_linear(torch.randn(2, 128), packed, scales, kind="int8")
    with pytest.raises(ValueError, match="`zero_points` are for whole numbers: `kind` is 'nf4'"):
        kernels.quantize_weight(torch.randn(3, 128), "nf4", zero_points=True)
    with pytest.raises(ValueError, match=r"`zero_points` has the shape \(1, 3\); \(3, 1\) is"):
        kernels.dequantize_weight(packed, scales, zero_points=torch.zeros(1, 3).byte())
    with pytest.raises(TypeError, match="`zero_points` is of float32; uint8 is needed"):
        kernels.quantized_linear(torch.randn(2, 128), packed, scales, zero_points=scales)


@pytest.mark.parametrize("kind", ["int4", "nf4", "zero points"])
def test_on_an_emulated_gpu(monkeypatch, kind):
    monkeypatch.setattr(weight_only, "on_cpu", lambda _: False)
    with tw.emulate("sm_90a", races=True):
        test_agrees_with_its_definition("cpu", 3, kind, 64)


def check_emulated(monkeypatch, rows, sizes, dtype, zero_points, *, columns_together=False):
    """Compare whole numbers, whose zero points are up to so many, with their definition.

    Scales of groups are neighbours in memory, or those of columns, as `quantize_weight` has them.
    """
    columns, groups, group = sizes
    inner = groups * group
    monkeypatch.setattr(weight_only, "on_cpu", lambda _: False)
    packed = torch.randint(0, 256, (columns, inner // 2), dtype=torch.uint8)
    scales = tensor((columns, groups), dtype, requires_grad=False)
    zeros = torch.randint(0, zero_points + 1, (columns, groups), dtype=torch.uint8)
    if columns_together:
        scales, zeros = scales.T.contiguous().T, zeros.T.contiguous().T
    zeros = zeros if zero_points else None
    x, bias = (tensor(shape, dtype, requires_grad=False) for shape in ((rows, inner), (columns,)))
    exact = whole(packed, scales, "int4", zeros)
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda x, bias: kernels.quantized_linear(x, packed, scales, bias, zero_points=zeros),
            lambda x, bias: x @ exact.T + bias,
            *(x, bias),
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("sizes", "zero_points"),
    [
        ((5, 1, 32), 0),  # fewer units than threads
        ((17, 265, 32), 15),  # three blocks of units, the last not whole
        ((8, 3, 128), 128),
        ((3, 2, 4096), 0),
    ],
)
def test_a_row_on_an_emulated_gpu(monkeypatch, sizes, zero_points, dtype):
    monkeypatch.setattr(weight_only, "_launch_parts", None)  # it goes without tensor cores
    check_emulated(monkeypatch, 1, sizes, dtype, zero_points)


@pytest.mark.parametrize("columns", [16, 19])  # 19: columns of the last block are not there
def test_a_row_of_scales_in_one_load_on_an_emulated_gpu(monkeypatch, columns):
    monkeypatch.setattr(weight_only, "_launch_parts", None)
    check_emulated(monkeypatch, 1, (columns, 5, 64), "bfloat16", 15, columns_together=True)


@pytest.mark.parametrize(
    ("rows", "dtype", "zero_points"), [(2, "bfloat16", 128), (33, "float16", 15)]
)
def test_an_odd_number_of_groups_on_an_emulated_gpu(monkeypatch, rows, dtype, zero_points):
    check_emulated(monkeypatch, rows, (75, 11, 64), dtype, zero_points)


def test_groups_longer_than_a_step_on_an_emulated_gpu(monkeypatch):
    check_emulated(monkeypatch, 3, (10, 9, 256), "bfloat16", 15)
