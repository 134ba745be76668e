"""Cross-entropy of logits, and of those of a linear layer."""

import sys

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
LINEAR = sys.modules[kernels.linear_cross_entropy.__module__]
SHAPES = st.sampled_from([(0, 3), (4,), (5, 1), (7, 9), (2, 3, 4), (2, 4, 3, 2), (3, 1000)])
REDUCTIONS = st.sampled_from(["none", "mean", "sum"])
SMOOTHING = st.sampled_from([0.0, 0.1])


def targets(shape, classes, device, ignored=True):
    """Random classes, of which some are left out."""
    target = torch.randint(0, classes, shape, device=device)
    if ignored and target.numel() > 1:
        target.view(-1)[0] = -100
    return target


@given(
    shape=SHAPES,
    dtype=dtypes,
    layout=layouts,
    reduction=REDUCTIONS,
    smoothing=SMOOTHING,
    weighted=st.booleans(),
)
@examples(20)
def test_agrees_with_pytorch(device, shape, dtype, layout, reduction, smoothing, weighted):
    x = tensor(shape, dtype, device, layout)
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = targets(shape[:0] if len(shape) == 1 else (shape[0], *shape[2:]), classes, device)
    weight = tensor((classes,), dtype, device, requires_grad=False).abs() if weighted else None

    def of(function):
        def loss(x, weight):
            return function(x, target, weight, reduction=reduction, label_smoothing=smoothing)

        return loss

    agrees(of(kernels.cross_entropy), of(F.cross_entropy), x, weight, factor=2)


@pytest.mark.parametrize("bias", [False, True])
@given(
    dtype=dtypes,
    layout=layouts,
    reduction=REDUCTIONS,
    smoothing=SMOOTHING,
    weighted=st.booleans(),
)
@examples(8)
def test_linear_agrees_with_pytorch(device, bias, dtype, layout, reduction, smoothing, weighted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LINEAR, "_FEWEST_CLASSES", 16)
        patch.setattr(LINEAR, "_LOGITS", 1)
        x = tensor((2, 3, 8), dtype, device, layout)
        weight = tensor((37, 8), dtype, device)
        inputs = (x, weight, tensor((37,), dtype, device)) if bias else (x, weight)
        target = targets((2, 3), 37, device)
        options = {"reduction": reduction, "label_smoothing": smoothing}
        factors = None
        if weighted:
            factors = tensor((37,), dtype, device, layout, requires_grad=False).abs()

        def ours(x, weight, bias=None):
            return kernels.linear_cross_entropy(
                x, weight, target, linear_bias=bias, weight=factors, **options
            )

        def plain(x, weight, bias=None):
            logits = F.linear(x, weight, bias)
            own = None if factors is None else factors.to(x.dtype)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), own, **options)
            return loss.reshape(target.shape) if reduction == "none" else loss

        agrees(ours, plain, *inputs, factor=8)


def test_derivatives(device):
    x, weight = tensor((3, 5), "float64", device), tensor((7, 5), "float64", device)
    target = torch.tensor([1, -100, 4], device=device)

    def plain(x):
        return kernels.cross_entropy(x, target, label_smoothing=0.1)

    factors = torch.rand(7, device=device, dtype=torch.float64)

    def linear(x, weight):
        return kernels.linear_cross_entropy(x, weight, target, weight=factors, label_smoothing=0.1)

    for case in ((plain, x), (linear, x, weight)):
        assert torch.autograd.gradcheck(case[0], case[1:])
        compiles(*case)
        same_bits_again(*case)
    actual = torch.func.grad(plain)(x.detach())
    expected = torch.func.grad(lambda x: F.cross_entropy(x, target, label_smoothing=0.1))(
        x.detach()
    )
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    x, target = tensor((3, 5), device=device), torch.tensor([1, 2, 4], device=device)
    operators = torch.ops.tilewright
    holds_contracts(operators.cross_entropy.default, x, target, None, -100, "mean", 0.0)
    weight, factors = tensor((7, 5), device=device), torch.rand(7, device=device)
    arguments = x, weight, target, None, factors, -100, "none", 0.0
    holds_contracts(operators.linear_cross_entropy.default, *arguments)


