"""Pooling over windows and over parts, in one and two dimensions."""

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

F = torch.nn.functional


@st.composite
def windows(draw):
    """A shape and arguments of pooling: dimensions, size, stride, padding, dilation."""
    dims = draw(st.sampled_from([1, 2]))
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    shape += draw(st.lists(st.integers(5, 12), min_size=dims, max_size=dims))
    size = draw(st.integers(1, 3))
    padding = draw(st.integers(0, size // 2))
    return dims, tuple(shape), size, draw(st.sampled_from([None, 1, 2, 3])), padding


@given(windows=windows(), dtype=dtypes, layout=layouts, ceil=st.booleans(), data=st.data())
@examples(20)
def test_windows_agree_with_pytorch(device, windows, dtype, layout, ceil, data):
    dims, shape, size, stride, padding = windows
    x = tensor(shape, dtype, device, layout)
    dilation, include = data.draw(st.integers(1, 2)), data.draw(st.booleans())

    def of(module, kind):
        function = getattr(module, f"{kind}_pool{dims}d")
        last = (dilation, ceil) if kind == "max" else (ceil, include)
        return lambda x: function(x, size, stride, padding, *last)

    for kind in ("max", "avg"):
        agrees(of(kernels, kind), of(F, kind), x, factor=2)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 11)), min_size=1, max_size=2),
    dtype=dtypes,
    layout=layouts,
)
@examples(12)
def test_parts_agree_with_pytorch(device, sizes, dtype, layout):
    shape, output = zip(*sizes, strict=True)
    x = tensor((2, 3, *shape), dtype, device, layout)
    for kind in ("max", "avg"):
        name = f"adaptive_{kind}_pool{len(sizes)}d"
        ours, plain = getattr(kernels, name), getattr(F, name)
        agrees(lambda x, f=ours: f(x, output), lambda x, f=plain: f(x, output), x, factor=2)


def test_derivatives(device):
    x = tensor((2, 5, 6), "float64", device)
    cases = [
        (lambda f, x: f.max_pool2d(x, 3, 2, 1), "max"),
        (lambda f, x: f.avg_pool2d(x, (2, 3), 1, divisor_override=5), "avg"),
        (lambda f, x: f.adaptive_avg_pool2d(x, (None, 4)), "parts"),
    ]
    for case, _ in cases:
        assert torch.autograd.gradcheck(lambda x, case=case: case(kernels, x), x)
        compiles(lambda x, case=case: case(kernels, x), x)
        same_bits_again(lambda x, case=case: case(kernels, x), x)
        actual = torch.func.grad(lambda x, case=case: case(kernels, x).square().sum())(x.detach())
        expected = torch.func.grad(lambda x, case=case: case(F, x).square().sum())(x.detach())
        torch.testing.assert_close(actual, expected)


def test_indices(device):
    x = tensor((2, 5, 6), device=device, requires_grad=False)
    for function in ("max_pool2d", "adaptive_max_pool2d"):
        actual = getattr(kernels, function)(x, 2, return_indices=True)
        expected = getattr(F, function)(x, 2, return_indices=True)
        torch.testing.assert_close(actual, expected)


POOLS = [
    lambda module, x: module.max_pool2d(x, 3, 2, 1),
    lambda module, x: module.max_pool2d(x, 2, dilation=2),
    lambda module, x: module.avg_pool2d(x, 2, 3, 1, count_include_pad=False),
    lambda module, x: module.adaptive_avg_pool2d(x, (2, 5)),
    lambda module, x: module.adaptive_max_pool2d(x, 3),
]


def channels_last(device, which):
    images = tensor((2, 8, 9, 7), device=device, requires_grad=False)
    images = images.to(memory_format=torch.channels_last)
    parts = {"all": images, "channels": images[:, 2:7], "places": images[:, :, 1:, 2:]}
    return parts[which].requires_grad_()


