"""What hosts and, on compile-time values, kernels may call: plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilewright.language as tl

__all__ = ["cdiv", "next_power_of_2", "set_allocator"]


def cdiv(x: Any, y: Any) -> Any:
    """Return `x / y` rounded up, also for negative numbers; in a kernel also of tiles.

    >>> cdiv(1000, 256), cdiv(-36, 5)
    (4, -7)
    """
    if type(x) is int and type(y) is int:
        return -(-x // y)
    return tl.cdiv(x, y)


def next_power_of_2(n: Any) -> int:
    """Return the smallest power of two that is at least `n`; 0 for 0 and below.

    >>> next_power_of_2(1000), next_power_of_2(1024), next_power_of_2(0)
    (1024, 1024, 0)
    """
    number = int(n)
    return 1 << (number - 1).bit_length() if number > 0 else 0


def set_allocator(allocator: Callable[[int, int, int | None], Any]) -> None:
    """Accept what Triton's descriptors get memory from; here they need none, so it is not called.

    >>> set_allocator(lambda size, alignment, stream: bytearray(size))
    """
    if not callable(allocator):
        raise TypeError(f"set_allocator takes a function, not {type(allocator).__name__}")
