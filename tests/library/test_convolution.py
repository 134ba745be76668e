"""Convolutions, of all channels, in groups and depthwise, and causal ones."""

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
from tilewright.kernels import convolution, convolution_kernels

F = torch.nn.functional


@st.composite
def cases(draw):
    """Dimensions, the shapes of input and filters, stride, padding, dilation and groups."""
    dims = draw(st.sampled_from([1, 2]))
    groups, channels, out = draw(
        st.sampled_from([(1, 3, 5), (1, 32, 40), (2, 4, 6), (3, 3, 3), (3, 3, 6), (1, 1, 2)])
    )
    size = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    image = draw(st.lists(st.integers(5, 9), min_size=dims, max_size=dims))
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    padding = draw(st.integers(0, 2) | st.just("same")) if stride == 1 else draw(st.integers(0, 2))
    samples = draw(st.integers(0, 2))
    shapes = (samples, channels, *image), (out, channels // groups, *size)
    return dims, *shapes, stride, padding, dilation, groups


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@given(case=cases(), dtype=dtypes, layout=layouts, biased=st.booleans())
@examples(20)
def test_agrees_with_pytorch(device, case, dtype, layout, biased):
    dims, shape, filters, *options = case
    x, weight = tensor(shape, dtype, device, layout), tensor(filters, dtype, device)
    bias = [tensor(filters[:1], dtype, device)] if biased else [None]
    name = f"conv{dims}d"
    agrees(
        lambda *inputs: getattr(kernels, name)(*inputs, *options),
        lambda *inputs: getattr(F, name)(*inputs, *options),
        *(x, weight, *bias),
        factor=4,
    )


@pytest.mark.parametrize("activation", [None, "silu"])
@given(length=st.integers(1, 40), size=st.integers(1, 4), dtype=dtypes, layout=layouts)
@examples(6)
def test_causal_convolution_agrees_with_pytorch(device, activation, length, size, dtype, layout):
    channels = 3 if length % 2 else 1
    x = tensor((2, channels, length), dtype, device, layout)
    weight, bias = (tensor(shape, dtype, device) for shape in ((channels, size), (channels,)))

    def plain(x, weight, bias):
        y = F.conv1d(F.pad(x, (size - 1, 0)), weight[:, None], bias, groups=channels)
        return F.silu(y) if activation else y

    agrees(
        lambda *inputs: kernels.causal_conv1d(*inputs, activation),
        plain,
        *(x, weight, bias),
        factor=4,
    )


def test_channels_that_are_last(device):
    x = tensor((2, 16, 5, 6), device=device, requires_grad=False)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    weight = tensor((8, 16, 3, 3), device=device)
    y = kernels.conv2d(x, weight, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    agrees(
        lambda x, w: kernels.conv2d(x, w, padding=1),
        lambda x, w: F.conv2d(x, w, padding=1),
        *(x, weight),
        factor=4,
    )


@pytest.mark.parametrize("filters", [6, 12])
@pytest.mark.parametrize("part", [slice(0, 6), slice(1, 7)])
def test_channels_that_are_last_with_a_filter_for_each(device, filters, part):
    images = tensor((2, 8, 5, 7), device=device, requires_grad=False)
    x = images.to(memory_format=torch.channels_last)[:, part].requires_grad_()
    weight, bias = tensor((filters, 1, 3, 2), device=device), tensor((filters,), device=device)
    options = {"stride": (1, 2), "padding": 1, "groups": 6}
    y = kernels.conv2d(x, weight, bias, **options)
    expected = F.conv2d(x, weight, bias, **options)
    torch.testing.assert_close(y, expected)
    assert y.stride() == expected.stride()
    upstream = torch.randn(y.shape, device=device)
    given = torch.autograd.grad(y, (x, weight, bias), upstream)
    wanted = torch.autograd.grad(expected, (x, weight, bias), upstream)
    torch.testing.assert_close(given, wanted, atol=1e-4, rtol=1e-4)
    assert given[0].stride() == wanted[0].stride()


def test_sums_in_parts(device):
    x, weight = tensor((1, 2, 70, 70), device=device), tensor((3, 2, 2, 2), device=device)
    agrees(kernels.conv2d, F.conv2d, x, weight, factor=8)


def test_derivatives(device):
    x, weight, bias = (tensor(shape, "float64", device) for shape in ((2, 4, 5), (4, 2, 3), (4,)))
    own = tensor((4, 2), "float64", device)
    product = (
        lambda *inputs: kernels.conv1d(*inputs, stride=2, padding=1, groups=2),
        x,
        weight,
        bias,
    )
    causal = (lambda *inputs: kernels.causal_conv1d(*inputs, "silu"), x, own, bias)
    for function, *inputs in (product, causal):
        assert torch.autograd.gradcheck(function, inputs)
        compiles(function, *inputs)
        same_bits_again(function, *inputs)
    actual = torch.func.grad(lambda w: kernels.conv1d(x, w, groups=2).square().sum())(weight)
    expected = torch.func.grad(lambda w: F.conv1d(x, w, groups=2).square().sum())(weight)
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x, weight = tensor((2, 4, 3, 5), device=device), tensor((6, 2, 3, 3), device=device)
    numbers = [1, 1], [1, 1], [1, 1], 2, [3, 5], False
    holds_contracts(torch.ops.tilewright.convolution.default, x, weight, None, *numbers)
    last, own = (
        x.detach().to(memory_format=torch.channels_last),
        tensor((4, 1, 3, 3), device=device),
    )
    numbers = [1, 1], [1, 1], [1, 1], 4, [3, 5], False
    holds_contracts(torch.ops.tilewright.convolution.default, last, own, None, *numbers)


def test_autocast_computes_in_16_bits(device):
    x, weight = tensor((1, 2, 5), device=device), tensor((3, 2, 2), device=device)
    with torch.autocast(device, torch.bfloat16):
        assert kernels.conv1d(x, weight).dtype == torch.bfloat16


def test_numpy_arrays():
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, 8, 8), dtype=np.float32)
    weight = random.standard_normal((4, 3, 3, 3), dtype=np.float32)
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(weight)).numpy()
    np.testing.assert_allclose(kernels.conv2d(x, weight), expected, rtol=1e-4, atol=1e-4)


