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


SEED = torch.tensor([1, 2])
OF_WRONG_TYPE = {
    "`scale` is 'a'; a number": lambda: kernels.attention(Q, Q, Q, scale="a"),
    "`softcap` is None; a number": lambda: kernels.attention(Q, Q, Q, softcap=None),
    "`offset` is 0.5; an integer": lambda: kernels.attention(Q, Q, Q, offset=0.5),
    "`window` is 'a'; an integer": lambda: kernels.attention(Q, Q, Q, window=("a", 1)),
    "`input` is of the layout torch.sparse_coo": lambda: kernels.relu(ones(2, 4).to_sparse()),
    "`seed` is 1.5; an integer": lambda: kernels.dropout(ones(4), seed=1.5),
    "`bins` is None; an integer": lambda: kernels.histc(ones(4), None),
    "`min` is 'a'; a number": lambda: kernels.histc(ones(4), 2, "a", 1),
    "`k` is 2.0; an integer": lambda: kernels.topk(ones(4), 2.0),
    "`largest` is 'no'; True or False": lambda: kernels.topk(ones(4), 2, largest="no"),
    "`normalized_shape` is 4.0; an integer": lambda: kernels.layer_norm(ones(4), 4.0),
    "`eps` is 'a'; a number": lambda: kernels.layer_norm(ones(4), 4, eps="a"),
    "`num_groups` is None; an integer": lambda: kernels.group_norm(ones(1, 4), None),
    "`upper` is 'yes'; True or False": lambda: kernels.solve_triangular(
        ones(2, 2), ones(2, 2), upper="yes"
    ),
    "`ignore_index` is 1.0; an integer": lambda: kernels.cross_entropy(
        ones(2, 3), LABELS, ignore_index=1.0
    ),
    "`reduction` is 3; a text": lambda: kernels.cross_entropy(ones(2, 3), LABELS, reduction=3),
    "`padding_idx` is 1.0; an integer": lambda: kernels.embedding(LABELS, ones(2, 2), 1.0),
    "`groups` is 1.0; an integer": lambda: kernels.conv2d(
        ones(1, 4, 5, 5), ones(4, 4, 3, 3), groups=1.0
    ),
    "`rows` is 'a'; an integer": lambda: kernels.coo_to_csr(LABELS, LABELS, ones(2), "a"),
    "`group` is 'a'; an integer": lambda: kernels.quantize_weight(ones(4, 32), group="a"),
    "`size` is 16.0; an integer": lambda: kernels.BlockSparsity(ones(2, 2).bool(), 16.0),
    "`num_layers` is None; an integer": lambda: kernels.gru(
        ones(3, 2, 2), None, [], True, None, 0.0, False, False, False
    ),
    "`group` is 2.0; an integer": lambda: kernels.quantize_rows(ones(2, 4), group=2.0),
}
OF_WRONG_VALUE = {
    r"`alibi_slopes` has the shape \(3,\)": lambda: kernels.attention(
        Q, Q, Q, alibi_slopes=ones(3)
    ),
    r"`residual` has the shape \(3, 5\); one that broadcasts to \(1, 2, 4, 5\)": lambda: (
        kernels.linear(Q, ones(5, 8), residual=ones(3, 5))
    ),
    r"`seed` has the shape \(2,\); one integer": lambda: kernels.dropout(ones(4), seed=SEED),
    "`seed` is 9223372036854775808; an integer of 64": lambda: kernels.dropout(
        ones(4), seed=1 << 63
    ),
    "`rows` is -2; an integer of at least 0": lambda: kernels.coo_to_csr(
        LABELS, LABELS, ones(2), -2
    ),
    "`crow_indices` is empty": lambda: kernels.spmm(LABELS[:0], LABELS[:0], ones(0), ones(2, 2)),
    "pages of 0 tokens": lambda: kernels.paged_attention(
        ones(1, 2, 8), ones(1, 0, 2, 8), ones(1, 0, 2, 8), ENDS[None], ENDS[1:]
    ),
    "the 2 heads are no multiple of the cache's 0": lambda: kernels.decode_attention(
        ones(1, 2, 8), ones(1, 0, 4, 8), ones(1, 0, 4, 8), ENDS[1:]
    ),
}


@pytest.mark.parametrize("message", OF_WRONG_TYPE)
def test_what_is_of_a_wrong_type_is_named(message):
    with pytest.raises(TypeError, match=message):
        OF_WRONG_TYPE[message]()


@pytest.mark.parametrize("message", OF_WRONG_VALUE)
def test_what_cannot_be_is_named(message):
    with pytest.raises(ValueError, match=message):
        OF_WRONG_VALUE[message]()


def test_types_are_checked_for_arrays_of_numpy_too():
    x = np.ones((2, 4), np.float32)
    with pytest.raises(TypeError, match="`eps` is 'a'; a number is needed"):
        kernels.layer_norm(x, 4, eps="a")
    assert kernels.layer_norm(x, np.int64(4), eps=np.float32(1e-5)).shape == (2, 4)


def test_sizes_that_are_not_known_yet_are_integers():
    torch.compiler.reset()

    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def function(x, seed):
        y = kernels.layer_norm(kernels.dropout(x, 0.5, seed=seed), x.shape[-1])
        q = kernels.group_norm(y[None], y.shape[0])[:, None]
        return kernels.attention(q, q, q, scale=1 / q.shape[-1])

    for size in (8, 12):
        x = ones(5, size).requires_grad_()
        function(x, size).sum().backward()
        assert x.grad.shape == x.shape


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
