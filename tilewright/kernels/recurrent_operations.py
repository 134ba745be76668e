"""One layer of an LSTM or a GRU, of all directions, as an operation.

The gates that the input makes, (T, B, directions * gates * H), are a matrix product before it; so
are the gradients of weights, after the time loop.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    dtype_name,
    empty,
    is_tensor,
    on_cpu,
    product_precision,
    torch,
)
from tilewright.kernels.gru_steps import gru_backward_kernel, gru_kernel
from tilewright.kernels.lstm_steps import lstm_backward_kernel, lstm_kernel
from tilewright.kernels.operation import operation
from tilewright.kernels.recurrent_steps import Tiles

__all__ = ["gru_layer", "lstm_layer"]

_UNITS = 16  # of a program that shares the hidden units with others
_WEIGHT_BYTES = 144 * 1024  # of shared memory, for weights that stay


@dataclass(frozen=True)
class Division:
    """How a layer is divided among programs."""

    grid: tuple[int, int, int]
    tiles: Tiles
    options: dict[str, Any]


def multiprocessors(x: Any) -> int:
    """Return how many programs run at the same time for certain, if weights can stay; else 0."""
    if on_cpu(x):
        return 0
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)


def division(x: Any, batch: int, hidden: int, directions: int, gates: int, depth: int) -> Division:
    """Divide a product of (batch, depth) and (depth, gates * hidden), for each direction."""
    name = dtype_name(x)
    bytes_each = {"float64": 8, "float32": 4}.get(name, 2)
    if name != "float64" and gates * _UNITS * depth * bytes_each <= _WEIGHT_BYTES:
        blocks = tw.cdiv(hidden, _UNITS)
        for rows in (16, 32, 64):
            grid = (blocks, tw.cdiv(batch, rows), directions)
            if math.prod(grid) <= multiprocessors(x):
                return _shared_division(x, grid, rows, gates, depth)
    rows = min(tw.next_power_of_2(max(batch, 1)), 32) if on_cpu(x) else 16
    units = min(tw.next_power_of_2(max(hidden, 16)), 64 if on_cpu(x) else 32)
    chunk = min(tw.next_power_of_2(max(depth, 16)), 256 if on_cpu(x) else 64)
    tiles = Tiles(rows, units, chunk, (), 1, product_precision(x))
    return Division((1, tw.cdiv(batch, rows), directions), tiles, {"num_warps": 8})


def _shared_division(
    x: Any, grid: tuple[int, int, int], rows: int, gates: int, depth: int
) -> Division:
    """Let programs share hidden units: all weights stay, in the registers of enough warps."""
    warps = 8 if gates * depth > 1024 else 4
    # With few columns, warps share the depth instead of them.
    split = warps if gates == 1 else 1
    each = min(max(tw.next_power_of_2(depth) // split, 16), 256 if split == 1 else 128)
    tiles = Tiles(
        rows, _UNITS, each, tuple(range(0, depth, each * split)), split, product_precision(x)
    )
    return Division(grid, tiles, {"num_warps": warps, "launch_cooperative_grid": True})


def _zeros(shape: tuple[int, ...], like: Any, dtype: str | None = None) -> Any:
    x = empty(shape, like, dtype)
    x[...] = 0
    return x


def _counter(division: Division, like: Any) -> Any:
    return _zeros(division.grid[1:], like, "int32")


def _state_dtype(x: Any) -> str:
    return "float64" if dtype_name(x) == "float64" else "float32"


def _sizes(gates: Any, weight: Any) -> tuple[int, int, int, int]:
    """Return (steps, batch, hidden, directions)."""
    directions, _, hidden = weight.shape
    return gates.shape[0], gates.shape[1], hidden, directions


def _allocate(gates: Any, weight: Any, keep: bool, *, has_cell: bool) -> tuple[Any, ...]:
    """Return outputs, last states, all states, and the gates that the way back needs."""
    steps, batch, hidden, directions = _sizes(gates, weight)
    last, pages = (directions, batch, hidden), (directions, steps + 1, batch, hidden)
    cells = _state_dtype(gates)
    kept = (steps, batch, directions, 4, hidden) if keep else (0,)
    return (
        empty((steps, batch, directions * hidden), gates),
        empty(last, gates),
        *([empty(last, gates)] if has_cell else []),
        empty(pages, gates),
        *([empty(pages, gates, cells)] if has_cell else []),
        empty(kept, gates),
    )


def _put_first(pages: Any, first: Any) -> None:
    """Fill the page before the first step of each direction."""
    pages[0, 0] = first[0]
    if len(pages) == 2:
        pages[1, -1] = first[1]


def _put_last(last: Any, pages: Any) -> None:
    last[0] = pages[0, -1]
    if len(pages) == 2:
        last[1] = pages[1, 0]


def _allocate_lstm(
    gates: Any, weight: Any, h: Any, c: Any, lengths: Any, keep: bool
) -> tuple[Any, ...]:
    return _allocate(gates, weight, keep, has_cell=True)


@operation(
    "lstm_layer(Tensor gates, Tensor weight, Tensor h, Tensor c, Tensor lengths, bool keep)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    allocate=_allocate_lstm,
    autocast="lower",
)
def lstm_layer(
    outputs: Any, gates: Any, weight: Any, h: Any, c: Any, lengths: Any, keep: bool
) -> None:
    """Compute (outputs, last states, last cells), and what the way back needs."""
    y, last_h, last_c, states, cells, kept = outputs
    steps, batch, hidden, directions = _sizes(gates, weight)
    _put_first(states, h)
    _put_first(cells, c)
    if math.prod(y.shape):
        way = division(gates, batch, hidden, directions, 4, hidden)
        lstm_kernel[way.grid](
            contiguous(gates),
            contiguous(_transposed(weight)),
            lengths,
            states,
            cells,
            y,
            kept,
            _counter(way, gates),
            (steps, batch, hidden, directions),
            KEEP=keep,
            TILES=way.tiles,
            **way.options,
        )
    _put_last(last_h, states)
    _put_last(last_c, cells)


def _transposed(weight: Any) -> Any:
    return weight.mT if is_tensor(weight) else np.swapaxes(weight, -1, -2)


def _allocate_lstm_backward(
    dy: Any, dh: Any, dc: Any, weight: Any, lengths: Any, cells: Any, kept: Any
) -> tuple[Any, ...]:
    directions, pages, batch, hidden = cells.shape
    state = (directions, batch, hidden)
    return (
        empty((directions, pages, batch, 4 * hidden), kept),
        empty(state, kept, _state_dtype(kept)),
        empty(state, kept, _state_dtype(kept)),
    )


@operation(
    "lstm_layer_backward(Tensor dy, Tensor dh, Tensor dc, Tensor weight, Tensor lengths,"
    " Tensor cells, Tensor kept) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_lstm_backward,
)
def _lstm_layer_backward(
    outputs: Any, dy: Any, dh: Any, dc: Any, weight: Any, lengths: Any, cells: Any, kept: Any
) -> None:
    dgates, dh_left, dc_left = outputs
    directions, pages, batch, hidden = cells.shape
    dh_left[...], dc_left[...] = dh, dc
    _put_first_zero(dgates)
    if dy.numel() == 0:
        return
    way = division(kept, batch, hidden, directions, 1, 4 * hidden)
    lstm_backward_kernel[way.grid](
        kept,
        contiguous(weight),
        lengths,
        cells,
        contiguous(dy),
        dgates,
        dh_left,
        dc_left,
        _counter(way, kept),
        (pages - 1, batch, hidden, directions),
        TILES=way.tiles,
        **way.options,
    )


def _put_first_zero(dgates: Any) -> None:
    """On the way back, the page behind the last step is the first one that is read."""
    dgates[0, -1] = 0
    if len(dgates) == 2:
        dgates[1, 0] = 0


def _setup_lstm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, weight, _, _, lengths, _ = inputs
    _, _, _, states, cells, kept = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(states, cells, kept)
    ctx.save_for_backward(weight, lengths, states, cells, kept)


def _or_zeros(gradient: Any, shape: tuple[int, ...], like: Any) -> Any:
    return like.new_zeros(shape) if gradient is None else gradient


def _lstm_backward(ctx: Any, dy: Any, dh: Any, dc: Any, *unused: Any) -> tuple[Any, ...]:
    weight, lengths, states, cells, kept = ctx.saved_tensors
    directions, pages, batch, hidden = states.shape
    last = (directions, batch, hidden)
    dgates, dh, dc = _lstm_layer_backward(
        _or_zeros(dy, (pages - 1, batch, directions * hidden), states),
        _or_zeros(dh, last, states),
        _or_zeros(dc, last, states),
        weight,
        lengths,
        cells,
        kept,
    )
    dh, dweight = _state_gradients(dgates, dh, weight, states)
    return _in_time(dgates), dweight, dh, dc.to(states.dtype), None, None


def _state_gradients(dgates: Any, dh: Any, weight: Any, states: Any) -> tuple[Any, Any]:
    """Return the gradients of the first state, and of the weights."""
    pairs = [(dgates[0, 0], dgates[0, :-1], states[0, :-1])]
    if len(dgates) == 2:
        pairs.append((dgates[1, -1], dgates[1, 1:], states[1, 1:]))
    first = torch.stack([d @ w for (d, _, _), w in zip(pairs, weight, strict=True)])
    dweight = torch.stack([d.flatten(0, 1).mT @ h.flatten(0, 1) for _, d, h in pairs])
    return (dh + first).to(states.dtype), dweight


def _in_time(dgates: Any) -> Any:
    """Return (T, B, directions * gates), without the page that belongs to no step."""
    forward = dgates[0, :-1]
    return torch.cat([forward, dgates[1, 1:]], -1) if len(dgates) == 2 else forward.clone()


lstm_layer.register_autograd(_lstm_backward, setup_context=_setup_lstm)


# ---- GRU ------------------------------------------------------------------------------------


def _allocate_gru(
    gates: Any, weight: Any, bias: Any, h: Any, lengths: Any, keep: bool
) -> tuple[Any, ...]:
    return _allocate(gates, weight, keep, has_cell=False)


@operation(
    "gru_layer(Tensor gates, Tensor weight, Tensor bias, Tensor h, Tensor lengths, bool keep)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    allocate=_allocate_gru,
    autocast="lower",
)
def gru_layer(
    outputs: Any, gates: Any, weight: Any, bias: Any, h: Any, lengths: Any, keep: bool
) -> None:
    """Compute (outputs, last states), and what the way back needs."""
    y, last_h, states, kept = outputs
    steps, batch, hidden, directions = _sizes(gates, weight)
    _put_first(states, h)
    if math.prod(y.shape):
        way = division(gates, batch, hidden, directions, 3, hidden)
        gru_kernel[way.grid](
            contiguous(gates),
            contiguous(_transposed(weight)),
            contiguous(bias),
            lengths,
            states,
            y,
            kept,
            _counter(way, gates),
            (steps, batch, hidden, directions),
            KEEP=keep,
            TILES=way.tiles,
            **way.options,
        )
    _put_last(last_h, states)


def _allocate_gru_backward(
    dy: Any, dh: Any, weight: Any, lengths: Any, states: Any, kept: Any
) -> tuple[Any, ...]:
    directions, pages, batch, hidden = states.shape
    return (
        empty((directions, pages, batch, 3 * hidden), kept),
        empty((pages - 1, batch, directions, hidden), kept),
        empty((directions, batch, hidden), kept, _state_dtype(kept)),
    )


@operation(
    "gru_layer_backward(Tensor dy, Tensor dh, Tensor weight, Tensor lengths, Tensor states,"
    " Tensor kept) -> (Tensor, Tensor, Tensor)",
    allocate=_allocate_gru_backward,
)
def _gru_layer_backward(
    outputs: Any, dy: Any, dh: Any, weight: Any, lengths: Any, states: Any, kept: Any
) -> None:
    dgates, dn, dh_left = outputs
    directions, pages, batch, hidden = states.shape
    dh_left[...] = dh
    _put_first_zero(dgates)
    if dy.numel() == 0:
        return
    way = division(kept, batch, hidden, directions, 1, 3 * hidden)
    gru_backward_kernel[way.grid](
        kept,
        contiguous(weight),
        lengths,
        states,
        contiguous(dy),
        dgates,
        dn,
        dh_left,
        _counter(way, kept),
        (pages - 1, batch, hidden, directions),
        TILES=way.tiles,
        **way.options,
    )


def _setup_gru(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, weight, _, _, lengths, _ = inputs
    _, _, states, kept = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(states, kept)
    ctx.save_for_backward(weight, lengths, states, kept)


def _gru_backward(ctx: Any, dy: Any, dh: Any, *unused: Any) -> tuple[Any, ...]:
    weight, lengths, states, kept = ctx.saved_tensors
    directions, pages, batch, hidden = states.shape
    dgates, dn, dh = _gru_layer_backward(
        _or_zeros(dy, (pages - 1, batch, directions * hidden), states),
        _or_zeros(dh, (directions, batch, hidden), states),
        weight,
        lengths,
        states,
        kept,
    )
    dh, dweight = _state_gradients(dgates, dh, weight, states)
    own = _in_time(dgates).unflatten(-1, (directions, 3 * hidden))
    dbias = own[..., 2 * hidden :].sum((0, 1))
    # The input's part of the last gate is not multiplied by r, as that of the state is.
    whole = torch.cat([own[..., : 2 * hidden], dn], -1).flatten(2)
    return whole, dweight, dbias, dh, None, None


gru_layer.register_autograd(_gru_backward, setup_context=_setup_gru)