def test_what_filters_do_not_see_stays_out():
    """A NaN in a corner is not in the gradients of taps that never lie there, nor between lines."""
    x = torch.randn(1, 2, 5, 6)
    x[0, 0, 0, 0] = float("nan")
    weight = torch.randn(3, 2, 3, 3, requires_grad=True)
    dy = torch.randn(1, 3, 5, 6)
    y, expected = kernels.conv2d(x, weight, padding=1), F.conv2d(x, weight, padding=1)
    assert torch.equal(y.isnan(), expected.isnan())
    (actual,), (expected,) = (torch.autograd.grad(out, weight, dy) for out in (y, expected))
    assert torch.equal(actual.isnan(), expected.isnan())


def test_on_an_emulated_gpu():
    x, weight = tensor((1, 16, 4, 5), "float16"), tensor((8, 16, 2, 2), "float16")
    causal = tensor((16, 3), "float16")
    with tw.emulate("sm_90a", races=True):
        agrees(kernels.conv2d, F.conv2d, x, weight, factor=2)
        agrees(
            lambda x, w: kernels.causal_conv1d(x[:, :, 0], w),
            lambda x, w: F.conv1d(F.pad(x[:, :, 0], (2, 0)), w[:, None], groups=16),
            x,
            causal,
        )
        last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        agrees(
            lambda x, w: kernels.conv2d(x, w, groups=16),
            lambda x, w: F.conv2d(x, w, groups=16),
            *(last, tensor((16, 1, 2, 2), "float16")),
        )


@pytest.mark.parametrize(
    ("channels", "filters", "size", "options"),
    [
        (16, 24, (5, 6), {"padding": 1}),
        (32, 16, (4, 70), {"stride": 2, "dilation": 2, "padding": (2, 0)}),
        (64, 32, (3, 4), {"groups": 2}),
    ],
)
def test_near_channels_on_an_emulated_gpu(monkeypatch, channels, filters, size, options):
    for module in (convolution, convolution_kernels):
        monkeypatch.setattr(module, "on_cpu", lambda _: False)
    x = tensor((1, channels, *size), "bfloat16")
    weight = tensor((filters, channels // options.get("groups", 1), 2, 3), "bfloat16")
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda x, w: kernels.conv2d(x, w, **options),
            lambda x, w: F.conv2d(x, w, **options),
            *(x, weight),
            factor=4,
        )


def test_arguments_that_cannot_be():
    x, weight = torch.zeros(1, 4, 5), torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match="`weight` has 3 dimensions; 4 are needed"):
        kernels.conv2d(x[None], weight)
    with pytest.raises(ValueError, match="`input` has 4 channels, `weight` the shape"):
        kernels.conv1d(x, weight, groups=2)
    with pytest.raises(ValueError, match="filters are larger than the input with its padding"):
        kernels.conv1d(x[:, :, :2], weight)
    with pytest.raises(ValueError, match=r"`padding` is 'same', and `stride` \[2\]; 1 is needed"):
        kernels.conv1d(x, weight, stride=2, padding="same")
    with pytest.raises(ValueError, match="`activation` is 'relu'; one of 'silu', 'none'"):
        kernels.causal_conv1d(x, torch.zeros(4, 2), activation="relu")
