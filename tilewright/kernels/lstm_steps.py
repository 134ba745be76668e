"""The time loop of LSTM layers, forward and backward: see `recurrent_steps.py`."""

# The constants of kernels are plain values.
# mypy: disable-error-code="assignment, attr-defined"

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.recurrent_steps import (
    columns_of_gates,
    gates_of,
    load_four,
    meet,
    moment,
    own_part,
    product,
    store_four,
    tanh,
    weights_of,
)
from tilewright.kernels.rows import accumulator

__all__ = ["lstm_backward_kernel", "lstm_kernel"]


@tw.jit
def lstm_kernel(
    gates_ptr,
    weight_ptr,
    lengths_ptr,
    state_ptr,
    cell_ptr,
    y_ptr,
    kept_ptr,
    counter_ptr,
    sizes,
    KEEP: tl.constexpr,
    TILES: tl.constexpr,
):
    """Steps of an LSTM. `gates` are those that the input makes; page 0 has the first state."""
    DTYPE: tl.constexpr = accumulator(gates_ptr.dtype.element_ty)
    steps, batch, hidden, _ = sizes
    part = own_part(lengths_ptr, batch, TILES)
    row, is_row, start, direction = part.row, part.is_row, part.start, part.direction
    width = 4 * hidden
    column, is_column = columns_of_gates(start, hidden, 4, TILES)
    weight_ptr += direction * width * hidden
    weights = weights_of(weight_ptr, column, is_column, (hidden, width), TILES)
    for step in range(steps):
        before, behind, place, is_active = moment(part, step, sizes)
        before, behind = before * batch * hidden, behind * batch * hidden
        for first in range(start, hidden, part.stride):
            unit = first + tl.arange(0, TILES.UNITS)[None, :]
            at = row * hidden + unit
            mask = is_row & (unit < hidden)
            h = tl.load(state_ptr + before + at, mask, 0.0)
            c = tl.load(cell_ptr + before + at, mask, 0.0).to(DTYPE)
            rows = state_ptr + before + row * hidden
            gates = gates_ptr + place * width
            i, f, g, o = gates_of(weights, gates, rows, is_row, is_active, first, hidden, 4)
            i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)
            c = tl.where(is_active, f * c + i * g, c)
            new = (o * tanh(c)).to(h.dtype)
            tl.store(cell_ptr + behind + at, c, mask)
            tl.store(state_ptr + behind + at, tl.where(is_active, new, h), mask)
            tl.store(y_ptr + place * hidden + unit, tl.where(is_active, new, 0.0), mask)
            if KEEP:
                store_four(kept_ptr + place * width + unit, hidden, i, f, g, o, mask)
        meet(counter_ptr, step, TILES)


@tw.jit
def lstm_backward_kernel(
    kept_ptr,
    weight_ptr,
    lengths_ptr,
    cell_ptr,
    dy_ptr,
    dgates_ptr,
    dh_ptr,
    dc_ptr,
    counter_ptr,
    sizes,
    TILES: tl.constexpr,
):
    """Steps backwards; `dh` and `dc` hold the gradient of states, without that by the gates."""
    DTYPE: tl.constexpr = accumulator(kept_ptr.dtype.element_ty)
    steps, batch, hidden, _ = sizes
    part = own_part(lengths_ptr, batch, TILES)
    row, is_row, start, direction = part.row, part.is_row, part.start, part.direction
    width = 4 * hidden
    unit = start + tl.arange(0, TILES.UNITS)[None, :]
    weight_ptr += direction * width * hidden
    weights = weights_of(weight_ptr, unit, unit < hidden, (width, hidden), TILES)
    for step in range(steps):
        before, behind, place, is_active = moment(part, steps - 1 - step, sizes)
        before, behind = before * batch + row, behind * batch + row
        for first in range(start, hidden, part.stride):
            unit = first + tl.arange(0, TILES.UNITS)[None, :]
            mask = is_row & (unit < hidden)
            now = is_active & mask
            carried = (direction * batch + row) * hidden + unit
            dh = tl.load(dh_ptr + carried, mask, 0.0).to(DTYPE)
            dc = tl.load(dc_ptr + carried, mask, 0.0).to(DTYPE)
            i, f, g, o = load_four(kept_ptr + place * width + unit, hidden, now, DTYPE)
            c = tl.load(cell_ptr + behind * hidden + unit, mask, 0.0).to(DTYPE)
            old = tl.load(cell_ptr + before * hidden + unit, mask, 0.0).to(DTYPE)
            dh += tl.load(dy_ptr + place * hidden + unit, now, 0.0).to(DTYPE)
            rows = dgates_ptr + behind * width
            dh = product(weights, dh, rows, is_row, unit, unit < hidden)
            c = tanh(c)
            dcell = dc + dh * o * (1.0 - c * c)
            di, df = dcell * g * i * (1.0 - i), dcell * old * f * (1.0 - f)
            dg, do = dcell * i * (1.0 - g * g), dh * c * o * (1.0 - o)
            store_four(dgates_ptr + before * width + unit, hidden, di, df, dg, do, mask)
            tl.store(dc_ptr + carried, tl.where(is_active, dcell * f, dc), mask)
            tl.store(dh_ptr + carried, tl.where(is_active, 0.0, dh), mask)
        meet(counter_ptr, step, TILES)
