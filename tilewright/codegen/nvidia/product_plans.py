"""The plan of a product: by which instruction, and where its operands and its result lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright import ops
from tilewright.codegen.code import dtype
from tilewright.codegen.gpu.element_products import element_product
from tilewright.codegen.gpu.products import ProductPlan
from tilewright.codegen.gpu.views import cut, padded
from tilewright.layout import LinearLayout
from tilewright.layout.blocked import axis_names
from tilewright.layout.nvidia import (
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand,
)
from tilewright.target import NvidiaTarget

__all__ = ["MatrixProduct", "WarpProduct", "WarpgroupProduct", "WholeTiles", "product_of"]

_COLUMNS = 8  # of the accumulator of mma.sync
_DEPTH_BITS = 256  # along k, an instruction takes 32 bytes; of fp64, four numbers
_WARPGROUP, _GROUP_ROWS, _WARP_ROWS = 4, 64, 16  # of `wgmma`: warps, and rows of the accumulator
_LEAST_COLUMNS, _MOST_COLUMNS = 16, 256
_REGISTERS, _WARP_SIZE = 1 << 16, 32  # of a multiprocessor; an instruction has columns / 2 sums
_OTHER_REGISTERS = 32
_BITS = {
    "fp16": 16, "bf16": 16, "tf32": 32, "fp64": 64, "i8": 8, "u8": 8, "fp8e4nv": 8, "fp8e5": 8,
}  # fmt: skip
# What fp32 operands become: the type that is multiplied, and how many of its numbers each is.
_FROM_FP32 = {
    ops.InputPrecision.TF32: ("tf32", 1),
    ops.InputPrecision.TF32X3: ("tf32", 2),
    ops.InputPrecision.BF16X3: ("bf16", 2),
    ops.InputPrecision.BF16X6: ("bf16", 3),
}


@dataclass(frozen=True)
class WholeTiles:
    """The layouts of tiles of whole instructions of one warp, each of `rows` rows.

    A tile of the kernel may be smaller; its own layouts then have copies. Each number of an operand
    is the sum of `pieces` numbers of the type that is multiplied.
    """

    rows: int
    pieces: int
    accumulator: LinearLayout
    a: LinearLayout
    b: LinearLayout


@dataclass(frozen=True)
class MatrixProduct(ProductPlan):
    """A product by matrix instructions.

    `element` names the type that they multiply, `depth` is the number of elements along k that one
    takes.
    """

    element: str
    depth: int


@dataclass(frozen=True)
class WarpProduct(MatrixProduct):
    """A product by instructions of one warp each, on the tiles `whole`."""

    whole: WholeTiles


@dataclass(frozen=True)
class WarpgroupProduct(MatrixProduct):
    """A product by instructions of four warps, which read B from shared memory.

    Each has so many `columns`. `warps` are those along m and n.
    """

    columns: int
    warps: tuple[int, int]

    @property
    def runs_on(self) -> bool:
        return True


def product_of(
    op: ops.Dot, target: NvidiaTarget, num_warps: int, *, chained: bool, deep: bool
) -> ProductPlan:
    """Return how a product is computed on `num_warps` warps.

    `chained` products keep whole rows in a warp, so that a row that one leaves is what the next
    one takes. The operand B of `deep` ones is loaded along k.
    """
    element, pieces = _matrix_element(op, target)
    if not element:
        return element_product(op, target.warp_size, num_warps, chained=chained, deep=deep)
    if pieces == 1 and target.has_wgmma:
        grouped = _warpgroup_product(op, element, num_warps, chained=chained)
        if grouped is not None:
            return grouped
    return _warp_product(op, element, pieces, num_warps, chained=chained)


def _warp_product(
    op: ops.Dot, element: str, pieces: int, num_warps: int, *, chained: bool
) -> WarpProduct:
    *batch, m, k = padded(op.a.shape)
    n = padded(op.b.shape)[-1]
    bits = _BITS[element]
    rows, depth = (8, 4) if bits == 64 else (16, _DEPTH_BITS // bits)
    m, n, k = max(m, rows), max(n, _COLUMNS), max(k, depth)
    batch_warps = min(num_warps, prod(batch))
    warps = _warps(m, n, rows, num_warps // batch_warps, chained=chained)
    accumulator = mma_accumulator((m, n), warps, instruction_rows=rows)
    operands = (mma_operand((m, k), 0, warps, bits), mma_operand((k, n), 1, warps, bits))
    accumulator, a, b = (_repeated(x, batch, batch_warps) for x in (accumulator, *operands))
    return WarpProduct(
        cut(accumulator, padded(op.acc.shape)),
        cut(a, padded(op.a.shape)),
        cut(b, padded(op.b.shape)),
        element,
        depth,
        WholeTiles(rows, pieces, accumulator, a, b),
    )


def _warpgroup_product(
    op: ops.Dot, element: str, num_warps: int, *, chained: bool
) -> WarpgroupProduct | None:
    """Return a product by `wgmma`, where it has tiles of that size and the types are alike."""
    m, k = padded(op.a.shape)[-2:]
    n = padded(op.b.shape)[-1]
    bits = _BITS[element]
    depth = _DEPTH_BITS // bits
    fits = op.acc.type.rank == 2 and n >= _LEAST_COLUMNS and k >= depth and op.a.shape[-1] == k
    warps = _warpgroup_warps(m, n, num_warps, chained=chained)
    if not fits or warps is None or not _is_plain(op):
        return None
    columns = min(_MOST_COLUMNS, n // warps[1])
    while columns // 2 + _OTHER_REGISTERS > _REGISTERS // (_WARP_SIZE * num_warps):
        columns //= 2  # ptxas refuses an instruction whose sums are more than a thread has
    return WarpgroupProduct(
        wgmma_accumulator((m, n), warps, columns),
        wgmma_operand((m, k), warps, bits),
        mma_operand((k, n), 1, (1, warps[0] * warps[1]), bits),
        element,
        depth,
        columns,
        warps,
    )


def _is_plain(op: ops.Dot) -> bool:
    """Whether the operands are of one type, and sums of 32 bits are never moved on the way."""
    is_moved = 0 < op.max_num_imprecise_acc < op.a.shape[-1]
    narrow = dtype(op.a.type.element).is_fp8() and is_moved
    is_one_type = op.a.type.element == op.b.type.element
    return is_one_type and op.acc.type.element.primitive_bitwidth == 32 and not narrow


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


def _matrix_element(op: ops.Dot, target: NvidiaTarget) -> tuple[str, int]:
    """Return the type that a matrix instruction multiplies, "" for none, and of how many pieces."""
    name, pieces = dtype(op.a.type.element).short_name, 1
    if name == "fp32":
        name, pieces = _FROM_FP32.get(op.input_precision, ("", 1))
    possible = {
        name,
        dtype(op.b.type.element).short_name if pieces == 1 and name != "tf32" else name,
    }
    return (name, pieces) if possible <= target.product_types else ("", 1)


def _repeated(matrix: LinearLayout, batch: Sequence[int], warps: int) -> LinearLayout:
    """Return the layout of a batch of matrices, the last of them spread over `warps`."""
    rank = len(batch) + 2
    names = axis_names(rank)
    layout = matrix.rename({"dim0": names[-2], "dim1": names[-1]})
    for axis in reversed(range(rank - 2)):
        spread = min(warps, batch[axis])
        warps //= spread
        layout *= LinearLayout.identity(spread, "warp", names[axis])
        layout *= LinearLayout.identity(batch[axis] // spread, "register", names[axis])
    return layout.transpose_outputs(names)


def _warps(m: int, n: int, rows: int, num_warps: int, *, chained: bool) -> tuple[int, int]:
    """Spread warps so that each has about as many rows as columns.

    `chained` ones go along the rows as far as there are any; warps that are left share the columns,
    as copies would multiply the work.
    """
    along_m, along_n = 1, 1
    while along_m * along_n < num_warps:
        fits_m, fits_n = m > along_m * rows, n > along_n * _COLUMNS
        taller = m // along_m >= n // along_n
        if (fits_m and (chained or taller)) or not fits_n:
            along_m *= 2
        else:
            along_n *= 2
    return along_m, along_n
