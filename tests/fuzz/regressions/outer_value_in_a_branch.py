"""What is computed once for the whole program is not computed in one branch only."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(d22, d40, n23, N41: tl.constexpr):
    pid = tl.program_id(0)
    acc14 = tl.zeros((64, 8), tl.float32)
    d22.store([pid, n23, 0], tl.reshape(acc14, (1, 64, 8)))
    acc25 = tl.zeros((16, 64), tl.float32)
    d40.store([pid, N41, N41], tl.reshape(acc25, (1, 16, 64)))


GRID = (1, 1, 1)
ARRAYS = {"m21": ("bf16", 4096, "whole"), "m39": ("u32", 4864, "whole")}
SCALARS = {"n23": 0, "N41": 0}
DESCRIPTORS = {
    "d22": ("m21", (4, 64, 8), (1024, 16, 1), (1, 64, 8), "zero"),
    "d40": ("m39", (4, 19, 62), (1216, 64, 1), (1, 16, 64), "zero"),
}
OPTIONS = {}
TOLERANCES = {}
