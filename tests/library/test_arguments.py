"""Arguments that no operation of the library can take, and devices that have no elements."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from tilewright import kernels

torch = pytest.importorskip("torch")


def ones(*shape):
    return torch.ones(shape)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"
NO_ARRAY = "a tensor of PyTorch or an array of NumPy is needed"


@pytest.mark.parametrize("wrong", [None, 3.0, [1.0, 2.0]])
@pytest.mark.parametrize(
    "call",
    [
        kernels.relu,
        kernels.gelu,
        kernels.swiglu,
        kernels.softmax,
        lambda x: kernels.cumsum(x, 0),
        lambda x: kernels.layer_norm(x, 4),
        lambda x: kernels.add_rms_norm(x, ones(2, 4), 4),
        lambda x: kernels.add_rms_norm(ones(2, 4), x, 4),
        lambda x: kernels.group_norm(x, 2),
        lambda x: kernels.batch_norm(x, None, None, training=True),
        lambda x: kernels.max_pool1d(x, 2),
        lambda x: kernels.adaptive_avg_pool2d(x, 2),
        lambda x: kernels.conv2d(x, ones(2, 2, 3, 3)),
        lambda x: kernels.conv2d(ones(1, 2, 8, 8), x),
        lambda x: kernels.causal_conv1d(x, ones(2, 3)),
        lambda x: kernels.attention(x, ones(1, 2, 4, 8), ones(1, 2, 4, 8)),
        lambda x: kernels.attention(ones(1, 2, 4, 8), ones(1, 2, 4, 8), x),
        lambda x: kernels.matmul(ones(2, 4), x),
        lambda x: kernels.linear(ones(2, 4), x),
        lambda x: kernels.cross_entropy(x, torch.tensor([1])),
        lambda x: kernels.cross_entropy(ones(1, 4), x),
        lambda x: kernels.embedding(torch.tensor([1]), x),
    ],
)
def test_what_is_no_array_is_refused_by_name(call, wrong):
    with pytest.raises(TypeError, match=NO_ARRAY):
        call(wrong)


def test_a_dimension_is_an_integer():
    for dim in (1.0, "a", None):
        with pytest.raises(TypeError, match=r"`dim` is .*; an integer is needed"):
            kernels.softmax(ones(2, 3), dim)
    assert kernels.softmax(ones(2, 3), np.int64(0)).shape == (2, 3)


def test_sizes_of_windows_are_integers():
    for size in (1.5, "a", None, [1, 2, 3]):
        with pytest.raises(ValueError, match="an integer, or 2 of them, of at least 1 is needed"):
            kernels.max_pool2d(ones(1, 1, 4, 4), size)
    with pytest.raises(ValueError, match="an integer of at least 0 is needed"):
        kernels.adaptive_avg_pool1d(ones(1, 4), [1, 2])


def test_tensors_and_arrays_of_numpy_do_not_mix():
    with pytest.raises(TypeError, match="a tensor of PyTorch, and `other` an array of NumPy; all"):
        kernels.matmul(ones(2, 3), np.ones((3, 2), np.float32))


def test_wrong_arguments_of_attention_are_named():
    q = ones(1, 2, 4, 8)
    with pytest.raises(ValueError, match="`window` is 3; how many keys are seen before, and after"):
        kernels.attention(q, q, q, window=3)
    with pytest.raises(
        ValueError, match=r"`attn_mask` has the shape \(3, 3\); one that broadcasts"
    ):
        kernels.attention(q, q, q, attn_mask=ones(3, 3))
    with pytest.raises(
        TypeError, match=r"`<lambda>` is called in a kernel: decorate it with `@til"
    ):
        kernels.attention(q, q, q, score_mod=lambda score, *_: score)
    with pytest.raises(ValueError, match="`key` has 4 axes"):
        kernels.varlen_attention(q[0], q, q, ones(2).int(), ones(2).int(), 4, 4)
    with pytest.raises(ValueError, match="`key_cache` has 3 dimensions; 4 are needed"):
        kernels.decode_attention(q[0], q[0], q[0], ones(2).int())


Q, LABELS, ENDS = ones(1, 2, 4, 8), torch.tensor([1, 0]), torch.tensor([0, 2], dtype=torch.int32)
SHARES = {
    "p": lambda x: kernels.dropout(ones(4), x),
    "label_smoothing": lambda x: kernels.cross_entropy(ones(2, 3), LABELS, label_smoothing=x),
    "label_smoothing of classes": lambda x: kernels.linear_cross_entropy(
        ones(2, 3), ones(4, 3), LABELS, label_smoothing=x
    ),
    "dropout_p": lambda x: kernels.attention(Q, Q, Q, dropout_p=x),
    "dropout_p of sequences": lambda x: kernels.varlen_attention(
        ones(2, 1, 8), ones(2, 1, 8), ones(2, 1, 8), ENDS, ENDS, 2, 2, dropout_p=x
    ),
}


@pytest.mark.parametrize("name", SHARES)
def test_what_is_no_share_is_refused_by_name(name):
    wanted = name.partition(" ")[0]
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"`{wanted}` is {wrong}; it has to be from 0 to 1"):
            SHARES[name](wrong)
    for wrong in (None, "a", [0.5]):
        with pytest.raises(TypeError, match=f"`{wanted}` has to be a number from 0 to 1, got "):
            SHARES[name](wrong)


def test_features_of_a_recurrent_layer_fit():
    with pytest.raises(ValueError, match=r"`input` has 4 features, and `params\[0\]` is for 5"):
        kernels.LSTM(5, 6)(ones(3, 2, 4))


def test_a_sparsity_is_where_the_blocks_are():
    sparsity = kernels.BlockSparsity(np.ones((2, 2), bool), 16)
    with pytest.raises(TypeError, match=r"`sparsity` an array of NumPy.*torch\.from_numpy"):
        kernels.sdd_matmul(ones(1, 1, 32, 8), ones(1, 1, 8, 32), sparsity)
    with pytest.raises(TypeError, match="`sparsity` is a str; a BlockSparsity is needed"):
        kernels.sdd_matmul(ones(1, 1, 32, 8), ones(1, 1, 8, 32), "all")


def test_tensors_without_elements_tell_shapes():
    x = torch.empty(2, 4, 6, device="meta")
    assert kernels.matmul(x, x.mT).shape == (2, 4, 4)
    assert kernels.softmax(kernels.gelu(x)).device.type == "meta"
    y = kernels.layer_norm(x.requires_grad_(), 6)
    y.sum().backward()
    assert x.grad.shape == (2, 4, 6)


def in_order(function):
    """Return the names of the parameters that may come in order; none of a built-in function."""
    try:
        given = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [x.name for x in given if x.kind == x.POSITIONAL_OR_KEYWORD]


# `torch.nn.functional.scaled_mm` wants a recipe for each scale; `torch._scaled_mm` does not.
SHARED = sorted({*kernels.__all__} & {*dir(torch.nn.functional)} - {"scaled_mm"})


@pytest.mark.parametrize("name", SHARED)
def test_arguments_come_in_the_order_of_pytorch(name):
    """What is asked of built-in functions is that the array is named as theirs."""
    ours = in_order(getattr(kernels, name))
    theirs = in_order(getattr(torch.nn.functional, name)) or ["input"]
    assert ours[: len(theirs)] == theirs[: len(ours)]


def test_arrays_have_the_names_of_pytorch():
    public = [(name, getattr(kernels, name)) for name in kernels.__all__]
    public += [(name, getattr(kernels.images, name)) for name in kernels.images.__all__]
    named = {name: in_order(function) for name, function in public if callable(function)}
    assert [name for name, parameters in named.items() if "x" in parameters] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in (kernels, kernels.images)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    ],
)
def test_functions_are_documented(module, name):
    function = getattr(module, name)
    text, parameters = inspect.getdoc(function), inspect.signature(function).parameters
    assert [x for x in parameters if f"\n    {x}: " not in text] == []
    assert "\nReturns:\n" in text
    assert "\n>>> " in text
    assert text.partition("\n")[0].endswith(".")


def test_the_page_of_the_library_has_every_function():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in kernels.__all__ if f"`{name}`" not in page and name != "images"] == []
    assert [name for name in kernels.images.__all__ if f"`images.{name}`" not in page] == []
