"""Group, instance and batch norm."""

import functools

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
    layouts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels import plane_tiles

F = torch.nn.functional
SHAPES = st.sampled_from([(3, 4), (2, 6, 5), (2, 2, 3, 4), (1, 2, 70, 70)])


def with_layout(shape, dtype, device, layout):
    """Normal numbers; "channels last" beside the usual layouts."""
    if layout == "channels last" and len(shape) == 4:
        x = tensor(shape, dtype, device, requires_grad=False)
        return x.to(memory_format=torch.channels_last).requires_grad_()
    return tensor(shape, dtype, device, "contiguous" if layout == "channels last" else layout)


@given(
    shape=SHAPES,
    dtype=dtypes,
    layout=layouts | st.just("channels last"),
    groups=st.sampled_from([1, 2]),
    weighted=st.booleans(),
)
@examples(12)
def test_group_norm_agrees_with_pytorch(device, shape, dtype, layout, groups, weighted):
    x = with_layout(shape, dtype, device, layout)
    parameters = [tensor(shape[1:2], dtype, device) for _ in range(2 * weighted)]

    def of(norm):
        return lambda x, *parameters: norm(x, groups, *parameters, eps=1e-3)

    agrees(of(kernels.group_norm), of(F.group_norm), x, *parameters, factor=3)


@given(shape=SHAPES, dtype=dtypes, training=st.booleans(), weighted=st.booleans())
@examples(12)
def test_batch_norm_agrees_with_pytorch(device, shape, dtype, training, weighted):
    x = tensor((2, *shape[1:]), dtype, device)
    parameters = [tensor(shape[1:2], dtype, device) for _ in range(2 * weighted)]
    mean, var = torch.randn(shape[1], device=device), torch.rand(shape[1], device=device) + 0.5
    kept = {}

    def of(norm):
        def with_parameters(x, *parameters):
            running = mean.to(x.dtype).clone(), var.to(x.dtype).clone()
            kept[norm] = running
            weight, bias = parameters or (None, None)
            return norm(x, *running, weight, bias, training, 0.2, 1e-3)

        return with_parameters

    agrees(of(kernels.batch_norm), of(F.batch_norm), x, *parameters, factor=3)
    for actual, expected in zip(kept[kernels.batch_norm], kept[F.batch_norm], strict=True):
        assert_close(actual, expected, factor=2)


@given(shape=st.sampled_from([(2, 6, 5), (2, 2, 3, 4)]), use_input=st.booleans())
@examples(4)
def test_instance_norm_agrees_with_pytorch(device, shape, use_input):
    x, weight = tensor(shape, "float32", device), tensor(shape[1:2], "float32", device)
    kept = {}

    def of(norm):
        def result(x, weight):
            running = (torch.zeros_like(weight.detach()), torch.ones_like(weight.detach()))
            kept[norm] = running
            return norm(x, *running, weight, None, use_input, 0.2, 1e-3)

        return result

    agrees(of(kernels.instance_norm), of(F.instance_norm), x, weight, factor=3)
    for actual, expected in zip(kept[kernels.instance_norm], kept[F.instance_norm], strict=True):
        assert_close(actual, expected, factor=2)


def test_derivatives(device):
    x = tensor((2, 4, 3), "float64", device)
    weight, bias = (tensor((4,), "float64", device) for _ in range(2))
    mean, var = torch.zeros_like(weight.detach()), torch.ones_like(weight.detach())
    cases = [
        lambda x, w, b: kernels.group_norm(x, 2, w, b),
        lambda x, w, b: kernels.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: kernels.batch_norm(x, mean, var, w, b),
    ]
    for case in cases:
        assert torch.autograd.gradcheck(case, (x, weight, bias))
        compiles(case, x, weight, bias)
        same_bits_again(case, x, weight, bias)
    actual = torch.func.grad(lambda w: cases[0](x, w, bias).square().sum())(weight.detach())
    expected = torch.func.grad(lambda w: F.group_norm(x, 2, w, bias).square().sum())(
        weight.detach()
    )
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x, weight = tensor((2, 4, 3), device=device), tensor((4,), device=device)
    holds_contracts(torch.ops.tilewright.channel_norm.default, x, weight, weight, 2, 1e-5)
    holds_contracts(torch.ops.tilewright.channel_norm.default, x, None, None, 0, 1e-5)
    arguments = x, weight.detach(), weight.detach().abs(), weight, None, 1e-5
    holds_contracts(torch.ops.tilewright.channel_norm_with.default, *arguments)


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "transposed", "sliced"])
def test_results_keep_the_layout_of_images(device, layout):
    x = with_layout((2, 24, 6, 5), "float32", device, layout)
    keeps = layout in {"contiguous", "channels last"}
    for of in (
        lambda module, x: module.group_norm(x, 3),
        lambda module, x: module.batch_norm(x, None, None, training=True),
    ):
        agrees(functools.partial(of, kernels), functools.partial(of, F), x, factor=3)
        assert of(kernels, x).stride() == (x if keeps else x.contiguous()).stride()


