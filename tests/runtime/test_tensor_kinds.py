"""Tensors of PyTorch whose memory is not their elements: one clear error for each kind.

Each is passed to a kernel that was launched on an ordinary tensor before, whose launcher must tell
them apart, and to one that was not.
"""

import re
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.runtime import launcher, launcher_shared
from tilewright.runtime.torch_interface import tensor_keys

torch = pytest.importorskip("torch")


def make_double():
    @tw.jit
    def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + place, mask=place < n)
        tl.store(out_ptr + place, 2 * x, mask=place < n)

    return double


def negated():
    return torch.arange(8.0).to(torch.complex64).mul(1j).conj().imag


def without_memory(first):
    tensor = torch.zeros(8)
    view = tensor[first:]
    tensor.untyped_storage().resize_(0)
    return view


def fake():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(8)


def wrapper():
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.zeros(8), torch.zeros(8))


def quantized():
    return torch.quantize_per_tensor(torch.zeros(8), 1.0, 0, torch.qint8)


def nested(layout):
    return torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)], layout=layout)


KINDS = {
    "negated": (negated, r"negated lazily", r"\.resolve_neg\(\)"),
    "negated view": (lambda: torch._neg_view(torch.zeros(8)), "negated lazily", "resolve_neg"),
    "conjugated": (
        lambda: torch.zeros(8, dtype=torch.complex64).conj(),
        "conjugated lazily",
        r"\.resolve_conj\(\)",
    ),
    "complex": (lambda: torch.zeros(8, dtype=torch.complex64), "complex64", "view_as_real"),
    "sparse": (lambda: torch.zeros(8).to_sparse(), "sparse tensor", "to_dense"),
    "sparse rows": (lambda: torch.zeros(2, 4).to_sparse_csr(), "sparse tensor", "to_dense"),
    "meta": (lambda: torch.zeros(8, device="meta"), "the meta device", "torch.empty_like"),
    "fake": (fake, "a fake tensor has a shape, but no memory", "register_fake"),
    "quantized": (quantized, "quantized", "int_repr"),
    "nested": (lambda: nested(torch.strided), "nested tensor", r"\.values\(\)"),
    "jagged": (lambda: nested(torch.jagged), "nested tensor", r"\.values\(\)"),
    "zeros": (lambda: torch._efficientzerotensor(8), "all zeros", r"\.clone\(\)"),
    "given back": (
        lambda: without_memory(0),
        "8 elements, but its memory was given back",
        "resize_",
    ),
    "behind what was given back": (lambda: without_memory(2), "6 elements, but", "resize_"),
    "wrapper": (wrapper, "a TwoTensor has no memory of its own", "to_local"),
}
if torch.backends.mkldnn.is_available():
    KINDS["mkldnn"] = (lambda: torch.zeros(8).to_mkldnn(), "mkldnn", "to_dense")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_no_plain_memory_is_refused(kind, is_known):
    make, words, hint = KINDS[kind]
    double, out = make_double(), torch.zeros(8)
    if is_known:
        for _ in range(2):
            double[1,](torch.ones(8), out, 8, BLOCK=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = make()
    for arguments in ((tensor, out), (out, tensor)):
        name = "x_ptr" if arguments[0] is tensor else "out_ptr"
        with pytest.raises(LaunchError, match=rf"`{name}`: .*{words}") as error:
            double[1,](*arguments, 8, BLOCK=8)
        assert re.search(hint, error.value.hint)


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize", "jvp"])
def test_tensors_within_transformations_are_refused(transform):
    double, out = make_double(), torch.zeros(8)
    double[1,](torch.ones(8), out, 8, BLOCK=8)

    def function(x):
        double[1,](x, out, 8, BLOCK=8)
        return x.sum()

    functions = torch.func
    run = {
        "vmap": lambda: functions.vmap(function)(torch.ones(2, 8)),
        "grad": lambda: functions.grad(function)(torch.ones(8)),
        "functionalize": lambda: functions.functionalize(function)(torch.ones(8)),
        "jvp": lambda: functions.jvp(function, (torch.ones(8),), (torch.ones(8),)),
    }[transform]
    with pytest.raises(LaunchError, match=r"within `torch.func`(.|\n)*torch.library.custom_op"):
        run()


def test_what_is_plain_memory_is_taken_by_machine_code(monkeypatch):
    double = make_double()
    expected = 2 * torch.arange(8.0)
    with torch.inference_mode():
        inferred = torch.arange(8.0)
    tensors = [
        torch.arange(8.0),
        torch.nn.Parameter(torch.arange(8.0)),
        torch.arange(8.0).requires_grad_() * 1,
        torch.arange(8.0).share_memory_(),
        torch.from_numpy(np.arange(8, dtype=np.float32)),
        torch.arange(16.0)[:8].detach(),
        negated().resolve_neg().neg(),
        inferred,
    ]
    aligned = [tensor for tensor in tensors if tensor.data_ptr() % 16 == 0]
    assert len(aligned) >= 6
    double[1,](aligned[0], torch.zeros(8), 8, BLOCK=8)
    monkeypatch.setattr(type(double), "launch", None)
    for tensor in aligned:
        out = torch.zeros(8)
        if out.data_ptr() % 16 == 0:
            double[1,](tensor, out, 8, BLOCK=8)
            assert torch.equal(out, expected)


def test_empty_tensors_are_taken_by_machine_code(monkeypatch):
    double, out = make_double(), torch.ones(8)
    nothing = torch.zeros(0)
    assert nothing.data_ptr() == 0
    double[1,](nothing, out, 0, BLOCK=8)
    monkeypatch.setattr(type(double), "launch", None)
    double[1,](nothing, out, 0, BLOCK=8)
    assert torch.equal(out, torch.ones(8))


def test_where_keys_are_not_as_expected_python_looks(monkeypatch):
    monkeypatch.setattr(
        torch._C, "_dispatch_keys", lambda tensor: torch._C.DispatchKeySet(torch._C.DispatchKey.XLA)
    )
    assert tensor_keys() is None
    launcher._shared().fill()
    try:
        double, out = make_double(), torch.zeros(8)
        for _ in range(3):
            double[1,](torch.ones(8), out, 8, BLOCK=8)
            assert torch.equal(out, 2 * torch.ones(8))
        with pytest.raises(LaunchError, match="negated lazily"):
            double[1,](negated(), out, 8, BLOCK=8)
    finally:
        monkeypatch.undo()
        launcher._shared().fill()
    assert launcher_shared.tensor_keys() is not None
