"""Layouts of tiles in shared memory: offset (counted in elements) -> coordinates.

A register layout finds its elements in memory with `registers.relative_to(memory)`, which maps
register, lane and warp to the offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.blocked import axis_names
from tilewright.layout.f2 import log2
from tilewright.layout.linear import LinearLayout

__all__ = ["nvmma_alignment", "nvmma_shared", "swizzled"]

_PIECE_BYTES = 16
_ROWS = 8


def swizzled(
    shape: Sequence[int], vector: int, per_phase: int, max_phase: int, order: Sequence[int]
) -> LinearLayout:
    """Return a row-major tile whose pieces of `vector` elements are exchanged within each row.

    `order` lists the axes, the contiguous one in front. Row r, column c lies at column
    c ^ (vector ((r / per_phase) mod max_phase)) of the row; further axes are not swizzled. With
    vector 1, per_phase 1 and max_phase 4 on a 4x4 tile:

    >>> from tilewright.layout.table import draw
    >>> print(draw(swizzled((4, 4), 1, 1, 4, (1, 0))))
     0  1  2  3
     5  4  7  6
    10 11  8  9
    15 14 13 12
    """
    names = axis_names(len(shape))
    inner = order[0]
    bases = []
    for axis in order:
        for step in (1 << bit for bit in range(log2(shape[axis]))):
            basis = dict.fromkeys(names, 0) | {f"dim{axis}": step}
            if len(order) > 1 and axis == order[1]:
                exchanged = vector * (step // per_phase % max_phase)
                basis[f"dim{inner}"] = exchanged % shape[inner]
            bases.append(tuple(basis.values()))
    return LinearLayout.from_bases({"offset": bases}, dict(zip(names, shape, strict=True)))


def nvmma_shared(
    shape: Sequence[int], element_bits: int, swizzle_bytes: int, *, transposed: bool = False
) -> LinearLayout:
    """Return a tile as TMA writes it and `wgmma` reads it, swizzled by 32, 64 or 128 bytes.

    PTX ISA, "Shared Memory Matrix Layout" and "Swizzling Modes" of tensor copies. The tile is cut
    into chunks of `swizzle_bytes` along the contiguous axis (dim1, or dim0 if `transposed`). A
    chunk holds all rows, `swizzle_bytes` apart, and chunks follow one another. In it the pieces of
    16 bytes are exchanged so that address bits 4, 5, 6 (4, 5 for 64 bytes, 4 for 32) are xored
    with bits 7, 8, 9. Pieces of rows 0 to 7 for 64 bytes, two rows to 128 bytes:

        rows 0, 1   0 1 2 3 | 0 1 2 3
        rows 2, 3   1 0 3 2 | 1 0 3 2
        rows 4, 5   2 3 0 1 | 2 3 0 1
        rows 6, 7   3 2 1 0 | 3 2 1 0

    The memory must be aligned as `nvmma_alignment` says.
    """
    strided, inner = ("dim1", "dim0") if transposed else ("dim0", "dim1")
    rows, columns = (shape[1], shape[0]) if transposed else (shape[0], shape[1])
    chunk = swizzle_bytes * 8 // element_bits
    if swizzle_bytes not in {32, 64, 128} or rows < _ROWS or columns % chunk:
        raise ValueError(
            f"a swizzle of {swizzle_bytes} bytes needs at least {_ROWS} rows, and columns in "
            f"multiples of {chunk}: not {rows} x {columns}"
        )
    piece = _PIECE_BYTES * 8 // element_bits
    core = swizzled((_ROWS, chunk), piece, 128 // swizzle_bytes, swizzle_bytes // 16, (1, 0))
    return (
        core.rename({"dim0": strided, "dim1": inner}).transpose_outputs(["dim0", "dim1"])
        * LinearLayout.identity(rows // _ROWS, "offset", strided)
        * LinearLayout.identity(columns // chunk, "offset", inner)
    )


def nvmma_alignment(swizzle_bytes: int) -> int:
    """Return the alignment in bytes of such a tile: the size of the pattern of the swizzle."""
    return _ROWS * swizzle_bytes
