"""LSTM and GRU modules: those of PyTorch, computed by the library."""

from typing import Any

from tilewright.kernels.arrays import torch
from tilewright.kernels.checks import array, integral, within
from tilewright.kernels.recurrent import gru, lstm

__all__ = ["GRU", "LSTM"]


class _WithoutTorch:
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise ModuleNotFoundError("modules of neural networks need PyTorch: pip install torch")


_LSTM: Any = _WithoutTorch if torch is None else torch.nn.LSTM
_GRU: Any = _WithoutTorch if torch is None else torch.nn.GRU


class LSTM(_LSTM):  # type: ignore[misc]
    """`torch.nn.LSTM`, with the same parameters and `state_dict`, computed by `kernels.lstm`.

    Sequences of several lengths come as a `PackedSequence`, or padded, with their `lengths`.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.proj_size:
            raise ValueError(
                f"`proj_size` is {self.proj_size}; only 0 is supported: use torch.nn.LSTM"
            )

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> Any:
        """Return the outputs, and the last hidden and cell state, as `torch.nn.LSTM` does.

        Args:
            input: (time, batch, features), (batch, time, features) with `batch_first`, (time,
                features), or a `PackedSequence`.
            hx: The first hidden and cell state, each (layers * directions, batch, hidden); zeros
                without it.
            lengths: Integers (batch,), in a list or an array: how many steps each padded sequence
                has; all without it.
        """
        y, *states = _computed(self, lstm, input, hx, lengths)
        return y, tuple(states)


class GRU(_GRU):  # type: ignore[misc]
    """`torch.nn.GRU`, with the same parameters and `state_dict`, computed by `kernels.gru`.

    Sequences of several lengths come as a `PackedSequence`, or padded, with their `lengths`.
    """

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> Any:
        """Return the outputs, and the last hidden state, as `torch.nn.GRU` does.

        Args:
            input: (time, batch, features), (batch, time, features) with `batch_first`, (time,
                features), or a `PackedSequence`.
            hx: The first hidden state, (layers * directions, batch, hidden); zeros without it.
            lengths: Integers (batch,), in a list or an array: how many steps each padded sequence
                has; all without it.
        """
        y, state = _computed(self, gru, input, None if hx is None else (hx,), lengths)
        return y, state


def _computed(module: Any, function: Any, x: Any, hx: Any, lengths: Any) -> tuple[Any, ...]:
    """Return (outputs, states...) in the form of the input: packed, padded, or one sequence."""
    rnn = torch.nn.utils.rnn
    is_packed = isinstance(x, rnn.PackedSequence)
    batch_first = module.batch_first and not is_packed
    if is_packed and lengths is not None:
        raise ValueError("`lengths` come with a padded `input`; a `PackedSequence` has its own")
    if is_packed:
        packed = x
        # Without its indices, sequences stay in the order in which they are packed.
        x, lengths = rnn.pad_packed_sequence(rnn.PackedSequence(x.data, x.batch_sizes))
        if hx is not None and packed.sorted_indices is not None:
            hx = tuple(state.index_select(1, packed.sorted_indices) for state in hx)
    array(input=x)
    is_single = x.ndim == 2
    if is_single:
        x = x.unsqueeze(0 if batch_first else 1)
        hx = None if hx is None else tuple(state.unsqueeze(1) for state in hx)
    if lengths is not None:
        # Those of a list or of the host are checked here, where no GPU has to be waited for.
        lengths = torch.as_tensor(lengths)
        integral(lengths=lengths)
        if x.ndim == 3:
            within(0, x.shape[1 if batch_first else 0], lengths=lengths)
        lengths = lengths.to(x.device, torch.int32)
    y, *states = function(
        x,
        hx[0] if function is gru and hx is not None else hx,
        [getattr(module, name) for name in module._flat_weights_names],  # noqa: SLF001 - in order
        module.bias,
        module.num_layers,
        module.dropout,
        module.training,
        module.bidirectional,
        batch_first,
        lengths=lengths,
    )
    if is_single:
        return y.squeeze(0 if batch_first else 1), *(state.squeeze(1) for state in states)
    if is_packed:
        data = rnn.pack_padded_sequence(y, lengths.cpu()).data
        y = rnn.PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        if packed.unsorted_indices is not None:
            states = [state.index_select(1, packed.unsorted_indices) for state in states]
    return y, *states
