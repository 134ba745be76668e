"""What every operation of the library has to show, beside a reference in fp64.

A *case* is a function of tensors, the same in plain PyTorch, and the tensors. `agrees` compares
results and gradients; `holds_contracts` asks PyTorch's own checkers.
"""

import math

import hypothesis
import torch
from hypothesis import strategies as st

__all__ = [
    "DTYPES",
    "agrees",
    "assert_close",
    "compiles",
    "dtypes",
    "examples",
    "gradients",
    "holds_contracts",
    "layouts",
    "same_bits_again",
    "tensor",
]

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def examples(count):
    """So many random examples of a property, without a limit on the time of each.

    Where the profile has fewer than hypothesis by itself, they are fewer in proportion.
    """
    share = hypothesis.settings.default.max_examples / 100
    return hypothesis.settings(max_examples=math.ceil(count * share), deadline=None)


dtypes = st.sampled_from(sorted(DTYPES))

# How far a result may be from the reference, in units of the largest element of the reference:
# a rounding of the result, and a few of what it is made of.
_TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def tensor(shape, dtype="float32", device="cpu", layout="contiguous", *, requires_grad=True):
    """Normal random numbers; `layout` is "contiguous", "transposed", "sliced" or "expanded"."""
    kind = DTYPES.get(dtype, getattr(torch, dtype, dtype)) if isinstance(dtype, str) else dtype
    shape = tuple(shape)

    def normal(*size):
        # In its dtype before there is a view: a conversion of a view is a copy without its strides.
        return torch.randn(size, device=device).to(kind)

    if layout == "transposed" and len(shape) > 1:
        x = normal(*shape[:-2], shape[-1], shape[-2]).mT
    elif layout == "sliced" and shape:
        x = normal(*shape[:-1], 2 * shape[-1] + 1)[..., 1::2]
    elif layout == "expanded" and shape:
        x = normal(1, *shape[1:]).expand(shape)
    else:
        x = normal(*shape)
    return x.detach().requires_grad_(requires_grad)


layouts = st.sampled_from(["contiguous", "transposed", "sliced", "expanded"])


def assert_close(actual, expected, *, factor=1.0, name="result"):
    """The largest error, beside the largest number, is within what the dtype allows."""
    assert tuple(actual.shape) == tuple(expected.shape), name
    if actual.numel() == 0:
        return
    expected = expected.to(torch.float64)
    largest = expected.nan_to_num(0.0, 0.0, 0.0).abs().amax().item()
    allowed = _TOLERANCE[actual.dtype] * factor * max(1.0, largest)
    actual = actual.to(torch.float64)
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=allowed, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def gradients(results, inputs, upstream):
    """The gradients of the inputs that need one, for given gradients of the results."""
    pairs = [(y, dy) for y, dy in zip(results, upstream, strict=True) if y.requires_grad]
    return torch.autograd.grad(
        [y for y, _ in pairs],
        [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad],
        [dy for _, dy in pairs],
        allow_unused=True,
    )


def _tuple(results):
    return results if isinstance(results, tuple) else (results,)


def agrees(function, reference, *inputs, factor=1.0, backward=True):
    """Results and gradients of `function(*inputs)` are those of `reference` in fp64."""
    exact = [
        x.detach().to(torch.float64).requires_grad_(x.requires_grad)
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in inputs
    ]
    actual, expected = _tuple(function(*inputs)), _tuple(reference(*exact))
    for number, (y, exact_y) in enumerate(zip(actual, expected, strict=True)):
        assert_close(y, exact_y, factor=factor, name=f"result {number}")
    if not backward or not any(y.requires_grad for y in expected):
        return
    assert [y.requires_grad for y in actual] == [y.requires_grad for y in expected]
    upstream = [torch.randn_like(y) for y in actual]
    given = gradients(actual, inputs, upstream)
    wanted = gradients(expected, exact, [dy.to(torch.float64) for dy in upstream])
    for number, (dx, exact_dx) in enumerate(zip(given, wanted, strict=True)):
        if exact_dx is None:
            assert dx is None or not dx.any(), f"gradient {number}"
        else:
            assert_close(dx, exact_dx, factor=factor, name=f"gradient {number}")


def holds_contracts(operator, *arguments):
    """PyTorch's checks of an operator: its schema, fake results, autograd, dynamic shapes."""
    torch.library.opcheck(operator, arguments)


def compiles(function, *inputs):
    """`torch.compile(fullgraph=True)` gives the same bits, forward and backward."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    actual, expected = _tuple(compiled(*inputs)), _tuple(function(*inputs))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    if any(y.requires_grad for y in expected):
        upstream = [torch.randn_like(y) for y in expected]
        torch.testing.assert_close(
            gradients(actual, inputs, upstream),
            gradients(expected, inputs, upstream),
            rtol=0,
            atol=0,
            equal_nan=True,
        )


def same_bits_again(function, *inputs):
    """Two runs give the same bits, forward and backward."""
    first, second = _tuple(function(*inputs)), _tuple(function(*inputs))
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    if any(y.requires_grad for y in first):
        upstream = [torch.randn_like(y) for y in first]
        both = [gradients(results, inputs, upstream) for results in (first, second)]
        torch.testing.assert_close(*both, rtol=0, atol=0, equal_nan=True)
