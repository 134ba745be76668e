"""The register layouts that NVIDIA's matrix instructions read and write.

All fragments are cut from one pattern (PTX ISA, "Matrix Fragments"): the 32 lanes are 8 groups of
4. A group holds one row, and its lanes hold neighbouring pieces of `packed` elements of that row;
what is larger is in further registers. In accumulators and A the row is m; in B it is n, so that
the pieces run along k. Elements narrower than 32 bits fill a register: `packed` is 32 / bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.blocked import fit, spread_warps
from tilewright.layout.linear import LinearLayout

__all__ = ["mma_accumulator", "mma_operand", "wgmma_accumulator", "wgmma_operand"]

_WARPGROUP = 4
_CORE_ROWS = 8


def mma_accumulator(
    shape: Sequence[int], warps_per_block: Sequence[int], *, instruction_rows: int = 16
) -> LinearLayout:
    """Return the accumulator of `mma.sync` m16n8 of any type, or of fp64 m8n8k4 with 8 rows.

    PTX ISA, "Matrix Fragments for mma.m16n8k16": register i of lane l holds row
    l / 4 + 8 (i / 2), column 2 (l mod 4) + i mod 2. For fp64 m8n8k4 there are two registers:

    >>> from tilewright.layout.table import draw
    >>> print(draw(mma_accumulator((8, 8), (1, 1), instruction_rows=8)))  # doctest: +ELLIPSIS
     l0,r0  l0,r1  l1,r0  l1,r1  l2,r0  l2,r1  l3,r0  l3,r1
     l4,r0  l4,r1  l5,r0  l5,r1  l6,r0  l6,r1  l7,r0  l7,r1
    ...
    l28,r0 l28,r1 l29,r0 l29,r1 l30,r0 l30,r1 l31,r0 l31,r1

    Warps are counted along n first; larger tiles repeat the instruction, first along n.
    """
    tile = _fragment(instruction_rows, 8, 2, "dim0", "dim1")
    return fit(spread_warps(tile, warps_per_block, order=(1, 0)), shape)


def mma_operand(
    shape: Sequence[int],
    index: int,
    warps_per_block: Sequence[int],
    element_bits: int,
    *,
    packed: int | None = None,
) -> LinearLayout:
    """Return an operand of `mma.sync`: A (m, k) for index 0, B (k, n) for index 1.

    PTX ISA, "Matrix Fragments for mma.m16n8k8 (tf32) / m16n8k16 (16 bits) / m16n8k32 (8 bits)", and
    "mma.m8n8k4" for fp64. `packed` is the number of neighbours along k in one lane, 32 / bits
    unless given. More of them let loads be wider, if both operands agree: the order of k in a sum
    is free. Register i of lane l, for A of 16 bits: row l / 4 + 8 (i / 2 mod 2), column
    2 (l mod 4) + i mod 2 + 8 (i / 4). For B of fp64:

    >>> from tilewright.layout.table import draw
    >>> print(draw(mma_operand((4, 8), 1, (1, 1), 64)))
    l0 l4  l8 l12 l16 l20 l24 l28
    l1 l5  l9 l13 l17 l21 l25 l29
    l2 l6 l10 l14 l18 l22 l26 l30
    l3 l7 l11 l15 l19 l23 l27 l31

    Warps along the other operand's side hold copies.
    """
    return _operand(shape, index, warps_per_block, element_bits, packed, order=(1, 0))


def wgmma_accumulator(
    shape: Sequence[int], warps_per_block: Sequence[int], instruction_columns: int
) -> LinearLayout:
    """Return the accumulator of `wgmma` m64nNk16 (and k8, k32) with N `instruction_columns`.

    PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix D: the four warps of a
    warpgroup hold 16 rows each, and register i of lane l of warp w holds row
    16 w + l / 4 + 8 (i / 2 mod 2), column 8 (i / 4) + 2 (l mod 4) + i mod 2. The registers of
    warp 0 for columns 0 to 15 (l is the lane that holds columns 0 and 1):

        row l / 4      r0 r1 of lanes l, l+1, l+2, l+3 | r4 r5 of lanes l, l+1, l+2, l+3
        row l / 4 + 8  r2 r3 of lanes l, l+1, l+2, l+3 | r6 r7 of lanes l, l+1, l+2, l+3

    Warps are counted along m first, in multiples of four. With N = 256 and 128 rows to a warpgroup
    the second instruction's registers follow those of the first.
    """
    _check_warpgroups(warps_per_block)
    tile = _fragment(16, instruction_columns, 2, "dim0", "dim1")
    return fit(spread_warps(tile, warps_per_block, order=(0, 1)), shape)


def wgmma_operand(
    shape: Sequence[int],
    warps_per_block: Sequence[int],
    element_bits: int,
    *,
    packed: int | None = None,
) -> LinearLayout:
    """Return the operand A (m, k) of `wgmma` in registers.

    PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix A: 16 rows to a warp, and
    in them as A of `mma.sync`. For 16 bits it is the layout of an accumulator as well, so the
    result of one product is the operand of the next without moving:

    >>> wgmma_operand((64, 32), (4, 1), 16) == wgmma_accumulator((64, 32), (4, 1), 32)
    True
    """
    _check_warpgroups(warps_per_block)
    return _operand(shape, 0, warps_per_block, element_bits, packed, order=(0, 1))


def _check_warpgroups(warps_per_block: Sequence[int]) -> None:
    if warps_per_block[0] % _WARPGROUP:
        raise ValueError(f"wgmma takes four warps along m, not {warps_per_block[0]}")


def _operand(
    shape: Sequence[int],
    index: int,
    warps_per_block: Sequence[int],
    element_bits: int,
    packed: int | None,
    order: Sequence[int],
) -> LinearLayout:
    packed = packed or max(1, 32 // element_bits)
    depth = 4 * packed if element_bits == 64 else 8 * packed
    outer, inner = f"dim{index}", f"dim{1 - index}"
    rows = _CORE_ROWS if index == 1 or element_bits == 64 else 2 * _CORE_ROWS
    tile = _fragment(rows, depth, packed, outer, inner)
    return fit(spread_warps(tile, warps_per_block, order, shared_axis=1 - index), shape)


def _fragment(rows: int, columns: int, packed: int, outer: str, inner: str) -> LinearLayout:
    """Cut a tile of rows along `outer` and columns along `inner` into pieces of `packed`."""
    identity = LinearLayout.identity
    return (
        identity(packed, "register", inner)
        * identity(4, "lane", inner)
        * identity(_CORE_ROWS, "lane", outer)
        * identity(rows // _CORE_ROWS, "register", outer)
        * identity(columns // (4 * packed), "register", inner)
        * LinearLayout.empty(("register", "lane", "warp"))
    )
