"""Linear recurrences."""

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


def step_by_step(a, b, initial, dim):
    h = torch.zeros_like(b.select(dim, 0)) if initial is None else initial
    states = []
    for kept, added in zip(a.unbind(dim), b.unbind(dim), strict=True):
        h = kept * h + added
        states.append(h)
    return torch.stack(states, dim)


def coefficients(shape, dtype, device, layout="contiguous"):
    """Between 0 and 1, as those of gates are."""
    x = tensor(shape, dtype, device, layout, requires_grad=False)
    return torch.sigmoid(x.float()).to(x.dtype).requires_grad_()


@given(
    shape=st.sampled_from([(2, 5, 3), (1, 70, 4), (3, 1, 40), (2, 600), (4, 2, 3, 2)]),
    dtype=dtypes,
    layout=layouts,
    has_initial=st.booleans(),
    data=st.data(),
)
@examples(6)
def test_agrees_with_steps(device, shape, dtype, layout, has_initial, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    a, b = coefficients(shape, dtype, device, layout), tensor(shape, dtype, device, layout)
    initial = tensor(shape[:dim] + shape[dim + 1 :], dtype, device) if has_initial else None
    agrees(
        lambda a, b, h: kernels.linear_recurrence(a, b, h, dim),
        lambda a, b, h: step_by_step(a, b, h, dim),
        *(a, b, initial),
        factor=3,
    )


def test_derivatives(device):
    inputs = [tensor(shape, "float64", device) for shape in ((2, 5, 3), (2, 5, 3), (2, 3))]
    assert torch.autograd.gradcheck(kernels.linear_recurrence, inputs)
    compiles(kernels.linear_recurrence, *inputs)
    same_bits_again(kernels.linear_recurrence, *inputs)
    a, b, h = (x.detach() for x in inputs)
    actual = torch.func.grad(lambda a: kernels.linear_recurrence(a, b, h).square().sum())(a)
    expected = torch.func.grad(lambda a: step_by_step(a, b, h, 1).square().sum())(a)
    torch.testing.assert_close(actual, expected)


def test_contracts_with_pytorch(device):
    a, b = (tensor((2, 3, 4), device=device) for _ in range(2))
    operator = torch.ops.tilewright.linear_recurrence.default
    holds_contracts(operator, a, b, tensor((2, 4), device=device), 1)


def test_numpy_arrays_and_empty_ones():
    a, b = (x.detach() for x in (coefficients((2, 9, 3), "float32", "cpu"), tensor((2, 9, 3))))
    actual = kernels.linear_recurrence(a.numpy(), b.numpy())
    np.testing.assert_allclose(actual, step_by_step(a, b, None, 1).numpy(), atol=1e-5)
    assert kernels.linear_recurrence(a[:, :0], b[:, :0]).shape == (2, 0, 3)


def test_on_an_emulated_gpu():
    a, b = coefficients((2, 40, 5), "float32", "cpu"), tensor((2, 40, 5))
    with tw.emulate("sm_90a", races=True):
        agrees(
            kernels.linear_recurrence,
            lambda *x: step_by_step(*x, 1),
            a,
            b,
            tensor((2, 5)),
        )


def test_arguments_that_cannot_be():
    b = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match=r"`a` has the shape \(2, 3\); \(2, 3, 4\) is needed"):
        kernels.linear_recurrence(b[..., 0], b)
    with pytest.raises(ValueError, match=r"`initial` has the shape \(3,\); \(2, 4\) is needed"):
        kernels.linear_recurrence(b, b, torch.zeros(3))
    with pytest.raises(TypeError, match=r"`a` is of torch\.float16, and `b` of torch\.float32"):
        kernels.linear_recurrence(b.half(), b)
