"""Transforms of PyTorch that operations do not have are errors, and drop no derivative silently."""

import pytest

from tilewright import kernels

torch = pytest.importorskip("torch")

CALLS = {
    "relu": kernels.relu,
    "swiglu": kernels.swiglu,
    "softmax": lambda x: kernels.softmax(x, -1),
    "cumsum": lambda x: kernels.cumsum(x, 0),
    "layer_norm": lambda x: kernels.layer_norm(x, x.shape[-1]),
    "matmul": lambda x: kernels.matmul(x, x.mT),
    "topk": lambda x: kernels.topk(x, 2)[0],
    "attention": lambda x: kernels.attention(x[None, None], x[None, None], x[None, None]),
    "embedding": lambda x: kernels.embedding(torch.tensor([1]), x),
    "cholesky": lambda x: kernels.cholesky(x @ x.mT),
}
NO_TANGENT = "tilewright::.* has no derivative in forward mode: take reverse mode"


@pytest.fixture
def x():
    return torch.randn(4, 8)


@pytest.mark.parametrize("name", CALLS)
def test_forward_mode_is_refused(x, name):
    forward, function = torch.autograd.forward_ad, CALLS[name]
    for given in (x, x.clone().requires_grad_()):
        with forward.dual_level(), pytest.raises(NotImplementedError, match=NO_TANGENT):
            function(forward.make_dual(given, torch.ones_like(x)))
    for transformed in (function, torch.func.grad(lambda x: function(x).sum())):
        with pytest.raises(NotImplementedError, match=NO_TANGENT):
            torch.func.jvp(transformed, (x,), (torch.ones_like(x),))


def test_tangents_within_lists_and_compiled_functions_are_refused(x):
    forward = torch.autograd.forward_ad
    q = torch.ones(1, 1, 4, 8)
    compiled = torch.compile(kernels.relu, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.relu(x))
    with forward.dual_level():
        dual = forward.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=NO_TANGENT):
            kernels.attention(q, q, q, mod_tensors=(dual,))
        with pytest.raises(NotImplementedError, match=NO_TANGENT):
            torch.ops.tilewright.activation(dual, "relu")
        with pytest.raises(NotImplementedError, match=NO_TANGENT):
            compiled(dual)


def test_what_has_no_tangent_passes_through_forward_mode(x):
    def product(y):
        return kernels.relu(x) * y

    value, tangent = torch.func.jvp(product, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(value, torch.relu(x) * x)
    torch.testing.assert_close(tangent, torch.relu(x))
    with torch.autograd.forward_ad.dual_level():
        torch.testing.assert_close(kernels.relu(x), torch.relu(x))


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.jacrev])
def test_batches_are_refused(x, transform):
    with pytest.raises(
        NotImplementedError, match=r"tilewright::.* cannot be mapped by `torch\.vma"
    ):
        transform(kernels.relu)(x)


def test_arguments_without_a_derivative_are_refused(device):
    x = torch.randn(4, 5, device=device, requires_grad=True)
    target = torch.arange(4, device=device)
    weight = torch.rand(5, device=device, requires_grad=True)
    loss = kernels.cross_entropy(x, target, weight)
    with pytest.raises(NotImplementedError, match=r"cross_entropy has no derivative by `weight`"):
        loss.backward()
    kernels.cross_entropy(x, target, weight.detach()).backward()
    assert x.grad is not None


def test_slopes_get_no_gradient(device):
    query = torch.randn(1, 2, 16, 32, device=device, requires_grad=True)
    slopes = torch.rand(2, device=device, requires_grad=True)
    out = kernels.attention(query, query, query, alibi_slopes=slopes)
    with pytest.raises(NotImplementedError, match=r"attention has no derivative by `slopes`"):
        out.sum().backward()


def test_modes_and_the_profiler_see_operators(device):
    x = torch.randn(8, device=device)
    seen = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    with Watching():
        kernels.relu(x)
    assert any("tilewright.activation" in name for name in seen)
    with torch.profiler.profile(acc_events=True) as profile:
        kernels.relu(x)
    assert any("tilewright::activation" in event.key for event in profile.key_averages())


def test_what_is_no_ordinary_tensor(device):
    class Marked(torch.Tensor):
        pass

    x = torch.randn(4, 8, dtype=torch.complex64, device=device)
    negative = x.conj().imag  # its elements in memory have the other sign
    assert negative.is_neg()
    assert torch.equal(kernels.relu(negative), torch.relu(negative))
    assert isinstance(kernels.relu(x.real.as_subclass(Marked)), Marked)
    assert kernels.relu(torch.empty(3, device="meta")).shape == (3,)
    with torch.inference_mode():
        assert torch.equal(kernels.relu(x.real), torch.relu(x.real))
