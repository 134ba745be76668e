"""A load kept for after a store, in tiles of 24: the rest of 8 lanes uses its own address."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(x1, y2, out1, out2, n):
    a = tl.load(x1 + tl.arange(0, 24) * 3)
    b = tl.load(y2 + tl.arange(0, 4)[:, None])
    tl.store(y2 + tl.arange(0, 24) * n, a)
    tl.store(out1 + tl.arange(0, 24), a)
    tl.store(out2 + tl.arange(0, 4)[:, None] * 4, b)


GRID = (1, 1, 1)
ARRAYS = {
    "x1": ("i32", 100, "random"),
    "y2": ("i32", 188, "random"),
    "out1": ("u32", 24, "zeros"),
    "out2": ("i16", 16, "zeros"),
}
SCALARS = {"n": 2}
TOLERANCES = {}
