"""Kernels that move blocks through descriptors, and where: for emulated GPUs and real ones."""

import ml_dtypes
import numpy as np

import tilewright as tw
import tilewright.language as tl

DTYPES = {
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16)},
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (32, 64)},
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}

# For each number of axes: the array, the block, and where it is taken from: inside, and across the
# ends. Rows begin at multiples of 16 bytes.
PLACES = {
    1: ((100,), (32,), [(16,), (-16,), (96,), (128,)]),
    2: ((13, 50), (8, 32), [(0, 0), (-3, 32), (9, -16), (40, 0)]),
    3: ((5, 6, 40), (2, 4, 16), [(1, 2, 16), (-1, 3, 32), (4, -2, -16)]),
    4: ((3, 4, 5, 20), (2, 1, 4, 16), [(0, 0, 0, 0), (2, 3, -1, 16)]),
    5: ((2, 3, 4, 3, 33), (2, 2, 1, 2, 32), [(0, 0, 0, 0, 0), (1, 2, -1, 1, 16)]),
}


@tw.jit
def move(x, y, FROM: tl.constexpr, TO: tl.constexpr):
    """Bring the block of x at FROM to TO in y."""
    y.store(TO, x.load(FROM))


@tw.jit
def move_to(x, y, row, column):
    """Bring the first block of x to a place in y, in whole pieces of 16 elements from 0 on."""
    y.store([row, tl.multiple_of(column, 16)], x.load([0, 0]))


@tw.jit
def move_described(x_ptr, y_ptr, m, n, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Copy a matrix; the kernel makes the descriptors."""
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [stride, 1], [BLOCK_M, BLOCK_N])
    y = tl.make_tensor_descriptor(y_ptr, [m, n], [stride, 1], [BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    y.store([row, column], x.load([row, column]))


@tw.jit
def increment_described(x_ptr, y_ptr, heads, n, width, SIDE: tl.constexpr, HEAD: tl.constexpr):
    """Y = X + 1 by one program; sizes and strides are products, in 32 and in 64 bits."""
    x = tl.make_tensor_descriptor(
        x_ptr, [heads * n * 2, width * HEAD], [width * HEAD, 1], [SIDE, SIDE]
    )
    stride = width.to(tl.int64) * HEAD
    y = tl.make_tensor_descriptor(y_ptr, [2 * n * heads, HEAD * width], [stride, 1], [SIDE, SIDE])
    for step in range(tl.cdiv(2 * heads * n, SIDE)):
        for place in range(0, width * HEAD, SIDE):
            y.store([step * SIDE, place], x.load([step * SIDE, place]) + 1)


def numbers(shape, dtype, last_stride=16):
    """An array of small numbers whose strides are multiples of 16 elements, and the strides."""
    columns = -(-shape[-1] // last_stride) * last_stride
    whole = np.arange(np.prod(shape[:-1], dtype=int) * columns) % 90 + 1
    array = whole.astype(dtype).reshape(*shape[:-1], columns)
    return array, [step // array.itemsize for step in array.strides]
