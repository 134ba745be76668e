"""Each thread goes its own way through a mapped function, whatever is in shared memory."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def halvings(a):
    steps = 0
    while a > 0:
        a = a // 2
        steps += 1
    return steps


@tw.jit
def kernel(x1, out1):
    x = tl.load(x1 + tl.arange(0, 64)[:, None] * 4 + tl.arange(0, 4)[None, :])
    total = tl.sum(x, 0)
    steps = tl.map_elementwise(halvings, x ^ total[None, :])
    tl.store(out1 + tl.arange(0, 64), tl.max(steps, 1))


GRID = (1, 1, 1)
ARRAYS = {"x1": ("i32", 256, "random"), "out1": ("i32", 64, "zeros")}
SCALARS = {}
TOLERANCES = {}
