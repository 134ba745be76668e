"""The register layouts that AMD's matrix instructions write.

Sources: the "Matrix Register Layout" sections of the CDNA3 and RDNA3/RDNA4 instruction set
manuals, and AMD's matrix instruction calculator.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.blocked import fit, spread_warps
from tilewright.layout.linear import LinearLayout

__all__ = ["mfma_accumulator", "wmma_accumulator"]


def mfma_accumulator(
    shape: Sequence[int], warps_per_block: Sequence[int], size: int, *, transposed: bool = False
) -> LinearLayout:
    """Return the accumulator of MFMA 16x16 or 32x32 (`size`), of a wave of 64 lanes.

    A lane holds four rows of one column. For 16x16, register i of lane l is row 4 (l / 16) + i,
    column l mod 16. For 32x32 it is row 8 (i / 4) + 4 (l / 32) + i mod 4, column l mod 32:

                     columns 0 … 31
        rows 0-3     r0-r3   of lanes 0 … 31
        rows 4-7     r0-r3   of lanes 32 … 63
        rows 8-11    r4-r7   of lanes 0 … 31, and so on

    `transposed` exchanges rows and columns (the operands are passed in the other order), so that a
    lane holds four neighbours of a row.
    """
    if size not in {16, 32}:
        raise ValueError(f"MFMA has accumulators of 16x16 and 32x32, not {size}x{size}")
    rows, columns = ("dim1", "dim0") if transposed else ("dim0", "dim1")
    identity = LinearLayout.identity
    tile = (
        identity(4, "register", rows)
        * identity(size, "lane", columns)
        * identity(64 // size, "lane", rows)
        * identity(size * size // 256, "register", rows)
    )
    return fit(spread_warps(tile, warps_per_block, order=(1, 0)), shape)


def wmma_accumulator(
    shape: Sequence[int], warps_per_block: Sequence[int], *, is_interleaved: bool
) -> LinearLayout:
    """Return the 16x16 accumulator of WMMA, of a wave of 32 lanes.

    A lane holds eight rows of column l mod 16. On gfx11 the rows of the two halves of the wave are
    interleaved: register i of lane l is row 2 i + l / 16. On gfx12 they are not: row
    i + 8 (l / 16).

        is_interleaved  row 0: r0 of lanes 0 … 15, row 1: r0 of lanes 16 … 31, row 2: r1 of …
        otherwise       row 0: r0 of lanes 0 … 15, row 1: r1 of lanes 0 … 15, row 8: r0 of …
    """
    columns = LinearLayout.identity(16, "lane", "dim1")
    registers = LinearLayout.identity(8, "register", "dim0")
    halves = LinearLayout.identity(2, "lane", "dim0")
    tile = columns * halves * registers if is_interleaved else registers * columns * halves
    ordered = tile.transpose_inputs(["register", "lane"])
    return fit(spread_warps(ordered, warps_per_block, order=(1, 0)), shape)
