"""What the machine code of the launcher finds where: its program, its `self` and its table."""

from __future__ import annotations

import enum

from tilewright.ops.descriptor import MAX_DESCRIPTOR_RANK

__all__ = [
    "ENTRIES_PER_DTYPE",
    "MOST_PARTS",
    "RECORD_WORDS",
    "CpuHead",
    "DescriptorField",
    "GpuHead",
    "Head",
    "Kind",
    "MapField",
    "Self",
    "Table",
]

RECORD_WORDS = 8

# For each element type two dtypes of NumPy, since C has two 64-bit integer types, and PyTorch's.
# For GPUs the first entry is no address: the number that PyTorch's C interface has for it.
ENTRIES_PER_DTYPE = 3

# Of a tensor descriptor: the array, three sequences, two options.
MOST_PARTS = 1 + 3 * MAX_DESCRIPTOR_RANK + 2


class Self(enum.IntEnum):
    """The first items of a launcher's `self`; the objects that it compares with follow."""

    PROGRAM = 0
    RAISE = 1


class Head(enum.IntEnum):
    """The words that a program begins with; those of the kind of device follow."""

    COUNT = 0  # of the arguments, with the three sizes of the grid
    SLOTS = 1  # how many values are passed on, at least 1
    SEQUENCES = 2  # how many there are to take values from: the arguments, tuples, descriptors


class CpuHead(enum.IntEnum):
    """The words of the head that only the CPU needs."""

    KERNEL = 3
    SCRATCH_BYTES = 4


class GpuHead(enum.IntEnum):
    """The words of the head that only a GPU needs."""

    FUNCTION = 3
    CONTEXT = 4
    PLACE = 5  # where arrays must be, as DLPack writes it: the kind of device, then its number
    THREADS = 6
    SHARED_BYTES = 7
    ATTRIBUTES = 8  # the address of launch attributes of the driver
    ATTRIBUTE_COUNT = 9
    NUMBER = 10  # of the kernel, in the history of launches
    MAPS = 11  # the address of what tensor maps are made of, see `MapField`
    MAP_COUNT = 12
    PASSED = 13  # the address of what the kernel takes: for each, two numbers of 4 bytes, the
    PASSED_COUNT = 14  # offsets of its slot and of its place among the packed parameters
    PACKED_BYTES = 15  # of all packed parameters, tensor maps among them
    MAPS_OFFSET = 16  # where these begin there


class Table(enum.IntEnum):
    """The first entries of the table; those of the element types follow."""

    LAUNCH = 0
    NDARRAY = 1
    TENSOR = 2
    PARAMETER = 3
    DATA_PTR = 4
    DTYPE = 5
    ONE_DIGIT = 6  # no address: what stands at 16 in an int from 1 to 2**30 - 1, its value at 24
    DESCRIPTOR = 7
    SHAPE = 8  # the type of the shapes of PyTorch's tensors
    TENSOR_OFFSET = 9  # no address, nor are the next two: where a tensor has its `at::Tensor`
    KEYS_OFFSET = 10  # where the object that this points to has the keys of the tensor
    UNUSUAL_KEYS = 11  # those that no tensor has whose memory is just its elements, on this device
    GET_NUMEL = 12  # of PyTorch's C interface; 0 where there is none
    GET_DATA = 13  # the same for GPUs only, as all from here on
    GET_TENSOR_DTYPE = 14
    GET_DEVICE_INDEX = 15
    GET_CONTEXT = 16
    SET_CONTEXT = 17
    VIEW_TENSOR = 18
    CURRENT_STREAM = 19
    HISTORY = 20
    ENCODE_TENSOR_MAP = 21
    LAUNCH_WITH_ATTRIBUTES = 22


class Kind(enum.IntEnum):
    """What a record checks, and what stands in its words from the second on.

    A whole number `n` is accepted where, in the arithmetic of u64, `n - low <= span`,
    `n - excluded >= count` and `(n & mask == 0) == is_zero`; the last two hold for addresses too.

    Types of tuples are in `self`, as other objects are. The last word of a record, which no kind
    needs, says where its value is: the number of a sequence in the low half, that of an item of it
    in the high one.
    """

    ARRAY = 0  # flags (DLPack's dtype), offset in the table, excluded, count, mask, is_zero
    INTEGER = 1  # low, span, excluded, count, mask, is_zero
    UNSIGNED = 2  # the same
    SINGLE = 3
    DOUBLE = 4
    BOOLEAN = 5
    OBJECT = 6  # offset in `self` of an object that is the argument or equals it
    FLOAT = 7  # the bits
    CONSTANTS = 8  # a tuple of them: the number of items, whose records follow; offset of the type
    DESCRIPTOR = 9  # the number of axes, and of the sequence that its parts become
    TUPLE = 10  # the number of items, and of the sequence that they become; offset of the type
    END = 11  # there are no more


class DescriptorField(enum.IntEnum):
    """Where in a tensor descriptor its fields are: Python sorts slots by their names."""

    BASE = 16
    BLOCK_SHAPE = 24
    PADDING = 32
    ROUND_F32_TO_TF32 = 40
    SHAPE = 48
    STRIDES = 56


class MapField(enum.IntEnum):
    """Offsets of what a tensor map is made of.

    Terms are four words: three slots and a shift, of 4 bytes each, a factor and a scale. A value is
    `(block[slot] * ... * factor << shift >> shift) * scale`; slots below 0 are none.
    """

    COUNT = 0  # of the terms: the address, the sizes and the strides
    ELEMENT = 8  # numbers of 4 bytes, here and below
    RANK = 12
    SWIZZLE = 16
    PROMOTION = 20
    FILL = 24
    BOX = 32  # one for each axis
    STEPS = 56
    TERMS = 80
    KEPT = 448  # the maps made last