@pytest.mark.parametrize("which", ["all", "channels", "places"])
@pytest.mark.parametrize("number", range(len(POOLS)))
def test_channels_that_are_last(device, number, which):
    pool, x = POOLS[number], channels_last(device, which)
    # On the CPU: PyTorch 2.11's gradient of average pooling leaves places out on a GPU.
    on_cpu = x.detach().cpu().requires_grad_()
    y, expected = pool(kernels, x), pool(F, on_cpu)
    torch.testing.assert_close(y.cpu(), expected)
    assert y.stride() == pool(F, x).stride()
    for upstream in (torch.randn_like(y), torch.randn(y.shape, device=device)):
        (dx,) = torch.autograd.grad(y, x, upstream, retain_graph=True)
        (wanted,) = torch.autograd.grad(expected, on_cpu, upstream.cpu(), retain_graph=True)
        torch.testing.assert_close(dx.cpu(), wanted)
        assert dx.stride() == wanted.stride()


def test_contracts_for_channels_that_are_last(device):
    x = channels_last(device, "all")
    index = kernels.max_pool2d(x, 2, return_indices=True)[1]
    expected = F.max_pool2d(x, 2, return_indices=True)[1]
    assert index.equal(expected)
    assert index.stride() == expected.stride()
    compiles(lambda x: kernels.max_pool2d(x, 2), x)
    operator = torch.ops.tilewright.pool.default
    holds_contracts(operator, x, [4, 3], *([2, 2], [2, 2], [0, 0], [1, 1]), False, True, False, 0)
    nothing = x[:0]
    assert kernels.max_pool2d(nothing, 2).shape == (0, 8, 4, 3)


def test_nan_is_the_largest(device):
    x = torch.tensor([[1.0, float("nan"), 3.0, 4.0]], device=device)
    torch.testing.assert_close(kernels.max_pool1d(x, 2), F.max_pool1d(x, 2), equal_nan=True)


def test_contracts_with_pytorch(device):
    x = tensor((2, 5, 6), device=device)
    numbers = [2, 3], [2, 2], [2, 2], [0, 0], [1, 1]
    holds_contracts(torch.ops.tilewright.pool.default, x, *numbers, False, True, True, 0)
    holds_contracts(torch.ops.tilewright.pool.default, x, *numbers, False, False, True, 0)


def test_numpy_arrays():
    x = np.random.default_rng(0).standard_normal((3, 4, 6), dtype=np.float32)
    expected = F.avg_pool2d(torch.from_numpy(x), 2).numpy()
    np.testing.assert_allclose(kernels.avg_pool2d(x, 2), expected, rtol=1e-5, atol=1e-7)


def test_on_an_emulated_gpu():
    x = tensor((2, 5, 6))
    with tw.emulate("sm_90a", races=True):
        agrees(lambda x: kernels.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), x)
        agrees(lambda x: kernels.avg_pool1d(x, 2), lambda x: F.avg_pool1d(x, 2), x)


def test_channels_that_are_last_on_an_emulated_gpu():
    x = channels_last("cpu", "channels")
    with tw.emulate("sm_90a", races=True):
        agrees(lambda x: kernels.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), x)


def test_arguments_that_cannot_be():
    x = torch.zeros(2, 4, 4)
    with pytest.raises(ValueError, match="`padding` is 2, more than half of a window of 3"):
        kernels.max_pool2d(x, 3, padding=2)
    with pytest.raises(ValueError, match="which is less than a window"):
        kernels.avg_pool2d(x, 5)
    with pytest.raises(
        ValueError, match="`stride` is 0; an integer, or 2 of them, of at least 1 is needed"
    ):
        kernels.avg_pool2d(x, 2, 0)
    with pytest.raises(ValueError, match="`input` has 1 dimensions; 2 at least are needed"):
        kernels.max_pool1d(x[0, 0], 2)


@pytest.mark.parametrize("divisor", [-2, 3])
def test_another_divisor(device, divisor):
    x = tensor((2, 3, 4, 5), device=device)
    agrees(
        lambda x: kernels.avg_pool2d(x, 2, divisor_override=divisor),
        lambda x: F.avg_pool2d(x, 2, divisor_override=divisor),
        x,
    )
    with pytest.raises(ValueError, match="`divisor_override` must not be 0"):
        kernels.avg_pool2d(x, 2, divisor_override=0)
