"""The time loop of GRU layers, forward and backward: see `recurrent_steps.py`."""

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

__all__ = ["gru_backward_kernel", "gru_kernel"]


@tw.jit
def gru_kernel(
    gates_ptr,
    weight_ptr,
    bias_ptr,
    lengths_ptr,
    state_ptr,
    y_ptr,
    kept_ptr,
    counter_ptr,
    sizes,
    KEEP: tl.constexpr,
    TILES: tl.constexpr,
):
    """Steps of a GRU. `gates` are those that the input makes; page 0 has the first state."""
    DTYPE: tl.constexpr = accumulator(gates_ptr.dtype.element_ty)
    steps, batch, hidden, _ = sizes
    part = own_part(lengths_ptr, batch, TILES)
    row, is_row, start, direction = part.row, part.is_row, part.start, part.direction
    width = 3 * hidden
    column, is_column = columns_of_gates(start, hidden, 2, TILES)
    unit = start + tl.arange(0, TILES.UNITS)[None, :]
    weight_ptr += direction * width * hidden
    weights = weights_of(weight_ptr, column, is_column, (hidden, width), TILES)
    weight_ptr += 2 * hidden
    weights_n = weights_of(weight_ptr, unit, unit < hidden, (hidden, width), TILES)
    for step in range(steps):
        before, behind, place, is_active = moment(part, step, sizes)
        before, behind = before * batch * hidden, behind * batch * hidden
        gates = gates_ptr + place * width
        rows = state_ptr + before + row * hidden
        for first in range(start, hidden, part.stride):
            unit = first + tl.arange(0, TILES.UNITS)[None, :]
            in_hidden = unit < hidden
            at = row * hidden + unit
            mask = is_row & in_hidden
            x_n = tl.load(gates + 2 * hidden + unit, is_active & in_hidden, 0.0).to(DTYPE)
            h = tl.load(state_ptr + before + at, mask, 0.0)
            bias = tl.load(bias_ptr + direction * hidden + unit, in_hidden, 0.0).to(DTYPE)
            h_n = tl.broadcast_to(bias, (TILES.ROWS, TILES.UNITS))
            r, z = gates_of(weights, gates, rows, is_row, is_active, first, hidden, 2)
            h_n = product(weights_n, h_n, rows, is_row, unit, in_hidden)
            r, z = tl.sigmoid(r), tl.sigmoid(z)
            n = tanh(x_n + r * h_n)
            new = ((1.0 - z) * n + z * h.to(DTYPE)).to(h.dtype)
            tl.store(state_ptr + behind + at, tl.where(is_active, new, h), mask)
            tl.store(y_ptr + place * hidden + unit, tl.where(is_active, new, 0.0), mask)
            if KEEP:
                store_four(kept_ptr + place * 4 * hidden + unit, hidden, r, z, n, h_n, mask)
        meet(counter_ptr, step, TILES)


@tw.jit
def gru_backward_kernel(
    kept_ptr,
    weight_ptr,
    lengths_ptr,
    state_ptr,
    dy_ptr,
    dgates_ptr,
    dn_ptr,
    dh_ptr,
    counter_ptr,
    sizes,
    TILES: tl.constexpr,
):
    """Steps backwards; `dh` holds the gradient of the state, without that by the gates."""
    DTYPE: tl.constexpr = accumulator(kept_ptr.dtype.element_ty)
    steps, batch, hidden, _ = sizes
    part = own_part(lengths_ptr, batch, TILES)
    row, is_row, start, direction = part.row, part.is_row, part.start, part.direction
    width = 3 * hidden
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
            r, z, n, h_n = load_four(kept_ptr + place * 4 * hidden + unit, hidden, now, DTYPE)
            old = tl.load(state_ptr + before * hidden + unit, mask, 0.0).to(DTYPE)
            dh += tl.load(dy_ptr + place * hidden + unit, now, 0.0).to(DTYPE)
            rows = dgates_ptr + behind * width
            dh = product(weights, dh, rows, is_row, unit, unit < hidden)
            dn = tl.where(is_active, dh * (1.0 - z) * (1.0 - n * n), 0.0)
            new_ptrs = dgates_ptr + before * width + unit
            tl.store(new_ptrs, dn * h_n * r * (1.0 - r), mask)
            tl.store(new_ptrs + hidden, dh * (old - n) * z * (1.0 - z), mask)
            tl.store(new_ptrs + 2 * hidden, dn * r, mask)
            tl.store(dn_ptr + place * hidden + unit, dn, mask)
            tl.store(dh_ptr + carried, tl.where(is_active, dh * z, dh), mask)
        meet(counter_ptr, step, TILES)
