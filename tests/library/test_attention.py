"""Attention: its masks, biases and layouts, forward and backward."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
import tilewright.language as tl
from tests.library.attention_cases import only, operands, positions, written_out
from tests.library.checking import (
    agrees,
    compiles,
    dtypes,
    examples,
    holds_contracts,
    same_bits_again,
    tensor,
)
from tilewright import kernels
from tilewright.kernels.attention import tiles
from tilewright.kernels.attention.operator import Extras

SDPA = torch.nn.functional.scaled_dot_product_attention


def agrees_with_pytorch(device, batch, heads, queries, keys, width, dtype, is_causal, is_by_row):
    q, k, v = operands(batch, *heads, queries, keys, width, dtype, device)
    if is_by_row:
        q, k, v = (
            x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
            for x in (q, k, v)
        )

    def function(q, k, v):
        return kernels.attention(q, k, v, is_causal=is_causal, enable_gqa=True)

    def reference(q, k, v):
        return SDPA(q, k, v, is_causal=is_causal, enable_gqa=True)

    # Scores are sums of `width` products, and gradients, which may cancel, of one for each query.
    agrees(function, reference, q, k, v, factor=max(1.0, (max(width, queries) / 64) ** 0.5))


@given(
    batch=st.integers(0, 2),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    queries=st.sampled_from([1, 7, 130, 256]),
    keys=st.sampled_from([1, 5, 128, 300]),
    width=st.integers(1, 130) | st.sampled_from([8, 64, 128, 256]),
    dtype=dtypes,
    is_causal=st.booleans(),
    is_by_row=st.booleans(),
)
@examples(40)
@pytest.mark.slow
def test_agrees_with_pytorch(device, **case):
    agrees_with_pytorch(device, **case)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_agrees_with_pytorch_here(device, dtype):
    agrees_with_pytorch(device, 2, (4, 2), 130, 300, 40, dtype, True, True)
    agrees_with_pytorch(device, 0, (1, 1), 4, 5, 40, dtype, True, False)


@pytest.mark.parametrize(
    ("keywords", "seen"),
    [
        ({"window": (40, 3)}, lambda q, k: (k >= q - 40) & (k <= q + 3)),
        ({"window": (5, -1), "is_causal": True}, lambda q, k: (k >= q - 5) & (k <= q)),
        ({"offset": 60, "is_causal": True}, lambda q, k: k <= q + 60),
        ({"offset": -20, "is_causal": True}, lambda q, k: k <= q - 20),
    ],
)
def test_keys_by_position(device, keywords, seen):
    q, k, v = operands(1, 2, 2, 200, 260, 16, device=device)
    reference = written_out(lambda logits: only(logits, seen(*positions(logits))))
    agrees(lambda q, k, v: kernels.attention(q, k, v, **keywords), reference, q, k, v)


def test_lengths_of_keys(device):
    q, k, v = operands(3, 2, 1, 50, 200, 16, device=device)
    lengths = torch.tensor([0, 130, 200], dtype=torch.int32, device=device)

    def seen(logits):
        return only(logits, positions(logits)[1] < lengths.view(3, 1, 1, 1))

    def function(q, k, v):
        return kernels.attention(q, k, v, key_lengths=lengths, enable_gqa=True)

    agrees(function, written_out(seen), q, k, v)


def test_biases(device):
    q, k, v = operands(2, 2, 2, 33, 70, 16, device=device)
    bias = tensor((2, 1, 33, 70), device=device)
    agrees(kernels.attention, SDPA, q, k, v, bias)
    mask = torch.rand(2, 33, 70, device=device) > 0.5
    mask[:, 3] = False
    reference = written_out(lambda logits: only(logits, mask))
    agrees(lambda q, k, v: kernels.attention(q, k, v, mask), reference, q, k, v)
    slopes = torch.tensor([0.5, 0.125], device=device)

    def sloped(logits):
        query, key = positions(logits)
        return logits - slopes[:, None, None] * (query - key).abs()

    function = lambda q, k, v: kernels.attention(q, k, v, alibi_slopes=slopes)  # noqa: E731
    agrees(function, written_out(sloped), q, k, v)
    capped = written_out(lambda logits: 1.5 * torch.tanh(logits / 1.5))
    agrees(lambda q, k, v: kernels.attention(q, k, v, softcap=1.5), capped, q, k, v)


@tw.jit
def squared(score, batch, head, query, key, tensors):
    return score * score + tl.load(tensors[0] + head) * (query - key)


@tw.jit
def squared_gradient(gradient, score, batch, head, query, key, tensors):
    return 2 * score * gradient


@tw.jit
def same_document(batch, head, query, key, tensors):
    return tl.load(tensors[1] + query) == tl.load(tensors[1] + key)


def test_functions_of_the_user(device):
    q, k, v = operands(1, 2, 2, 70, 70, 16, device=device)
    tensors = (
        torch.tensor([0.1, 0.2], device=device),
        torch.arange(70, dtype=torch.int32, device=device) // 20,
    )

    def function(q, k, v):
        return kernels.attention(
            q,
            k,
            v,
            score_mod=squared,
            score_mod_gradient=squared_gradient,
            mask_mod=same_document,
            mod_tensors=tensors,
        )

    def modified(logits):
        query, key = positions(logits)
        logits = logits.square() + tensors[0].to(logits.dtype)[:, None, None] * (query - key)
        return only(logits, query // 20 == key // 20)

    agrees(function, written_out(modified), q, k, v)
    compiles(function, q, k, v)
    with pytest.raises(NotImplementedError, match="needs `score_mod_gradient`"):
        kernels.attention(q, k, v, score_mod=squared, mod_tensors=tensors).sum().backward()
    tensors[0].requires_grad_()
    with pytest.raises(NotImplementedError, match="attention has no derivative by `tensors`"):
        function(q, k, v).sum().backward()


def test_dropout_of_numpy_arrays_draws_anew():
    query = np.random.default_rng(0).standard_normal((1, 1, 9, 8)).astype(np.float32)
    first, second = (kernels.attention(query, query, query, dropout_p=0.5) for _ in range(2))
    assert (first != second).any()
    first, second = (
        kernels.attention(query, query, query, dropout_p=0.5, seed=3) for _ in range(2)
    )
    assert (first == second).all()


def test_functions_of_the_user_that_only_compiled_code_calls(device):
    def masked(is_backward):
        @tw.jit
        def mask(batch, head, query, key, tensors):
            return query >= key

        @tw.jit
        def other_mask(batch, head, query, key, tensors):
            return query <= key

        mask_mod = other_mask if is_backward else mask
        return lambda query: kernels.attention(query, query, query, mask_mod=mask_mod)

    query = torch.randn(1, 2, 33, 16, device=device)
    inside = torch.ones(33, 33, dtype=torch.bool, device=device).tril()
    for mask, is_backward in ((inside, False), (inside.T, True), (inside, False)):
        compiled = torch.compile(masked(is_backward), fullgraph=True, backend="aot_eager")
        expected = SDPA(query, query, query, attn_mask=mask)
        torch.testing.assert_close(compiled(query), expected, rtol=2e-3, atol=2e-3)


def test_dropout(device):
    q, k, _ = operands(1, 2, 2, 64, 64, 64, device=device)
    eye = torch.eye(64, device=device).expand(1, 2, 64, 64)
    weights = kernels.attention(q, k, eye, dropout_p=0.3, seed=7)
    share = (weights == 0).float().mean().item()
    assert 0.27 < share < 0.33
    expected = torch.softmax(q @ k.mT / 8, -1) / 0.7
    torch.testing.assert_close(weights, torch.where(weights == 0, 0.0, expected))
    assert not torch.equal(weights, kernels.attention(q, k, eye, dropout_p=0.3, seed=8))
    torch.manual_seed(1)
    first = kernels.attention(q, k, eye, dropout_p=0.3)
    assert not torch.equal(first, kernels.attention(q, k, eye, dropout_p=0.3))
    torch.manual_seed(1)
    assert torch.equal(first, kernels.attention(q, k, eye, dropout_p=0.3))


@pytest.mark.slow
def test_derivatives(device):
    q, k, v = operands(1, 2, 1, 5, 6, 8, "float64", device)
    bias = tensor((5, 6), "float64", device)

    def function(q, k, v, bias):
        return kernels.attention(
            q, k, v, bias, 0.25, softcap=2.0, window=(3, 2), enable_gqa=True, seed=3
        )

    assert torch.autograd.gradcheck(function, (q, k, v, bias))
    compiles(function, q, k, v, bias)
    same_bits_again(function, q, k, v, bias)
    actual = torch.func.grad(lambda q: kernels.attention(q, k, k, enable_gqa=True).sum())(q)
    expected = torch.func.grad(lambda q: SDPA(q, k, k, enable_gqa=True).sum())(q)
    torch.testing.assert_close(actual, expected)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=4),
    is_causal=st.booleans(),
)
@examples(5)
def test_sequences_of_different_lengths(device, lengths, is_causal):
    queries, keys = (list(each) for each in zip(*lengths, strict=True))
    starts = [
        torch.tensor(np.cumsum([0, *each]), dtype=torch.int32, device=device)
        for each in (queries, keys)
    ]
    q = tensor((sum(queries) + 2, 4, 16), device=device)
    k, v = (tensor((sum(keys) + 1, 2, 16), device=device) for _ in range(2))

    def function(q, k, v):
        return kernels.varlen_attention(
            q, k, v, *starts, max(queries), max(keys), is_causal=is_causal
        )

    def reference(q, k, v):
        rows = []
        for i, (query_count, key_count) in enumerate(lengths):
            own_q = q[starts[0][i] :][:query_count]
            own = (x[starts[1][i] :][:key_count] for x in (k, v))
            each = (x.transpose(0, 1)[None] for x in (own_q, *own))

            def seen(logits, offset=key_count - query_count):
                query, key = positions(logits, offset)
                return only(logits, key <= query) if is_causal else logits

            rows.append(written_out(seen)(*each)[0].transpose(0, 1))
        return torch.cat([*rows, q[sum(queries) :] * 0])

    agrees(function, reference, q, k, v)


def test_contracts_with_pytorch(device):
    q, k, v = operands(1, 2, 2, 3, 5, 8, device=device)
    bias = tensor((1, 2, 3, 5), device=device)
    operator = torch.ops.tilewright.attention.default
    holds_contracts(operator, q, k, v, *Extras(bias=bias, tensors=[], scale=0.5))


def test_autocast_computes_in_lower_precision(device):
    q, k, v = operands(1, 1, 1, 3, 5, 8, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert kernels.attention(q, k, v).dtype == torch.bfloat16


def test_numpy_arrays():
    q, k, v = operands(1, 2, 2, 5, 6, 8)
    expected = SDPA(q, k, v, is_causal=True).detach().numpy()
    arrays = (x.detach().numpy() for x in (q, k, v))
    np.testing.assert_allclose(kernels.attention(*arrays, is_causal=True), expected, atol=1e-6)


def test_arguments_that_cannot_be():
    q, k, v = operands(1, 4, 2, 5, 6, 8)
    with pytest.raises(ValueError, match="`query` has 4 heads, and `key` 2: `enable_gqa=True`"):
        kernels.attention(q, k, v)
    with pytest.raises(ValueError, match="`value` has the shape"):
        kernels.attention(q, k, v[:, :1], enable_gqa=True)
    with pytest.raises(TypeError, match=r"`key` of torch\.float16"):
        kernels.attention(q, k.half(), v)
    with pytest.raises(ValueError, match="`scale` is 0"):
        kernels.attention(q, k, v, scale=0, enable_gqa=True)


@pytest.mark.parametrize(
    ("queries", "keys", "options"),
    [
        (70, 128, {}),
        (100, 31, {"is_causal": True}),  # the last queries see all keys
        (200, 130, {"window": (40, 3)}),  # and here none
        (40, 50, {"key_lengths": [0, 33]}),
    ],
)
def test_scores_ahead_of_their_softmax(monkeypatch, queries, keys, options):
    q, k, v = operands(2, 2, 1, queries, keys, 16)
    if "key_lengths" in options:
        options = {"key_lengths": torch.tensor(options["key_lengths"], dtype=torch.int32)}

    def attend(is_ahead):
        monkeypatch.setattr(tiles, "CPU", (tiles.Tile(32, 32, 4, 1, ahead=is_ahead),))
        return kernels.attention(q, k, v, enable_gqa=True, **options)

    torch.testing.assert_close(attend(True), attend(False), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("is_causal", "width"),
    [
        (False, 64),
        (True, 128),
        pytest.param(True, 64, marks=pytest.mark.slow),
        pytest.param(False, 128, marks=pytest.mark.slow),
    ],
)
def test_on_an_emulated_gpu(monkeypatch, is_causal, width):
    monkeypatch.setattr(tiles, "on_cpu", lambda _: False)
    if width == 128:
        monkeypatch.setattr(tiles, "_MANY_KEYS", 0)
        monkeypatch.setattr(tiles, "MULTIPROCESSORS", 0)
    sizes = (1, 1, 1, 70, 256) if width == 128 else (1, 2, 1, 100, 130)
    q, k, v = operands(*sizes, width, "bfloat16")

    def function(q, k, v):
        return kernels.attention(q, k, v, is_causal=is_causal, enable_gqa=True)

    with tw.emulate("sm_90a", races=True):
        agrees(function, lambda *x: SDPA(*x, is_causal=is_causal, enable_gqa=True), q, k, v)
