"""Storing a tile that lies in shared memory element by element, by all threads, in a loop.

This is for blocks at the ends of arrays, where tensor copies cannot go: its code is small, and no
register is taken for it before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ops
from tilewright.codegen.code import Element, memory_type
from tilewright.codegen.gpu.atomics import Atomics
from tilewright.codegen.gpu.machine import CopyMachine
from tilewright.codegen.gpu.memory import global_address
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared import SHARED
from tilewright.codegen.gpu.shared_tile import SharedTile, TileMemory
from tilewright.codegen.gpu.threads import linear_function
from tilewright.codegen.gpu.words import load_words, to_words, word_size
from tilewright.ir.types import TileType

__all__ = ["ElementStores"]

Written = ops.DescriptorStore | ops.DescriptorReduce


class ElementStores:
    """Writes such loops."""

    def __init__(self, puller: Puller, machine: CopyMachine, atomics: Atomics) -> None:
        self.puller, self.machine, self.atomics = puller, machine, atomics
        self.code = puller.code

    def write(self, op: Written, tile: SharedTile) -> None:
        """Let each thread store every so many elements of a tile, the next thread the next one."""
        code, memory = self.code, tile.memory
        count = 1 << memory.layout.output_bits
        threads = self.puller.placement.num_warps * self.machine.warp_size
        # Else LLVM computes parts of this before the loops around, and keeps them in registers.
        thread = self.machine.thread_number_anew()
        with code.counted_loop("0", str(count), str(threads)) as first:
            number = code.assign(f"add i32 {first}, {thread}")
            place = linear_function(code, number, _offsets(memory))
            address = code.assign(f"getelementptr i8, {SHARED} {tile.start}, i32 {place}")
            (value,) = load_words(code, address, op.element, 1, SHARED)
            target, flag = self._target(op, number)
            if threads > count:
                own = code.assign(f"icmp ult i32 {number}, {count}")
                flag = code.assign(f"and i1 {flag}, {own}")
            if isinstance(op, ops.DescriptorReduce):
                one = ops.Full(0, TileType(op.element))
                update = ops.AtomicRmw(op.kind, op.base, one, sem="relaxed")
                self.atomics.combine(update, target, value, Element(flag, 1, code.level))
            else:
                bits = word_size(op.element.primitive_bitwidth)
                words = to_words(code, [value], op.element, bits)
                self.machine.masked_store(global_address(self.puller, target), flag, bits, words)
        self.machine.fence_async_proxy(everywhere=True)

    def _target(self, op: Written, number: str) -> tuple[Element, str]:
        """Where an element of the tile, by its number in rows, belongs, and whether that exists."""
        code, scalar = self.code, self.puller.scalar
        index, inside, shift = "0", "true", 0
        strides = (*(scalar(stride).text for stride in op.strides), "1")
        for axis in reversed(range(len(op.block_shape))):
            extent = op.block_shape[axis]
            moved = code.assign(f"lshr i32 {number}, {shift}")
            coordinate = code.assign(f"and i32 {moved}, {extent - 1}")
            shift += extent.bit_length() - 1
            place = code.assign(f"add i32 {coordinate}, {scalar(op.offsets[axis]).text}")
            # A place below 0 is a large number.
            exists = code.assign(f"icmp ult i32 {place}, {scalar(op.sizes[axis]).text}")
            inside = code.assign(f"and i1 {inside}, {exists}")
            distance = code.assign(f"sext i32 {place} to i64")
            distance = code.assign(f"mul i64 {distance}, {strides[axis]}")
            index = code.assign(f"add i64 {index}, {distance}")
        base = scalar(op.base).text
        text = code.assign(f"getelementptr {memory_type(op.element)}, ptr {base}, i64 {index}")
        return Element(text, 1, code.level), inside


def _offsets(memory: TileMemory) -> Sequence[int]:
    """What each bit of an element's number in rows adds to its offset in shared memory."""
    sizes = [d.size for d in memory.layout.outputs]
    columns = []
    for axis in reversed(range(len(sizes))):
        for bit in range(sizes[axis].bit_length() - 1):
            place = [0] * len(sizes)
            place[axis] = 1 << bit
            columns.append(memory.offset_bytes(*place))
    return columns
