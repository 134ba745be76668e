"""What descriptors mean, in NumPy: blocks of an array that may reach beyond its ends."""

import itertools

import numpy as np


def load_block(array, offsets, block_shape, outside=0):
    """The block at `offsets`, with `outside` in place of elements that the array has not."""
    block = np.full(block_shape, outside, array.dtype)
    for place in itertools.product(*map(range, block_shape)):
        index = tuple(int(o) + p for o, p in zip(offsets, place, strict=True))
        if all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            block[place] = array[index]
    return block


def store_block(array, offsets, block, combine=lambda old, new: new):
    """Combine the elements that the array has at `offsets` with those of a block."""
    for place in itertools.product(*map(range, block.shape)):
        index = tuple(int(o) + p for o, p in zip(offsets, place, strict=True))
        if all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            array[index] = combine(array[index], block[place])
