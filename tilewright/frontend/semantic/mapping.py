"""Functions on scalars, applied to every element of tiles."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic.regions import element_block
from tilewright.frontend.semantic.shapes import broadcast_tensors, reshape, split
from tilewright.frontend.semantic.values import as_tensor, fail, to_constant
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import TileType
from tilewright.ops import Join, MapElements

__all__ = ["map_elementwise"]

_NAME = "map_elementwise"


def map_elementwise(function: Any, args: tuple[Any, ...], pack: Any) -> Any:
    """Return what a function on scalars makes of each element, or of `pack` neighbours at once."""
    count = to_constant(pack, f"{_NAME}: pack")
    if not args:
        fail(
            f"{_NAME}: there are no tiles to map the function over",
            hint="pass the tiles behind the function",
        )
    tensors = broadcast_tensors(_NAME, *(as_tensor(x, f"{_NAME}: each argument") for x in args))
    shape, size = tensors[0].shape, tensors[0].numel
    if count < 1 or count & (count - 1) or size % count:
        fail(
            f"{_NAME}: pack must be a power of two that divides the {size} elements, got {count}",
            hint="leave it out for 1",
        )
    inputs = tuple(part for x in tensors for part in _parts(x, count))
    block = element_block(_NAME, function, [TileType(x.dtype) for x in inputs])
    if len(block.yields) % count:
        fail(
            f"{_NAME}: the function returns {len(block.yields)} scalars for {count} elements",
            "it must return one of each result for every element: all of the first, then of the "
            "second, ...",
        )
    mapped = emit_all(MapElements, inputs, block)
    results = tuple(
        reshape(_joined(mapped[start : start + count]), shape)
        for start in range(0, len(mapped), count)
    )
    return results[0] if len(results) == 1 else results


def _parts(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return tiles of every `count`-th element, from the first, the second, ... on."""
    if count == 1:
        return (x if x.shape else reshape(x, (1,)),)
    halves = split(reshape(x, (x.numel // 2, 2)))
    # Of the even and the odd elements, each in turn: 0 2 | 1 3 becomes 0 1 2 3.
    nested = [_parts(half, count // 2) for half in halves]
    return tuple(part for pair in zip(*nested, strict=True) for part in pair)


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    """Return what `_parts` was given, flat."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _joined(parts[::2]), _joined(parts[1::2])
    return reshape(emit(Join, even, odd), (2 * even.numel,))
