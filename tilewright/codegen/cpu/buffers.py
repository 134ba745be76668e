"""Tiles that live in the thread's scratch memory, and the layout of that memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.code import memory_type
from tilewright.ir.core import Value
from tilewright.ir.types import TileType

__all__ = ["CACHE_LINE_BYTES", "PAGE_BYTES", "Arena", "Buffer"]

CACHE_LINE_BYTES = 64
PAGE_BYTES = 4096
_PAGE_LINES = PAGE_BYTES // CACHE_LINE_BYTES
_STAGGER_LINES = 17


@dataclass(eq=False)
class Buffer:
    """A tile in scratch memory: `strides` count elements, `offset` bytes from its start."""

    type: TileType
    strides: tuple[int, ...]
    offset: int = -1

    @property
    def itemsize(self) -> int:
        return self.type.element.itemsize

    @property
    def size_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        span = sum((n - 1) * s for n, s in zip(self.type.shape, self.strides, strict=True))
        return (span + 1) * self.itemsize

    @property
    def memory_type(self) -> str:
        return memory_type(self.type.element)

    @classmethod
    def for_value(cls, value: Value, order: tuple[int, ...] | None = None, pad: int = 0) -> Buffer:
        """Lay out a tile with the axes in `order`, slowest first; rows get `pad` elements more."""
        shape = value.shape
        strides = [0] * len(shape)
        stride = 1
        for position, axis in enumerate(reversed(order or range(len(shape)))):
            strides[axis] = stride
            stride = stride * shape[axis] + (pad if position == 0 else 0)
        return cls(value.type, tuple(strides))


class Arena:
    """Hands out places in the scratch memory of a thread."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def place(self, buffer: Buffer) -> None:
        """Give the buffer an offset unless it has one."""
        if buffer.offset < 0:
            buffer.offset = self.reserve(buffer.size_bytes)

    def reserve(self, size_bytes: int) -> int:
        """Return the offset of a fresh range, with a line to spare so that vectors may overread.

        Tiles of pages start at different places of a page: where the same element of each is read
        and written in turn, a load must not look like one of what was just stored.
        """
        offset = self.size_bytes
        lines = -(-size_bytes // CACHE_LINE_BYTES) + 1
        if lines > _PAGE_LINES:
            lines += (_STAGGER_LINES - lines) % _PAGE_LINES
        self.size_bytes += lines * CACHE_LINE_BYTES
        return offset
