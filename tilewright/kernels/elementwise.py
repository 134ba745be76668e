"""How kernels that treat every element by itself are laid out: a part of a row for each program.

Arrays in row-major order are one row. Others are rows of their last dimension, in which elements
have to be neighbours: that is how the parts of a larger array come, such as halves of a projection.
"""

import math
from collections.abc import Callable
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import contiguous, is_contiguous, is_tensor, on_cpu, strides

__all__ = [
    "element_block",
    "element_configs",
    "grid",
    "in_memory_order",
    "is_nan",
    "lines",
    "place",
    "row_stride",
]

element_configs = [
    tw.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (16384, 4))
]


def element_block(arguments: dict[str, Any]) -> tw.Config:
    """Return the configuration before tuning: 16 bytes for each thread, or 64 KB for a core."""
    if any(on_cpu(x) for x in arguments.values() if hasattr(x, "shape")):
        return tw.Config({"BLOCK": max(16, min(16384, tw.next_power_of_2(arguments["columns"])))})
    return tw.Config({"BLOCK": 1024}, num_warps=4)


def in_memory_order(out: Any, *arrays: Any) -> list[Any]:
    """Return views of arrays, with the dimensions as those of `out` lie in memory; None stays."""
    if is_contiguous(out):
        return list(arrays)
    steps = strides(out)
    order = sorted(range(out.ndim), key=lambda dim: -steps[dim])
    return [
        x if x is None else x.permute(order) if is_tensor(x) else x.transpose(order) for x in arrays
    ]


def lines(*arrays: Any) -> list[Any]:
    """Return arrays of one shape as matrices of which the rows are contiguous; None stays."""
    (x, *_) = (array for array in arrays if array is not None)
    columns = x.shape[-1] if x.ndim else 1
    if all(array is None or is_contiguous(array) for array in arrays):
        columns = math.prod(x.shape)
    rows = math.prod(x.shape) // columns if columns else 0
    return [None if array is None else _matrix(array, rows, columns) for array in arrays]


def _matrix(x: Any, rows: int, columns: int) -> Any:
    x = x.reshape((rows, columns))
    return x if strides(x)[1] == 1 or columns == 1 else contiguous(x)


def row_stride(x: Any) -> int:
    """Return the distance between rows in elements, 0 where there is no matrix."""
    return 0 if x is None else strides(x)[0]


def grid(rows: int, columns: int) -> Callable[[dict[str, Any]], tuple[int]]:
    """Return the grid of a kernel that works on `BLOCK` elements of a row for each program."""
    return lambda meta: (rows * tw.cdiv(columns, meta["BLOCK"]),)


@tw.jit
def place(columns, BLOCK: tl.constexpr):
    """Return the row of this program, and its columns."""
    parts = tl.cdiv(columns, BLOCK)
    row = tl.program_id(0) // parts
    column = (tl.program_id(0) % parts).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return row.to(tl.int64), column


@tw.jit
def is_nan(x):
    """Whether elements are NaN."""
    return x != x  # noqa: PLR0124 - only NaN differs from itself
