"""LSTM and GRU layers, beside torch.nn's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import agrees, compiles, dtypes, examples, same_bits_again, tensor
from tilewright import kernels
from tilewright.kernels import recurrent_operations

PAIRS = {"LSTM": (kernels.LSTM, torch.nn.LSTM), "GRU": (kernels.GRU, torch.nn.GRU)}
KINDS = pytest.mark.parametrize("kind", sorted(PAIRS))


def layers(kind, *sizes, dtype="float32", device="cpu", **options):
    """Ours and PyTorch's in fp64, with the same weights."""
    ours, theirs = PAIRS[kind]
    kind_of = {"dtype": getattr(torch, dtype), "device": device}
    module = ours(*sizes, **options, **kind_of)
    exact = theirs(*sizes, **options, dtype=torch.float64, device=device)
    exact.load_state_dict(module.state_dict())
    return module, exact


def flat(result):
    y, states = result
    return (y, *states) if isinstance(states, tuple) else (y, states)


def weights_of(module):
    return [w.detach().clone().requires_grad_() for w in module._flat_weights]


def calls(kind, module, exact):
    """Functions of the input and of all weights, of ours and of PyTorch's."""
    names = list(module._flat_weights_names)

    def of(layer, x, weights):
        return flat(torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,)))

    return (
        lambda x, *weights: of(module, x, weights),
        lambda x, *weights: of(exact, x, weights),
    )


@KINDS
@given(
    steps=st.integers(1, 5),
    batch=st.integers(1, 20),
    hidden=st.sampled_from([1, 7, 33]),
    dtype=dtypes,
    options=st.fixed_dictionaries(
        {"num_layers": st.integers(1, 2), "bidirectional": st.booleans(), "bias": st.booleans()}
    ),
)
@examples(3)
def test_agrees_with_pytorch(device, kind, steps, batch, hidden, dtype, options):
    module, exact = layers(kind, 3, hidden, dtype=dtype, device=device, **options)
    x = tensor((steps, batch, 3), dtype, device)
    agrees(*calls(kind, module, exact), x, *weights_of(module), factor=4)


@KINDS
def test_derivatives(device, kind):
    module, _ = layers(kind, 2, 3, dtype="float64", device=device, bidirectional=True)
    x = tensor((3, 2, 2), "float64", device)
    states = [tensor((2, 2, 3), "float64", device) for _ in range(2 if kind == "LSTM" else 1)]
    lengths = torch.tensor([2, 3], device=device)

    def function(x, *rest):
        hx, params = rest[: len(states)], rest[len(states) :]
        if kind == "LSTM":
            return kernels.lstm(x, hx, params, True, bidirectional=True, lengths=lengths)
        return kernels.gru(x, hx[0], params, True, bidirectional=True, lengths=lengths)

    inputs = [x, *states, *weights_of(module)]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    compiles(function, *inputs)
    same_bits_again(function, *inputs)


@KINDS
def test_sequences_of_several_lengths(device, kind):
    module, exact = layers(kind, 3, 5, device=device, num_layers=2, bidirectional=True)
    sequences = [torch.randn(length, 3, device=device) for length in (2, 5, 3)]
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    hx = torch.randn(4, 3, 5, device=device)
    both = (hx, hx + 1) if kind == "LSTM" else hx
    exact_hx = tuple(h.double() for h in both) if kind == "LSTM" else hx.double()
    (y, *states), (exact_y, *exact_states) = (
        flat(module(packed, both)),
        flat(exact(packed.double(), exact_hx)),
    )
    torch.testing.assert_close(y.data, exact_y.data.float())
    torch.testing.assert_close(states, [state.float() for state in exact_states])
    padded = torch.nn.utils.rnn.pad_sequence(sequences)
    z, *_ = flat(module(padded, both, lengths=torch.tensor([2, 5, 3])))
    torch.testing.assert_close(z, torch.nn.utils.rnn.pad_packed_sequence(y)[0])


@KINDS
def test_one_sequence_and_the_batch_first(device, kind):
    module, exact = layers(kind, 3, 5, device=device, batch_first=True)
    for shape in [(4, 3), (2, 4, 3)]:
        x = torch.randn(shape, device=device)
        for actual, expected in zip(flat(module(x)), flat(exact(x.double())), strict=True):
            torch.testing.assert_close(actual, expected.float())


@KINDS
def test_dropout_is_between_layers(kind):
    module, _ = layers(kind, 3, 64, num_layers=2, dropout=0.5)
    x = torch.randn(4, 8, 3)
    torch.manual_seed(1)
    first = flat(module(x))[0]
    torch.manual_seed(1)
    torch.testing.assert_close(flat(module(x))[0], first, rtol=0, atol=0)
    assert not torch.equal(flat(module(x))[0], first)
    module.eval()
    torch.testing.assert_close(flat(module(x)), flat(module(x)), rtol=0, atol=0)


def test_contracts_with_pytorch(device):
    gates, weight = tensor((2, 3, 20), device=device), tensor((1, 20, 5), device=device)
    h, lengths = tensor((1, 3, 5), device=device), torch.tensor([2, 1, 2], device=device).int()
    operators = torch.ops.tilewright
    torch.library.opcheck(operators.lstm_layer.default, (gates, weight, h, h, lengths, True))
    gates, weight = tensor((2, 3, 15), device=device), tensor((1, 15, 5), device=device)
    bias = tensor((1, 5), device=device)
    torch.library.opcheck(operators.gru_layer.default, (gates, weight, bias, h, lengths, True))


def test_numpy_arrays():
    module, _ = layers("LSTM", 3, 5, num_layers=2, bidirectional=True)
    x = torch.randn(4, 2, 3)
    params = [w.detach().numpy() for w in module._flat_weights]
    actual = kernels.lstm(x.numpy(), None, params, num_layers=2, bidirectional=True)
    for y, expected in zip(actual, flat(module(x)), strict=True):
        np.testing.assert_allclose(y, expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True])
@KINDS
def test_on_an_emulated_gpu(kind, together, monkeypatch):
    """Programs that each have all units, and ones that share them and meet after each step."""
    monkeypatch.setattr(recurrent_operations, "on_cpu", lambda x: False)
    monkeypatch.setattr(recurrent_operations, "multiprocessors", lambda x: 8 * together)
    module, exact = layers(kind, 3, 20, bidirectional=True)
    x = tensor((3, 5, 3))
    function, reference = calls(kind, module, exact)
    with tw.emulate("sm_90a", races=True):
        agrees(function, reference, x, *weights_of(module), factor=20)


def test_arguments_that_cannot_be():
    x, w = torch.zeros(2, 3, 4), [torch.zeros(20, 4), torch.zeros(20, 5)]
    with pytest.raises(ValueError, match="`params` has 2 arrays; 4 are needed"):
        kernels.lstm(x, None, w)
    with pytest.raises(ValueError, match=r"`params\[0\]` has the shape \(20, 4\); \(15, 4\)"):
        kernels.gru(x, None, w, has_biases=False)
    with pytest.raises(TypeError, match="`input` is of int64"):
        kernels.lstm(x.long(), None, w, has_biases=False)
    with pytest.raises(ValueError, match="`input` has 2 dimensions"):
        kernels.lstm(x[0], None, w, has_biases=False)
    with pytest.raises(ValueError, match="`proj_size` is 2"):
        kernels.LSTM(4, 5, proj_size=2)(x)
