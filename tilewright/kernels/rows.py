"""How kernels that reduce along one dimension are laid out: `ROWS` rows for each program.

An array is folded to (before, along, after): a *row* is a pair of the outer two, and its elements
are `column_stride` apart. Where the dimension is the last one, `after` is 1.
"""

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import on_cpu

__all__ = ["accumulator", "row_blocks", "row_configs", "row_offsets", "row_warps"]

_MOST_COLUMNS = 16384  # of a row that a program holds; longer rows are read in blocks
_ELEMENTS = 2048  # of a program with several rows

row_configs = [tw.Config({}, num_warps=warps) for warps in (2, 4, 8, 16)]


def row_blocks(x: Any, rows: int, columns: int) -> tuple[int, int]:
    """Return how many rows, and columns at a time, a program works on."""
    block = min(tw.next_power_of_2(max(columns, 1)), _MOST_COLUMNS)
    if block >= _ELEMENTS:
        return 1, block
    programs = 64 if on_cpu(x) else 1024
    return min(_ELEMENTS // block, tw.next_power_of_2(tw.cdiv(max(rows, 1), programs))), block


def row_warps(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 8 to 16 elements for each thread."""
    elements = arguments["ROWS"] * arguments["BLOCK"]
    return tw.Config({}, num_warps=min(max(elements // 512, 1), 16))


@tw.constexpr_function
def accumulator(dtype):
    """Return the type to compute in: fp64 for fp64, else fp32."""
    return tl.float64 if dtype == tl.float64 else tl.float32


@tw.jit
def row_offsets(row, after, before_stride, after_stride):
    """Return where rows start, as offsets of 64 bits."""
    return (row // after).to(tl.int64) * before_stride + (row % after) * after_stride