def test_autocast(device):
    x, target = tensor((3, 5), "bfloat16", device), torch.tensor([1, 2, 4], device=device)
    with torch.autocast(device, torch.bfloat16):
        assert kernels.cross_entropy(x, target).dtype == torch.float32
        loss = kernels.linear_cross_entropy(x.float(), x.float(), target % 3)
        assert loss.dtype == torch.bfloat16
        # The factors of classes stay as they are: these are one number in bf16.
        factors = torch.tensor([1.0, 1.001, 1.002], device=device)
        weight, options = torch.zeros(3, 5, device=device), {"reduction": "none"}
        losses = kernels.linear_cross_entropy(
            x.double(), weight.double(), target % 3, weight=factors, **options
        )
        expected = factors[target % 3].double() * torch.tensor(3.0).log()
        torch.testing.assert_close(losses, expected)


def test_places_that_do_not_count(device):
    x = tensor((2, 3), device=device)
    ignored = torch.full((2,), 1, device=device)
    assert kernels.cross_entropy(x, ignored, ignore_index=1).isnan()
    assert kernels.cross_entropy(x, ignored, ignore_index=1, reduction="sum") == 0
    no_class = torch.tensor([1, 3], device=device)
    losses = kernels.cross_entropy(x, no_class, reduction="none")
    assert losses.isnan().tolist() == [False, True]


def test_logits_that_begin_with_minus_infinity(device):
    x = torch.full((2, 9000), -1000.0, device=device)
    x[0, :8000] = -float("inf")
    target = torch.tensor([8500, 3], device=device)
    torch.testing.assert_close(kernels.cross_entropy(x, target), F.cross_entropy(x, target))


def test_numpy_arrays():
    random = np.random.default_rng(0)
    x, target = random.standard_normal((5, 7), dtype=np.float32), random.integers(0, 7, 5)
    expected = F.cross_entropy(torch.from_numpy(x), torch.from_numpy(target)).numpy()
    np.testing.assert_allclose(kernels.cross_entropy(x, target), expected, rtol=1e-5)


def test_on_an_emulated_gpu():
    x, target = tensor((5, 70)), torch.tensor([1, 2, -100, 69, 0])
    with tw.emulate("sm_90a", races=True):
        agrees(
            lambda x: kernels.cross_entropy(x, target),
            lambda x: F.cross_entropy(x, target),
            x,
        )


def test_arguments_that_cannot_be():
    x, target = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"`target` has the shape \(3,\); \(2,\) is needed"):
        kernels.cross_entropy(x, target.new_zeros(3))
    with pytest.raises(TypeError, match="`target` is of float32; int32 or int64 is needed"):
        kernels.cross_entropy(x, target.float())
    with pytest.raises(ValueError, match="`reduction` is 'max'; one of 'none', 'mean', 'sum' is"):
        kernels.cross_entropy(x, target, reduction="max")
    with pytest.raises(ValueError, match=r"`label_smoothing` is 2; it has to be from 0 to 1"):
        kernels.cross_entropy(x, target, label_smoothing=2)
    with pytest.raises(ValueError, match=r"`linear_weight` has the shape \(4, 2\); \(4, 3\)"):
        kernels.linear_cross_entropy(x, torch.zeros(4, 2), target)
    with pytest.raises(ValueError, match=r"`weight` has the shape \(3,\); \(4,\) is needed"):
        kernels.linear_cross_entropy(x, torch.zeros(4, 3), target, weight=torch.ones(3))


def test_smoothing_is_as_precise_as_the_numbers(device):
    x = torch.randn(12, 104, dtype=torch.float64, device=device, requires_grad=True)
    target = torch.randint(0, 104, (12,), device=device)
    actual, expected = (
        module.cross_entropy(x, target, label_smoothing=0.25) for module in (kernels, F)
    )
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=0)
    found, wanted = (torch.autograd.grad(loss, x) for loss in (actual, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
