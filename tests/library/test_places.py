"""Arrays that say where something is: of any strides, and never read outside of other arrays."""

import pytest

from tilewright import kernels
from tilewright.kernels import checks, segments, sparse_rows
from tilewright.kernels.attention import decode, ragged

torch = pytest.importorskip("torch")


@pytest.fixture
def places(device):
    return lambda *numbers: torch.tensor(numbers, dtype=torch.int32, device=device)


@pytest.fixture(autouse=True)
def not_at_hand(monkeypatch):
    """No numbers are looked at before a launch, on the CPU either: kernels get those of GPUs."""
    for module in (checks, ragged, segments, sparse_rows):
        monkeypatch.setattr(module, "is_at_hand", lambda _: False)


def spread(x):
    """The same numbers, others between them in memory."""
    return torch.stack([x, x + 1], dim=-1)[..., 0]


def test_columns_that_a_sparse_matrix_does_not_have_give_nan(device, places):
    b = torch.randn(3, 2, device=device)
    for column in (3, -1, 1 << 30):
        out = kernels.spmm(places(0, 2, 3), places(0, 2, column), torch.ones(3, device=device), b)
        torch.testing.assert_close(out[0], b[0] + b[2])
        assert out[1].isnan().all()
        values = kernels.sddmm(places(0, 1, 2), places(1, column), b[:2], b.mT)
        torch.testing.assert_close(values[0], b[0] @ b[1])
        assert values[1].isnan()


def test_rows_of_a_sparse_matrix_end_with_its_elements(device, places):
    values = torch.ones(2, device=device, requires_grad=True)
    b = torch.randn(3, 2, device=device, requires_grad=True)
    out = kernels.spmm(places(0, 1, 1 << 30), places(0, 2), values, b)
    torch.testing.assert_close(out, b[[0, 2]])
    dvalues, db = torch.autograd.grad(out.sum(), (values, b))
    torch.testing.assert_close(dvalues, b[[0, 2]].sum(1))
    assert db.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_segments_are_of_the_rows_that_there_are(device, places):
    data = torch.ones(9, 2, device=device, requires_grad=True)
    out = kernels.segment_reduce(data, "sum", lengths=places(3, 0, 70000))
    assert out[:, 0].tolist() == [3, 0, 6]
    assert torch.autograd.grad(out.sum(), data)[0].eq(1).all()
    out = kernels.segment_reduce(data, "sum", offsets=places(-5, 2, 20, 30))
    assert out[:, 0].tolist() == [2, 7, 0]


def test_recurrent_layers_have_the_steps_that_there_are(device, places):
    torch.manual_seed(0)
    module, x = kernels.GRU(3, 4).to(device), torch.randn(5, 2, 3, device=device)
    y, h = module(x, lengths=places(-1, 9))
    expected, last = module(x, lengths=places(0, 5))
    torch.testing.assert_close((y, h), (expected, last), rtol=0, atol=0)


def test_groups_end_inside_of_the_rows(device, places):
    x = torch.randn(4, 8, device=device)
    weight = torch.randn(2, 8, 16, device=device, requires_grad=True)
    expected = torch.cat([x[:1] @ weight[0], x[1:] @ weight[1]])
    (gradient,) = torch.autograd.grad(expected.sum(), weight)
    for ends in (spread(places(1, 4)), places(1, 1 << 30)):
        out = kernels.grouped_mm(x, weight, offs=ends)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), weight)[0], gradient)
    torch.testing.assert_close(
        kernels.grouped_mm(x, weight, offs=places(-5, 4)), x @ weight[1], check_stride=False
    )


