"""The plan of a product: by which instruction, and where its operands and its result lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright import ops
from tilewright.codegen.code import dtype
from tilewright.codegen.gpu.views import padded
from tilewright.layout import LinearLayout
from tilewright.layout.blocked import axis_names, blocked
from tilewright.layout.nvidia import (
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand,
)
from tilewright.target import NvidiaTarget

__all__ = ["ProductShape", "product_of"]

_ROWS, _COLUMNS = 16, 8  # of the accumulator of mma.sync
_DEPTH_BITS = 256  # along k, an instruction takes 32 bytes
_WARPGROUP, _GROUP_ROWS, _WARP_ROWS = 4, 64, 16  # of `wgmma`: warps, and rows of the accumulator
_LEAST_COLUMNS, _MOST_COLUMNS = 16, 256


@dataclass(frozen=True)
class ProductShape:
    """Layouts of the accumulator and of both operands.

    `element` names the type that a matrix instruction multiplies, "" for multiplying and adding
    element by element. `depth` is the number of elements along k that one instruction takes.
    `columns` is the number of columns of an instruction of four warps, which reads B from shared
    memory; 0 says that the instructions are of one warp each. `warps` are those along m and n.
    """

    element: str
    depth: int
    accumulator: LinearLayout
    a: LinearLayout
    b: LinearLayout
    columns: int = 0
    warps: tuple[int, int] = (1, 1)


def product_of(op: ops.Dot, target: NvidiaTarget, num_warps: int, *, chained: bool) -> ProductShape:
    """Return how a product is computed on `num_warps` warps.

    `chained` products keep whole rows in a warp, so that a row that one leaves is what the next
    one takes.
    """
    m, k = padded(op.a.shape)[-2:]
    n = padded(op.b.shape)[-1]
    element = _matrix_element(op, target)
    bits = 32 if element == "tf32" else op.a.type.element.primitive_bitwidth
    depth = _DEPTH_BITS // bits
    if not element or op.acc.type.rank != 2 or m < _ROWS or n < _COLUMNS or k < depth:
        return _scalar_product(op, target.warp_size, num_warps)
    if target.has_wgmma and op.a.shape[-1] == k:
        grouped = _warpgroup_warps(m, n, num_warps, chained=chained)
        if grouped is not None:
            return _warpgroup_product(element, depth, (m, n, k), grouped, bits)
    warps = _warps(m, n, num_warps, chained=chained)
    return ProductShape(
        element,
        depth,
        mma_accumulator((m, n), warps),
        mma_operand((m, k), 0, warps, bits),
        mma_operand((k, n), 1, warps, bits),
        warps=warps,
    )


def _warpgroup_warps(m: int, n: int, num_warps: int, *, chained: bool) -> tuple[int, int] | None:
    """Spread warpgroups of 64 rows: along m first, where rows are to stay in a warp or are many."""
    if num_warps % _WARPGROUP or m < _GROUP_ROWS:
        return None
    along_m, along_n = _WARPGROUP, 1
    while along_m * along_n < num_warps:
        fits_m, fits_n = m >= 2 * _WARP_ROWS * along_m, n >= 2 * _LEAST_COLUMNS * along_n
        if fits_m and (chained or m // along_m * _WARPGROUP >= _GROUP_ROWS):
            along_m *= 2
        elif fits_n:
            along_n *= 2
        else:
            return None
    return along_m, along_n


def _warpgroup_product(
    element: str, depth: int, sizes: tuple[int, int, int], warps: tuple[int, int], bits: int
) -> ProductShape:
    m, n, k = sizes
    columns = min(_MOST_COLUMNS, n // warps[1])
    return ProductShape(
        element,
        depth,
        wgmma_accumulator((m, n), warps, columns),
        wgmma_operand((m, k), warps, bits),
        mma_operand((k, n), 1, (1, warps[0] * warps[1]), bits),
        columns,
        warps,
    )


def _matrix_element(op: ops.Dot, target: NvidiaTarget) -> str:
    """The type that a matrix instruction can multiply for this product, or ""."""
    name, sums = dtype(op.a.type.element).name, dtype(op.acc.type.element).name
    if name == "fp32" and op.input_precision != ops.InputPrecision.IEEE:
        name = "tf32" if op.input_precision == ops.InputPrecision.TF32 else ""
    possible = {"fp16": "fp32", "bf16": "fp32", "tf32": "fp32", "i8": "i32", "u8": "i32"}
    return name if name in target.product_types and possible.get(name) == sums else ""


def _warps(m: int, n: int, num_warps: int, *, chained: bool) -> tuple[int, int]:
    """Spread warps so that each has about as many rows as columns."""
    along_m, along_n = 1, 1
    while along_m * along_n < num_warps:
        fits_m, fits_n = m > along_m * _ROWS, n > along_n * _COLUMNS
        taller = m // along_m >= n // along_n
        if chained or (fits_m and (taller or not fits_n)) or not fits_n:
            along_m *= 2
        else:
            along_n *= 2
    return along_m, along_n


def _scalar_product(op: ops.Dot, warp_size: int, num_warps: int) -> ProductShape:
    """Each thread holds a small block, and reads the rows of A and the columns of B it needs."""
    shape = padded(op.acc.shape)
    k = padded(op.a.shape)[-1]
    rank = len(shape)
    m, n = rank - 2, rank - 1
    threads = warp_size * num_warps
    side = 4 if prod(shape) >= 16 * threads else 2 if prod(shape) >= 4 * threads else 1
    sizes, lanes, warps = ([1] * rank for _ in range(3))
    sizes[m] = min(side, shape[m])
    sizes[n] = min(side, shape[n])
    lanes[n] = min(warp_size, max(1, shape[n] // sizes[n]), 8)
    lanes[m] = warp_size // lanes[n]
    warps[m] = num_warps
    order = tuple(reversed(range(rank)))
    accumulator = blocked(shape, sizes, lanes, warps, order)
    names = axis_names(rank)
    a = _along_k(accumulator, names[n], names[n], k)
    b = _along_k(accumulator, names[m], names[m], k)
    return ProductShape("", 1, accumulator, a.transpose_outputs(names), b.transpose_outputs(names))


def _along_k(accumulator: LinearLayout, axis: str, name: str, k: int) -> LinearLayout:
    """An operand: all of k in the registers of each thread, the other axes as in the result."""
    return LinearLayout.identity(k, "register", name) * accumulator.remove_output(axis)
