"""Functions on scalars, applied to tiles."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic import mapping

__all__ = ["map_elementwise"]


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1) -> Any:
    """Return the tile (or tiles) that `scalar_fn` makes of each element of `args`.

    `args` are tiles and numbers that broadcast against each other. `scalar_fn`, a function of the
    language, takes a scalar of each and returns one scalar or several; each element takes its own
    way through its branches and loops, so only one side of an `if` is computed. It may not load,
    store or print. With `pack`, a power of two, it is given that many neighbours at once: all of
    the first argument, then of the second, ..., and returns as many of each result.

    >>> tl.map_elementwise(tl.maximum, tl.arange(0, 4), 2)
    tensor([2, 2, 2, 3], i32[4])
    """
    return mapping.map_elementwise(scalar_fn, args, pack)
