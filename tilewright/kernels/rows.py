"""How kernels that reduce along one dimension are laid out: `ROWS` rows for each program.

An array is folded to (before, along, after): a *row* is a pair of the outer two, and its elements
are `column_stride` apart. Where the dimension is the last one, `after` is 1.
"""

import math
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import dtype_name, on_cpu

__all__ = [
    "MULTIPROCESSORS",
    "accumulator",
    "accumulator_bytes",
    "accumulator_name",
    "column_numbers",
    "column_sums",
    "distance_gradient",
    "down",
    "over_rows",
    "own_rows",
    "row_blocks",
    "row_configs",
    "row_maxima",
    "row_numbers",
    "row_offsets",
    "row_sums",
    "row_warps",
    "rows_and_columns",
    "rows_from",
    "tile_shape",
]

MULTIPROCESSORS = 132  # of an H100 or H200
_MOST_COLUMNS = 16384  # of a row that a program holds; longer rows are read in blocks
_ELEMENTS = 2048  # of a program with several rows
_FEW_SUMS = 512  # of a column: a small tile is through them in few steps

row_configs = [tw.Config({}, num_warps=warps) for warps in (2, 4, 8, 16)]


def row_blocks(
    x: Any, rows: int, columns: int, most_columns: int = _MOST_COLUMNS
) -> tuple[int, int]:
    """Return how many rows, and columns at a time, a program works on."""
    block = min(tw.next_power_of_2(max(columns, 1)), most_columns)
    if block >= _ELEMENTS:
        return 1, block
    programs = 64 if on_cpu(x) else 1024
    return min(_ELEMENTS // block, tw.next_power_of_2(tw.cdiv(max(rows, 1), programs))), block


def row_warps(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 8 to 16 elements for each thread.

    Rows that are read once have nothing to be loaded ahead.
    """
    elements = arguments["ROWS"] * arguments["BLOCK"]
    is_whole = arguments.get("columns", 0) <= arguments["BLOCK"]
    return tw.Config(
        {}, num_warps=min(max(elements // 512, 1), 16), num_stages=1 if is_whole else 3
    )


def rows_and_columns(x: Any, dims: int) -> tuple[int, int]:
    """Return the sizes of the matrix whose rows are the last `dims` dimensions."""
    shape = tuple(x.shape)
    return math.prod(shape[: len(shape) - dims]), math.prod(shape[len(shape) - dims :])


def accumulator_name(x: Any) -> str:
    """Return the name of the type to compute in: "float64" for fp64, else "float32"."""
    return "float64" if dtype_name(x) == "float64" else "float32"


def accumulator_bytes(x: Any) -> int:
    """Return the size of an element of that type."""
    return 8 if accumulator_name(x) == "float64" else 4


@tw.constexpr_function
def accumulator(dtype):
    """Return the type to compute in: fp64 for fp64, else fp32."""
    return tl.float64 if dtype == tl.float64 else tl.float32


@tw.jit
def own_rows(ROWS: tl.constexpr):
    """Return the numbers of this program's rows; a single one is no tile, which is faster."""
    return rows_from(tl.program_id(0) * ROWS, ROWS)


@tw.jit
def rows_from(first, ROWS: tl.constexpr):
    """Return the numbers of rows from `first` on; a single one is no tile."""
    if ROWS == 1:
        return first
    return first + tl.arange(0, ROWS)


@tw.constexpr_function
def tile_shape(ROWS, BLOCK):
    """Return the shape of a tile of rows, a single one of which has no dimension of its own."""
    return (BLOCK,) if ROWS == 1 else (ROWS, BLOCK)


@tw.jit
def over_rows(x, ROWS: tl.constexpr):
    """Return the sums over the rows of a tile."""
    if ROWS == 1:
        return x
    return tl.sum(x, axis=0)


@tw.jit
def column_numbers(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the numbers of columns, in a shape that broadcasts with `down` of rows."""
    if ROWS == 1:
        return tl.arange(0, BLOCK)
    return tl.arange(0, BLOCK)[None, :]


@tw.jit
def down(x, ROWS: tl.constexpr):
    """Return a number of each row as a column, unless it is one number."""
    if ROWS == 1:
        return x
    return x[:, None]


@tw.jit
def row_numbers(value, ROWS: tl.constexpr, DTYPE: tl.constexpr):
    """Return the same number for each row."""
    if ROWS == 1:
        return tl.cast(value, DTYPE)
    return tl.full((ROWS,), value, DTYPE)


@tw.jit
def row_sums(x, ROWS: tl.constexpr):
    """Return the sum of each row."""
    if ROWS == 1:
        return tl.sum(x, axis=0)
    return tl.sum(x, axis=1)


@tw.jit
def row_maxima(x, ROWS: tl.constexpr):
    """Return the highest element of each row."""
    if ROWS == 1:
        return tl.max(x, axis=0)
    return tl.max(x, axis=1)


@tw.jit
def row_offsets(row, after, before_stride, after_stride):
    """Return where rows start, as offsets of 64 bits."""
    return (row // after).to(tl.int64) * before_stride + (row % after) * after_stride


@tw.jit
def distance_gradient(weighted, normal, along, level, rstd):
    """Return the gradient of what was normalized, from that of the results before the weight.

    `along` and `level` are the means of its products with `normal`, and of itself.
    """
    return (weighted - normal * along - level) * rstd


@tw.jit
def column_sums_kernel(
    x_ptr,
    y_ptr,
    x_out_ptr,
    y_out_ptr,
    rows,
    columns,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Add up the rows of one matrix or two, `COLUMNS` columns for each program.

    Programs may begin before the launch that writes the rows has ended.
    """
    tl.extra.cuda.gdc_wait()
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < columns
    x_sum = tl.zeros((ROWS, COLUMNS), DTYPE)
    y_sum = tl.zeros((ROWS, COLUMNS), DTYPE)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        mask = (row < rows)[:, None] & is_column[None, :]
        x_sum += tl.load(x_ptr + at, mask, 0.0)
        if y_ptr is not None:
            y_sum += tl.load(y_ptr + at, mask, 0.0)
    tl.store(x_out_ptr + column, tl.sum(x_sum, axis=0), is_column)
    if y_ptr is not None:
        tl.store(y_out_ptr + column, tl.sum(y_sum, axis=0), is_column)


def column_sums(pairs: list[tuple[Any, Any]]) -> None:
    """Add up the rows of contiguous matrices of fp32 or fp64, always in the same order.

    `pairs` has one or two: a matrix, and where its sums go. On a GPU the launch waits by itself for
    the one before it, which may let it begin (`gdc_launch_dependents`).
    """
    (x, x_out), (y, y_out) = (*pairs, (None, None))[:2]
    rows, columns = x.shape
    if on_cpu(x):
        width, height, warps = 1024, 1, 4
    else:
        width, height, warps = (32, 32, 4) if rows <= _FEW_SUMS else (32, 128, 8)
    column_sums_kernel[(tw.cdiv(columns, width),)](
        x,
        y,
        x_out,
        y_out,
        rows,
        columns,
        ROWS=height,
        COLUMNS=width,
        num_warps=warps,
        launch_pdl=True,
    )
