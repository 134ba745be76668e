"""A store that narrows bf16 or integers writes one element where one is left (17 = 16 + 1)."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(y5):
    p = y5 + tl.arange(0, 17)
    tl.store(p, tl.load(p) + 1)


GRID = (1, 1, 1)
ARRAYS = {"y5": ("bf16", 17, "small")}
SCALARS = {}
TOLERANCES = {}
