"""Messages name what the caller wrote, and a way out."""

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import kernels

torch = pytest.importorskip("torch")


def ones(*shape):
    return torch.ones(shape)


def test_a_linear_layer_names_its_weight():
    said = (
        r"`input` has the shape \(3, 16\), and `weight` \(9, 17\); \(\.\.\., K\) and \(N, K\) are"
    )
    with pytest.raises(ValueError, match=said):
        kernels.linear(ones(3, 16), ones(9, 17))
    with pytest.raises(TypeError, match="`input` is of float32, and `weight` of float16"):
        kernels.linear(ones(3, 16), ones(9, 16).half())
    assert kernels.linear(ones(16), ones(9, 16)).tolist() == [16] * 9
    with torch.autocast("cpu"):
        assert kernels.linear(ones(2, 16), ones(9, 16), ones(9)).dtype == torch.bfloat16


def test_tables_of_the_full_width_are_known():
    x = ones(1, 2, 5, 8)
    with pytest.raises(ValueError, match=r"^`input` has .*pass one half: `cos\[\.\.\., :4\]`"):
        kernels.rotary_embedding(x, ones(5, 8), ones(5, 8))
    with pytest.raises(ValueError, match=r"pass one half: `cos\[0, :, :4\]`"):
        kernels.rotary_embedding(x, ones(1, 5, 8), ones(1, 5, 8))
    with pytest.raises(ValueError, match=r"pass one half: `cos\[\.\.\., ::2\]`"):
        kernels.rotary_embedding(x, ones(5, 8), ones(5, 8), interleaved=True)
    with pytest.raises(ValueError, match=r"with 2 \* pairs <= size$"):
        kernels.rotary_embedding(x, ones(5, 6), ones(5, 6))


def test_masks_may_be_bool():
    x = ones(1, 2, 4, 8)
    with pytest.raises(TypeError, match="`attn_mask` is of int32; bool, or one of float16"):
        kernels.attention(x, x, x, attn_mask=ones(4, 4).int())


@tw.jit
def of_four(batch, head, query, key):
    return query >= key


@tw.jit
def of_five(batch, head, query, key, tensors):
    return query >= key


@tw.jit
def of_six(score, batch, head, query, key, tensors=None):
    return score


def test_functions_of_the_user_have_the_parameters_that_are_given():
    x = ones(1, 2, 4, 8)
    wanted = r"`mask_mod` is called with 5 arguments \(batch, head, query, key, tensors\)"
    with pytest.raises(TypeError, match=wanted + r", and `of_four` has .* \(batch, head, query, "):
        kernels.attention(x, x, x, mask_mod=of_four)
    with pytest.raises(TypeError, match=r"`score_mod` is called with 6 arguments \(score, batch, "):
        kernels.attention(x, x, x, score_mod=of_five)
    starts = torch.tensor([0, 2], dtype=torch.int32)
    with pytest.raises(TypeError, match=wanted):
        kernels.varlen_attention(x[0], x[0], x[0], starts, starts, 2, 2, mask_mod=of_four)
    with pytest.raises(TypeError, match=wanted):
        kernels.decode_attention(x[:, :, 0], x, x, starts[1:], mask_mod=of_four)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda q: kernels.attention(q, q, q, score_mod=of_six, mask_mod=of_five),
        fullgraph=True,
        backend="aot_eager",
    )
    torch.testing.assert_close(compiled(x), kernels.attention(x, x, x, is_causal=True))


def test_recurrent_layers_name_the_dtypes():
    with pytest.raises(TypeError, match=r"`input` is of float64, and `params\[0\]` of float32"):
        kernels.LSTM(3, 4)(ones(2, 2, 3).double())
    with torch.autocast("cpu"):
        assert kernels.GRU(3, 4)(ones(2, 2, 3).bfloat16())[0].dtype == torch.bfloat16


def test_projections_are_refused_by_the_constructor():
    with pytest.raises(ValueError, match="`proj_size` is 3; only 0 is supported"):
        kernels.LSTM(3, 4, proj_size=3)


def test_what_the_language_has_for_relu():
    with pytest.raises(AttributeError, match=r"tl has no `relu`\n.*write `tl.maximum\(x, 0\)`"):
        _ = tl.relu


def test_the_largest_elements_have_names():
    x = torch.tensor([3.0, 1.0, 4.0])
    best = kernels.topk(x, 2)
    assert best.values.tolist() == [4, 3]
    assert best.indices.tolist() == [2, 0]
    torch.compiler.reset()
    compiling = {"fullgraph": True, "backend": "aot_eager"}
    compiled = torch.compile(lambda x: kernels.topk(x, 2), **compiling)
    assert compiled(x).values.tolist() == [4, 3]
    places = torch.compile(lambda x: kernels.topk(x, 2).indices, **compiling)
    assert places(x).tolist() == [2, 0]


def test_completion_offers_what_is_public():
    assert dir(kernels) == sorted(kernels.__all__)
