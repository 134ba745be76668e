"""Operands of products that are put into shared memory, from where the products read them."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.gpu.pairs import Pairs
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared_tile import SharedTile, put_in_shared
from tilewright.ir.core import Value

__all__ = ["matrix_of", "operand_elements", "put_operand", "tile_of_matrix"]

_PAIRED_BYTES = 2  # of an element, two of which are computed in a word


def matrix_of(value: Value) -> Value:
    """Return what a matrix is, or is the transpose of."""
    while isinstance(value, ops.Hint) or (isinstance(value, ops.Permute) and value.order == (1, 0)):
        value = value.x
    return value


def tile_of_matrix(value: Value, tile: SharedTile) -> SharedTile:
    """Return the tile of what a value is, or is the transpose of."""
    while value is not matrix_of(value):
        assert isinstance(value, ops.Hint | ops.Permute)
        tile = tile.transposed() if isinstance(value, ops.Permute) else tile
        value = value.x
    return tile


def operand_elements(puller: Puller, value: Value) -> list[str]:
    """Return the elements of all registers of the layout in which a tile is best computed."""
    source = puller.placement.of_elements(value)
    if value.type.element.itemsize == _PAIRED_BYTES:
        return Pairs(puller).elements(value, source)
    return [e.text for e in puller.pull_all(value, source)]


def put_operand(
    puller: Puller, value: Value, tile: SharedTile, axis: int = 0, start: int = 0
) -> None:
    """Write a tile to shared memory; other threads see it behind a barrier.

    Where there is only room for a part along an axis, it is the one that begins at `start`.
    """
    source = puller.placement.of_elements(value)
    texts = operand_elements(puller, value)
    put_in_shared(puller, texts, value.type.element, source, tile, axis, start)
