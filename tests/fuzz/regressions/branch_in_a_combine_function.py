"""A combine function with `if` runs on scalars, also where the interpreter has whole tiles."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def smaller(a, b):
    if a < b:  # noqa: SIM108 - a branch is what this is about
        r = a
    else:
        r = b
    return r


@tw.jit
def through_a_call(a, b):
    return smaller(a, b)


@tw.jit
def kernel(x1, out1, out2):
    x = tl.load(x1 + tl.arange(0, 5)[:, None] * 24 + tl.arange(0, 24)[None, :])
    tl.store(out1 + tl.arange(0, 24), tl.reduce(x, 0, smaller))
    running = tl.associative_scan(x, 1, through_a_call)
    tl.store(out2 + tl.arange(0, 5)[:, None] * 24 + tl.arange(0, 24)[None, :], running)


GRID = (1, 1, 1)
ARRAYS = {
    "x1": ("i32", 120, "random"),
    "out1": ("i32", 24, "zeros"),
    "out2": ("i32", 120, "zeros"),
}
SCALARS = {}
TOLERANCES = {}
