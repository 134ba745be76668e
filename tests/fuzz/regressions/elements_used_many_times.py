"""Where elements are best computed is asked once for each value, not for each way to it."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(out1, n2):
    power = tl.arange(0, 32).to(tl.int64) ** n2
    tl.store(out1, tl.argmax(power, 0))


GRID = (1, 1, 1)
ARRAYS = {"out1": ("i32", 1, "zeros")}
SCALARS = {"n2": 6}
DESCRIPTORS = {}
OPTIONS = {}
TOLERANCES = {}
