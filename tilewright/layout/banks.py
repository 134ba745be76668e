"""Bank conflicts in shared memory: 32 banks of 4 bytes, each of which serves one word at a time.

An access of a warp is served in phases: all 32 lanes at once while each moves up to 4 bytes, 16 for
8 bytes, 8 for 16 bytes (CUDA C++ Programming Guide, "Shared Memory"). Lanes that touch the same
word are served together, whichever of its bytes they read or write.
"""

from __future__ import annotations

from tilewright.layout.f2 import Echelon, log2
from tilewright.layout.linear import LinearLayout

__all__ = ["BANK_ROW_BYTES", "bank_conflicts", "phase_lane_bits"]

BANK_ROW_BYTES = 128
_BANKS = 32
_WORD_BITS = 32


def phase_lane_bits(vector_bytes: int) -> int:
    """Return how many bits of the lane are served in one phase."""
    return min(5, log2(BANK_ROW_BYTES) - log2(vector_bytes))


def bank_conflicts(layout: LinearLayout, element_bits: int, vector_bytes: int) -> int:
    """Return how often a phase is repeated because a bank is asked for several words: 0 is best.

    `layout` maps lane (and whatever else) to `offset`, in elements; each lane moves `vector_bytes`
    from there on. The words of a phase, and their banks, are images of linear maps, so each bank
    is asked for equally many words, in every phase and for every register and warp alike.

    >>> column = LinearLayout.identity(32, "lane", "row").compose(
    ...     LinearLayout.from_bases(
    ...         {"row": [(32,), (64,), (128,), (256,), (512,)]}, {"offset": 1024}
    ...     )
    ... )
    >>> bank_conflicts(column, element_bits=32, vector_bytes=4)
    31
    """
    lanes = layout.sublayout(["lane"], ["offset"]).columns[: phase_lane_bits(vector_bytes)]
    words = [1 << bit for bit in range(log2(max(1, vector_bytes * 8 // _WORD_BITS)))]
    words += [lane * element_bits // _WORD_BITS for lane in lanes]
    banks = Echelon(word % _BANKS for word in words)
    return (1 << Echelon(words).rank - banks.rank) - 1
