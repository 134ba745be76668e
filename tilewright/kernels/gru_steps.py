"""The time loop of GRU layers, forward and backward: see `recurrent_steps.py`."""

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
    """Steps of a GRU. `gates` are those that the input makes; page 0 has the first state."""
    DTYPE: tl.constexpr = accumulator(gates_ptr.dtype.element_ty)
    programs = tl.num_programs(0)
    block, group, direction = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = group * ROWS + tl.arange(0, ROWS)[:, None]
    is_row = row < batch
    length = tl.load(lengths_ptr + row, is_row, 0)
    weight_ptr += direction * 3 * hidden * hidden
    bias_ptr += direction * hidden
    counter_ptr += direction * tl.num_programs(1) + group
    column, is_column = columns_of_gates(block * UNITS, hidden, 2, UNITS)
    unit = block * UNITS + tl.arange(0, UNITS)[None, :]
    in_hidden = unit < hidden
    width = 3 * hidden
    kept = weight_tiles(weight_ptr, column, is_column, hidden, width, DEPTH, CHUNKS)
    kept_n = weight_tiles(weight_ptr + 2 * hidden, unit, in_hidden, hidden, width, DEPTH, CHUNKS)
    for step in range(steps):
        t = tl.where(direction == 1, steps - 1 - step, step)
        page = direction * (steps + 1) + t
        before = (page + direction).to(tl.int64) * batch * hidden
        behind = (page + 1 - direction).to(tl.int64) * batch * hidden
        is_active = is_row & (t < length)
        for first in range(block * UNITS, hidden, programs * UNITS):
            column, is_column = columns_of_gates(first, hidden, 2, UNITS)
            unit = first + tl.arange(0, UNITS)[None, :]
            in_hidden = unit < hidden
            at = row * hidden + unit
            mask = is_row & in_hidden
            place = (t * batch + row).to(tl.int64) * directions + direction
            acc = tl.load(gates_ptr + place * width + column, is_active & is_column, 0.0).to(DTYPE)
            x_n = tl.load(gates_ptr + place * width + 2 * hidden + unit, is_active & in_hidden, 0.0)
            h = tl.load(state_ptr + before + at, mask, 0.0)
            bias = tl.load(bias_ptr + unit, in_hidden, 0.0).to(DTYPE)
            h_ptrs = state_ptr + before + row * hidden
            acc = product(
                acc,
                h_ptrs,
                is_row,
                weight_ptr,
                kept,
                column,
                is_column,
                hidden,
                width,
                DEPTH,
                CHUNKS,
                PRECISION,
            )
            h_n = product(
                tl.broadcast_to(bias, (ROWS, UNITS)),
                h_ptrs,
                is_row,
                weight_ptr + 2 * hidden,
                kept_n,
                unit,
                in_hidden,
                hidden,
                width,
                DEPTH,
                CHUNKS,
                PRECISION,
            )
            r, z = halves(tl.sigmoid(acc))
            n = tanh(x_n.to(DTYPE) + r * h_n)
            new = ((1.0 - z) * n + z * h.to(DTYPE)).to(h.dtype)
            tl.store(state_ptr + behind + at, tl.where(is_active, new, h), mask)
            tl.store(y_ptr + place * hidden + unit, tl.where(is_active, new, 0.0), mask)
            if KEEP:
                kept_ptrs = kept_ptr + place * 4 * hidden + unit
                tl.store(kept_ptrs, r, mask)
                tl.store(kept_ptrs + hidden, z, mask)
                tl.store(kept_ptrs + 2 * hidden, n, mask)
                tl.store(kept_ptrs + 3 * hidden, h_n, mask)
        if len(CHUNKS) > 0:
            meet(counter_ptr, programs, step)


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
    """Steps backwards; `dh` holds the gradient of the state, without that by the gates."""
    DTYPE: tl.constexpr = accumulator(kept_ptr.dtype.element_ty)
    programs = tl.num_programs(0)
    block, group, direction = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = group * ROWS + tl.arange(0, ROWS)[:, None]
    is_row = row < batch
    length = tl.load(lengths_ptr + row, is_row, 0)
    weight_ptr += direction * 3 * hidden * hidden
    counter_ptr += direction * tl.num_programs(1) + group
    unit = block * UNITS + tl.arange(0, UNITS)[None, :]
    kept = weight_tiles(weight_ptr, unit, unit < hidden, 3 * hidden, hidden, DEPTH, CHUNKS)
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
            kept_ptrs = kept_ptr + place * 4 * hidden + unit
            r = tl.load(kept_ptrs, now, 0.0).to(DTYPE)
            z = tl.load(kept_ptrs + hidden, now, 0.0).to(DTYPE)
            n = tl.load(kept_ptrs + 2 * hidden, now, 0.0).to(DTYPE)
            h_n = tl.load(kept_ptrs + 3 * hidden, now, 0.0).to(DTYPE)
            old = tl.load(state_ptr + (before + row) * hidden + unit, mask, 0.0).to(DTYPE)
            dy = tl.load(dy_ptr + place * hidden + unit, now, 0.0).to(DTYPE)
            dh = product(
                dh + dy,
                dgates_ptr + (behind + row) * 3 * hidden,
                is_row,
                weight_ptr,
                kept,
                unit,
                unit < hidden,
                3 * hidden,
                hidden,
                DEPTH,
                CHUNKS,
                PRECISION,
            )
            dn = tl.where(is_active, dh * (1.0 - z) * (1.0 - n * n), 0.0)
            new_ptrs = dgates_ptr + (before + row) * 3 * hidden + unit
            tl.store(new_ptrs, dn * h_n * r * (1.0 - r), mask)
            tl.store(new_ptrs + hidden, dh * (old - n) * z * (1.0 - z), mask)
            tl.store(new_ptrs + 2 * hidden, dn * r, mask)
            tl.store(dn_ptr + place * hidden + unit, dn, mask)
            tl.store(dh_ptr + carried, tl.where(is_active, dh * z, dh), mask)
        if len(CHUNKS) > 0:
            meet(counter_ptr, programs, step)