def test_nothing_to_normalize(device):
    assert kernels.group_norm(torch.zeros(0, 4, 3, device=device), 2).shape == (0, 4, 3)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_batch_norm_of_many_channels(device, order):
    # A program has all samples of a channel, or a part of one, as memory lies.
    sizes = [(3, 20, 70)[axis] for axis in order]
    x = torch.randn(sizes, device=device, dtype=torch.float64)
    x = x.permute(tuple(np.argsort(order))).requires_grad_()
    weight, bias, dy = (torch.randn(n, device=device).double() for n in (20, 20, (3, 20, 70)))
    inputs = [x, weight.requires_grad_(), bias.requires_grad_()]
    for training in (True, False):
        statistics = [torch.rand(20, device=device).double() for _ in range(2)]
        found, expected = (
            f(x, *[s.clone() for s in statistics], weight, bias, training)
            for f in (kernels.batch_norm, F.batch_norm)
        )
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(y, inputs, dy) for y in (found, expected)]
        torch.testing.assert_close(*gradients)


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 4, 5), dtype=np.float32)
    expected = F.group_norm(torch.from_numpy(x), 2).numpy()
    np.testing.assert_allclose(kernels.group_norm(x, 2), expected, rtol=1e-4, atol=1e-6)
    mean, var = np.zeros(4, np.float32), np.ones(4, np.float32)
    kernels.batch_norm(x, mean, var, training=True, momentum=1.0)
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(var, x.var((0, 2), ddof=1), rtol=1e-4)


def test_on_an_emulated_gpu():
    x = tensor((2, 4, 40))
    with tw.emulate("sm_90a", races=True):
        agrees(lambda x: kernels.group_norm(x, 2), lambda x: F.group_norm(x, 2), x)


def weighted_group_norms(shape, groups, dtype, device="cpu"):
    """The group norm of the library and that of PyTorch, and inputs."""
    x, weight, bias = (tensor(size, dtype, device) for size in (shape, shape[1:2], shape[1:2]))
    ours, exact = (
        lambda x, w, b, norm=norm: norm(x, groups, w, b)
        for norm in (kernels.group_norm, F.group_norm)
    )
    return ours, exact, (x, weight, bias)


@pytest.mark.parametrize(("channels", "is_whole"), [(16, True), (40, True), (72, False)])
def test_groups_of_many_elements(device, channels, is_whole):
    # Groups of 2, 5 and 9 channels: the registers of a GPU's program hold 32768 numbers.
    ours, exact, inputs = weighted_group_norms((17, channels, 61, 63), 8, "float32", device)
    assert plane_tiles.shared_out(8, inputs[0]).is_whole == (is_whole and device == "cuda")
    agrees(ours, exact, *inputs, factor=3)
    same_bits_again(ours, *inputs)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("held", [255, 512])
def test_groups_on_an_emulated_gpu(monkeypatch, dtype, held):
    # A group of 3 channels and 11 places is a tile of 4 x 16 numbers, which are held or not.
    monkeypatch.setattr(plane_tiles, "on_cpu", lambda _: False)
    monkeypatch.setattr(plane_tiles, "_MOST_HELD_BYTES", held)
    ours, exact, inputs = weighted_group_norms((67, 6, 11), 2, dtype)
    assert plane_tiles.shared_out(2, inputs[0]).is_whole == (held == 512)
    with tw.emulate("sm_90a", races=True):
        agrees(ours, exact, *inputs, factor=3)
        same_bits_again(ours, *inputs)


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="`num_groups` is 2, and `input` has 3 channels"):
        kernels.group_norm(x, 2)
    with pytest.raises(ValueError, match="`running_mean` and `running_var` are needed"):
        kernels.batch_norm(x, None, None)
    with pytest.raises(
        ValueError, match=r"`input` has the shape \(3,\); \(samples, channels, ...\)"
    ):
        kernels.batch_norm(x[0, :, 0], None, None)
