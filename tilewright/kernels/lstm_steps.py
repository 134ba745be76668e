"""The time loop of LSTM layers, forward and backward: see `recurrent_steps.py`."""

# The constants of kernels are plain values.
# mypy: disable-error-code="assignment"

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.recurrent_steps import (
    columns_of_gates,
    halves,
    meet,
    product,
    tanh,
    weight_tiles,
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
    steps,
    batch,
    hidden,
    directions,
    KEEP: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Steps of an LSTM. `gates` are those that the input makes; page 0 has the first state."""
    DTYPE: tl.constexpr = accumulator(gates_ptr.dtype.element_ty)
    programs = tl.num_programs(0)
    block, group, direction = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = group * ROWS + tl.arange(0, ROWS)[:, None]
    is_row = row < batch
    length = tl.load(lengths_ptr + row, is_row, 0)
    weight_ptr += direction * 4 * hidden * hidden
    counter_ptr += direction * tl.num_programs(1) + group
    column, is_column = columns_of_gates(block * UNITS, hidden, 4, UNITS)
    kept = weight_tiles(weight_ptr, column, is_column, hidden, 4 * hidden, DEPTH, CHUNKS)
    for step in range(steps):
        t = tl.where(direction == 1, steps - 1 - step, step)
        page = direction * (steps + 1) + t
        before = (page + direction).to(tl.int64) * batch * hidden
        behind = (page + 1 - direction).to(tl.int64) * batch * hidden
        is_active = is_row & (t < length)
        for first in range(block * UNITS, hidden, programs * UNITS):
            column, is_column = columns_of_gates(first, hidden, 4, UNITS)
            unit = first + tl.arange(0, UNITS)[None, :]
            at = row * hidden + unit
            mask = is_row & (unit < hidden)
            place = (t * batch + row).to(tl.int64) * directions + direction
            gate_ptrs = gates_ptr + place * 4 * hidden + column
            acc = tl.load(gate_ptrs, is_active & is_column, 0.0).to(DTYPE)
            h = tl.load(state_ptr + before + at, mask, 0.0)
            c = tl.load(cell_ptr + before + at, mask, 0.0).to(DTYPE)
            acc = product(
                acc,
                state_ptr + before + row * hidden,
                is_row,
                weight_ptr,
                kept,
                column,
                is_column,
                hidden,
                4 * hidden,
                DEPTH,
                CHUNKS,
                PRECISION,
            )
            input_forget, cell_output = halves(acc)
            i, f = halves(tl.sigmoid(input_forget))
            g, o = halves(cell_output)
            g, o = tanh(g), tl.sigmoid(o)
            c = tl.where(is_active, f * c + i * g, c)
            new = (o * tanh(c)).to(h.dtype)
            tl.store(cell_ptr + behind + at, c, mask)
            tl.store(state_ptr + behind + at, tl.where(is_active, new, h), mask)
            tl.store(y_ptr + place * hidden + unit, tl.where(is_active, new, 0.0), mask)
            if KEEP:
                kept_ptrs = kept_ptr + place * 4 * hidden + unit
                tl.store(kept_ptrs, i, mask)
                tl.store(kept_ptrs + hidden, f, mask)
                tl.store(kept_ptrs + 2 * hidden, g, mask)
                tl.store(kept_ptrs + 3 * hidden, o, mask)
        if len(CHUNKS) > 0:
            meet(counter_ptr, programs, step)


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
    steps,
    batch,
    hidden,
    directions,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Steps backwards; `dh` and `dc` hold the gradient of states, without that by the gates."""
    DTYPE: tl.constexpr = accumulator(kept_ptr.dtype.element_ty)
    programs = tl.num_programs(0)
    block, group, direction = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = group * ROWS + tl.arange(0, ROWS)[:, None]
    is_row = row < batch
    length = tl.load(lengths_ptr + row, is_row, 0)
    weight_ptr += direction * 4 * hidden * hidden
    counter_ptr += direction * tl.num_programs(1) + group
    unit = block * UNITS + tl.arange(0, UNITS)[None, :]
    kept = weight_tiles(weight_ptr, unit, unit < hidden, 4 * hidden, hidden, DEPTH, CHUNKS)
    for step in range(steps):
        t = tl.where(direction == 1, step, steps - 1 - step)
        page = direction * (steps + 1) + t
        before = (page + direction).to(tl.int64) * batch
        behind = (page + 1 - direction).to(tl.int64) * batch
        is_active = is_row & (t < length)
        for first in range(block * UNITS, hidden, programs * UNITS):
            unit = first + tl.arange(0, UNITS)[None, :]
            mask = is_row & (unit < hidden)
            now = is_active & (unit < hidden)
            place = (t * batch + row).to(tl.int64) * directions + direction
            carried = direction * batch * hidden + row * hidden + unit
            dh = tl.load(dh_ptr + carried, mask, 0.0).to(DTYPE)
            dc = tl.load(dc_ptr + carried, mask, 0.0).to(DTYPE)
            kept_ptrs = kept_ptr + place * 4 * hidden + unit
            i = tl.load(kept_ptrs, now, 0.0).to(DTYPE)
            f = tl.load(kept_ptrs + hidden, now, 0.0).to(DTYPE)
            g = tl.load(kept_ptrs + 2 * hidden, now, 0.0).to(DTYPE)
            o = tl.load(kept_ptrs + 3 * hidden, now, 0.0).to(DTYPE)
            c = tl.load(cell_ptr + (behind + row) * hidden + unit, mask, 0.0).to(DTYPE)
            old = tl.load(cell_ptr + (before + row) * hidden + unit, mask, 0.0).to(DTYPE)
            dy = tl.load(dy_ptr + place * hidden + unit, now, 0.0).to(DTYPE)
            dh = product(
                dh + dy,
                dgates_ptr + (behind + row) * 4 * hidden,
                is_row,
                weight_ptr,
                kept,
                unit,
                unit < hidden,
                4 * hidden,
                hidden,
                DEPTH,
                CHUNKS,
                PRECISION,
            )
            c = tanh(c)
            dcell = dc + dh * o * (1.0 - c * c)
            new_ptrs = dgates_ptr + (before + row) * 4 * hidden + unit
            tl.store(new_ptrs, dcell * g * i * (1.0 - i), mask)
            tl.store(new_ptrs + hidden, dcell * old * f * (1.0 - f), mask)
            tl.store(new_ptrs + 2 * hidden, dcell * i * (1.0 - g * g), mask)
            tl.store(new_ptrs + 3 * hidden, dh * c * o * (1.0 - o), mask)
            tl.store(dc_ptr + carried, tl.where(is_active, dcell * f, dc), mask)
            tl.store(dh_ptr + carried, tl.where(is_active, 0.0, dh), mask)
        if len(CHUNKS) > 0:
            meet(counter_ptr, programs, step)
