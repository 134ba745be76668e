"""Kernels that only move elements."""

import triton
import triton.language as tl


@triton.jit
def gather_rows_kernel(
    table_ptr, index_ptr, out_ptr, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):
    """Row i of the result is row `index[i]` of the table; `BLOCK` rows a program."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None]
    source = tl.load(index_ptr + row, mask=row < rows, other=0).to(tl.int64)
    x = tl.load(table_ptr + source[:, None] * COLUMNS + column[None, :], mask=inside)
    at = row.to(tl.int64)[:, None] * COLUMNS + column[None, :]
    tl.store(out_ptr + at, x, mask=inside)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row = row < rows
    is_column = column < columns
    inside = is_row[:, None] & is_column[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside)
    inside = is_column[:, None] & is_row[None, :]
    tl.store(out_ptr + column[:, None] * rows + row[None, :], tl.trans(x), mask=inside)
