"""LSTM and GRU layers: functions of their weights, for tensors and NumPy arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.kernels.arrays import dtype_name, is_tensor, torch
from tilewright.kernels.checks import (
    array,
    floating,
    integral,
    plain,
    ranked,
    same_dtype,
    same_kind,
    shaped,
    share,
    within,
)
from tilewright.kernels.matmul import linear
from tilewright.kernels.operation import has_autocast
from tilewright.kernels.recurrent_operations import gru_layer, lstm_layer

__all__ = ["gru", "lstm"]


def lstm(
    input: Any,
    hx: tuple[Any, Any] | None,
    params: Sequence[Any],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    lengths: Any = None,
) -> tuple[Any, Any, Any]:
    """Return (outputs, last hidden state, last cell state) of an LSTM; differentiable.

    c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'), where (i, f, g, o) are
    x W_ih^T + b_ih + h W_hh^T + b_hh.

    Args:
        input: Array (T, B, I), or (B, T, I) if `batch_first`, of fp16, bf16, fp32 or fp64.
        hx: The first hidden and cell state, each (layers * directions, B, H); zeros if None.
        params: For each layer and direction W_ih (4 H, I), W_hh (4 H, H), and with `has_biases`
            b_ih and b_hh (4 H), as `torch.nn.LSTM` has them.
        has_biases: Whether there are biases.
        num_layers: How many layers there are, one after another.
        dropout: The probability of a zero between layers, while `train`.
        train: Whether there is dropout.
        bidirectional: Whether each layer also has a second direction, from the last step on.
        batch_first: Whether the batch is the first dimension of inputs and outputs.
        lengths: The number of steps of each sequence, integers (B) from 0 to T; all T if None.
            Outputs beyond them are 0. On a GPU, and in compiled functions, they are not checked:
            what is above T counts as T, and what is below 0 as 0.

    Returns:
        (T, B, directions * H), or with the batch first, and two of (layers * directions, B, H).

    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997.

    >>> import numpy as np
    >>> w, b = np.ones((4, 1), np.float32), np.zeros(4, np.float32)
    >>> y, h, c = lstm(np.ones((2, 1, 1), np.float32), None, [w, w, b, b])
    >>> y.ravel().round(4)
    array([0.3696, 0.6505], dtype=float32)
    """
    layers = _Layers("lstm", 4, num_layers, has_biases, dropout, train, bidirectional)
    y, states = layers(input, hx, params, batch_first, lengths)
    return y, states[0], states[1]


def gru(
    input: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    lengths: Any = None,
) -> tuple[Any, Any]:
    """Return (outputs, last hidden state) of a GRU; differentiable.

    h' = (1 - z) n + z h, where r and z are sigmoids of x W_ih^T + b_ih + h W_hh^T + b_hh, and
    n = tanh(x W_in^T + b_in + r (h W_hn^T + b_hn)).

    Args:
        input: Array (T, B, I), or (B, T, I) if `batch_first`, of fp16, bf16, fp32 or fp64.
        hx: The first hidden state (layers * directions, B, H); zeros if None.
        params: For each layer and direction W_ih (3 H, I), W_hh (3 H, H), and with `has_biases`
            b_ih and b_hh (3 H), as `torch.nn.GRU` has them.
        has_biases: Whether there are biases.
        num_layers: How many layers there are, one after another.
        dropout: The probability of a zero between layers, while `train`.
        train: Whether there is dropout.
        bidirectional: Whether each layer also has a second direction, from the last step on.
        batch_first: Whether the batch is the first dimension of inputs and outputs.
        lengths: The number of steps of each sequence, integers (B) from 0 to T; all T if None.
            Outputs beyond them are 0. On a GPU, and in compiled functions, they are not checked:
            what is above T counts as T, and what is below 0 as 0.

    Returns:
        (T, B, directions * H), or with the batch first, and (layers * directions, B, H).

    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.

    >>> import numpy as np
    >>> w, b = np.ones((3, 1), np.float32), np.zeros(3, np.float32)
    >>> y, h = gru(np.ones((2, 1, 1), np.float32), None, [w, w, b, b])
    >>> y.ravel().round(4)
    array([0.2048, 0.3468], dtype=float32)
    """
    layers = _Layers("gru", 3, num_layers, has_biases, dropout, train, bidirectional)
    y, states = layers(input, None if hx is None else (hx,), params, batch_first, lengths)
    return y, states[0]


class _Layers:
    """Layers of either kind; calling them computes all."""

    def __init__(
        self,
        kind: str,
        gates: int,
        count: int,
        has_biases: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> None:
        self.kind, self.gates, self.count, self.has_biases = kind, gates, count, has_biases
        plain("an integer", num_layers=count)
        share(dropout=dropout)
        self.dropout = dropout if train else 0.0
        self.directions = 2 if bidirectional else 1
        self.states = 2 if kind == "lstm" else 1

    def __call__(
        self, x: Any, hx: Any, params: Sequence[Any], batch_first: bool, lengths: Any
    ) -> tuple[Any, list[Any]]:
        x, lengths, hx = self._checked(x, hx, params, batch_first, lengths)
        each = 4 if self.has_biases else 2
        last: list[list[Any]] = [[] for _ in range(self.states)]
        for layer in range(self.count):
            first = layer * self.directions
            own = [
                params[each * number : each * (number + 1)]
                for number in range(first, first + self.directions)
            ]
            if layer and self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout)
            x, *ends = self._layer(
                x, [state[first : first + self.directions] for state in hx], own, lengths
            )
            for states, end in zip(last, ends, strict=True):
                states.append(end)
        if batch_first:
            x = x.transpose(0, 1) if is_tensor(x) else x.swapaxes(0, 1)
        return x, [_joined(states) for states in last]

    def _checked(
        self, x: Any, hx: Any, params: Sequence[Any], batch_first: bool, lengths: Any
    ) -> tuple[Any, Any, Sequence[Any]]:
        """Return the input with the time first, lengths, and states, all as they must be."""
        array(input=x)
        floating(input=x)
        ranked(3, 3, input=x)
        integral(lengths=lengths)
        wanted = self.count * self.directions * (4 if self.has_biases else 2)
        if len(params) != wanted:
            raise ValueError(f"`params` has {len(params)} arrays; {wanted} are needed")
        if self.dropout and not is_tensor(x):
            raise ValueError("`dropout` is for tensors of PyTorch; NumPy arrays take `train=False`")
        same_kind(input=x, **_numbered("params", params), lengths=lengths)
        floating(**_numbered("params", params))
        if not has_autocast(x):
            same_dtype(input=x, **_numbered("params", params))
        x = x.swapaxes(0, 1) if batch_first else x
        steps, batch, _ = x.shape
        hidden = params[1].shape[1]
        if params[0].shape[1] != x.shape[2]:
            raise ValueError(
                f"`input` has {x.shape[2]} features, and `params[0]` is for {params[0].shape[1]}"
            )
        self._check_weights(params, x.shape[2], hidden)
        shape = (self.count * self.directions, batch, hidden)
        if hx is None:
            hx = (_filled(shape, x, 0),) * self.states
        states = _numbered("hx", hx) if self.states > 1 else {"hx": hx[0]}
        shaped(shape, **states)
        same_kind(input=x, **states)
        floating(**states)
        if lengths is None:
            lengths = _filled((batch,), x, steps, "int32")
        else:
            shaped((batch,), lengths=lengths)
            within(0, steps, lengths=lengths)
        return x, lengths, hx

    def _check_weights(self, params: Sequence[Any], features: int, hidden: int) -> None:
        each = 4 if self.has_biases else 2
        rows = self.gates * hidden
        for number, w in enumerate(params):
            layer, kind = number // (each * self.directions), number % each
            inputs = features if layer == 0 else self.directions * hidden
            shape = ((rows, inputs), (rows, hidden), (rows,), (rows,))[kind]
            shaped(shape, **{f"params[{number}]": w})

    def _layer(
        self, x: Any, states: Sequence[Any], params: Sequence[Sequence[Any]], lengths: Any
    ) -> tuple[Any, ...]:
        """Return the outputs and the last states of one layer, of all its directions."""
        hidden = params[0][1].shape[1]
        weight = _stacked([own[1] for own in params])
        in_weight = _joined([own[0] for own in params])
        keep = is_tensor(x) and torch.is_grad_enabled()
        if self.kind == "lstm":
            bias = _joined([own[2] + own[3] for own in params]) if self.has_biases else None
            gates = _linear(x, in_weight, bias)
            y, h, c, *_ = lstm_layer(gates, weight, *states, lengths, keep)
            return y, h, c
        bias, inner = None, _filled((self.directions, hidden), x, 0)
        if self.has_biases:
            # That of the last gate is added before it is multiplied by r.
            inner = _stacked([own[3][2 * hidden :] for own in params])
            outer = [
                _joined([own[2][: 2 * hidden] + own[3][: 2 * hidden], own[2][2 * hidden :]])
                for own in params
            ]
            bias = _joined(outer)
        gates = _linear(x, in_weight, bias)
        y, h, *_ = gru_layer(gates, weight, inner, states[0], lengths, keep)
        return y, h


def _numbered(name: str, arrays: Sequence[Any]) -> dict[str, Any]:
    return {f"{name}[{number}]": x for number, x in enumerate(arrays)}


def _joined(arrays: Sequence[Any]) -> Any:
    return torch.cat(tuple(arrays)) if is_tensor(arrays[0]) else np.concatenate(arrays)


def _stacked(arrays: Sequence[Any]) -> Any:
    return torch.stack(tuple(arrays)) if is_tensor(arrays[0]) else np.stack(arrays)


def _filled(shape: tuple[int, ...], like: Any, value: int, dtype: str | None = None) -> Any:
    """Return a new array of one number, where `like` is."""
    if is_tensor(like):
        return torch.full(
            shape, value, dtype=getattr(torch, dtype or dtype_name(like)), device=like.device
        )
    return np.full(shape, value, dtype or like.dtype)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    """Return x weight^T + bias."""
    if is_tensor(x):
        return torch.nn.functional.linear(x, weight, bias)
    return linear(x, weight, bias)