def test_sequences_are_inside_of_their_array(device, places):
    x = torch.randn(7, 2, 8, device=device, requires_grad=True)
    starts = places(0, 3, 7)
    expected = kernels.varlen_attention(x, x, x, starts, starts, 4, 4)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    for outside in (places(0, 3, 1 << 30), places(-(1 << 30), 3, 7)):
        out = kernels.varlen_attention(x, x, x, outside, outside, 4, 4)
        assert out.equal(expected)
        assert torch.autograd.grad(out.sum(), x)[0].equal(gradient)
    with pytest.raises(ValueError, match=r"`cu_seq_k` has the shape \(2,\); \(3,\) is needed"):
        kernels.varlen_attention(x, x, x, starts, starts[:2], 4, 4)


def test_lengths_have_any_strides_and_end_with_the_cache(device, places):
    query, cache = torch.randn(2, 2, 8, device=device), torch.randn(2, 2, 16, 8, device=device)
    lengths = places(5, 16)
    expected = torch.stack(
        [
            torch.nn.functional.scaled_dot_product_attention(
                query[i, :, None], cache[i, :, :length], cache[i, :, :length]
            )[:, 0]
            for i, length in enumerate((5, 16))
        ]
    )
    pages = cache.swapaxes(1, 2).reshape(4, 8, 2, 8)
    for given in (lengths, spread(lengths), places(5, 1 << 30)):
        torch.testing.assert_close(kernels.decode_attention(query, cache, cache, given), expected)
        for table in (places(0, 1, 2, 3).view(2, 2), places(0, 2, 1, 3).view(2, 2).mT):
            out = kernels.paged_attention(query, pages, pages, table, given)
            torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}])
def test_pages_that_a_cache_does_not_have_give_nan(device, places, monkeypatch, splits, options):
    monkeypatch.setattr(decode, "_splits", lambda *_: splits)
    query = torch.randn(2, 2, 8, device=device)
    # The cache is a part of a larger array: what is read outside of it are numbers, not a fault.
    around = torch.full((6, 16, 2, 8), 1e4, device=device)
    cache = around[1:5]
    cache.normal_()
    lengths = places(30, 20)
    table = places(0, 3, 1, 2).view(2, 2)
    expected = kernels.paged_attention(query, cache, cache, table, lengths, **options)
    assert expected.isfinite().all()
    for page in (4, -1, 1 << 30, -(1 << 31)):
        wrong = places(0, 3, 1, page).view(2, 2)
        out = kernels.paged_attention(query, cache, cache, wrong, lengths, **options)
        torch.testing.assert_close(out[0], expected[0])
        assert out[1].isnan().all()
        # A page without tokens, or behind the window, is not looked at.
        out = kernels.paged_attention(query, cache, cache, wrong, places(30, 16), **options)
        assert out.isfinite().all()
        behind = places(0, 3, page, 2).view(2, 2)
        out = kernels.paged_attention(query, cache, cache, behind, lengths, window=3, **options)
        assert out.isfinite().all()
    none = kernels.paged_attention(query, cache[:0], cache[:0], table, lengths, **options)
    assert none.isnan().all()


def test_numbers_of_keys_have_any_strides(device, places):
    x = torch.randn(2, 2, 5, 8, device=device)
    mask = torch.arange(5, device=device) < places(5, 2)[:, None, None, None]
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)
    out = kernels.attention(x, x, x, key_lengths=spread(places(5, 2)))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("rate", [1, 1.0])
def test_attention_that_leaves_out_all_weights_is_zero(device, rate):
    x = torch.randn(1, 2, 5, 8, device=device, requires_grad=True)
    out = kernels.attention(x, x, x, dropout_p=rate)
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), x)[0].any()


def test_a_seed_is_one_integer(device, places):
    x = torch.randn(1, 2, 5, 8, device=device)
    for seed in (places(), places(1, 2)):
        with pytest.raises(ValueError, match=r"`seed` has the shape .*; one integer is needed"):
            kernels.attention(x, x, x, dropout_p=0.5, seed=seed)
    with pytest.raises(TypeError, match="`seed` is of float32; int32 or int64 is needed"):
        kernels.attention(x, x, x, dropout_p=0.5, seed=torch.ones(1, device=device))
