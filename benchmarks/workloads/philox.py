"""The generator behind `tl.rand`, in torch: Salmon et al., "Parallel random numbers", 2011."""

from __future__ import annotations

from typing import Any

__all__ = ["uniform"]

ROUNDS = 10
LOW = 0xFFFFFFFF
FACTORS = 0xD2511F53, 0xCD9E8D57
STEPS = 0x9E3779B9, 0xBB67AE85  # of the two halves of the key, each round


def uniform(seed: int, offsets: Any) -> Any:
    """Numbers in [0, 1) by Philox 4x32: the first word of each counter `offsets`, as fp32."""
    c0, c1, c2, c3 = offsets & LOW, 0 * offsets, 0 * offsets, 0 * offsets
    keys = [seed & LOW, seed >> 32]
    for _ in range(ROUNDS):
        high0, low0 = multiply(FACTORS[0], c0)
        high1, low1 = multiply(FACTORS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ keys[0], low1, high0 ^ c3 ^ keys[1], low0
        keys = [(key + step) & LOW for key, step in zip(keys, STEPS, strict=True)]
    folded = c0.where(c0 < 1 << 31, LOW - c0)
    return folded.float() * 4.6566127342e-10


def multiply(factor: int, x: Any) -> tuple[Any, Any]:
    """High and low half of a product of 32-bit numbers, held in 64 bits with a sign."""
    upper, lower = x >> 16, x & 0xFFFF
    middle = factor * upper + (factor * lower >> 16)
    return middle >> 16, (middle << 16 | factor * lower & 0xFFFF) & LOW
