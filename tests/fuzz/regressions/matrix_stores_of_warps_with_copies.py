"""Several warps hold the same product: one of them writes it to shared memory by `stmatrix`."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(m1, m2, m3, out):
    q = tl.load(m1 + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :])
    keys = tl.make_tensor_descriptor(m2, [64, 80], [96, 1], [64, 16])
    values = tl.make_tensor_descriptor(m3, [80, 128], [128, 1], [16, 64])
    acc = tl.zeros((16, 64), tl.float32)
    for i in tl.range(0, 5):
        scores = tl.dot(q, keys.load([0, i * 16]))
        acc = tl.dot(scores.to(tl.float16), values.load([i * 16, 8]), acc)
    tl.store(out + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :], acc)


GRID = (1, 1, 1)
ARRAYS = {
    "m1": ("fp16", 1024, "digits"),
    "m2": ("fp16", 6144, "digits"),
    "m3": ("fp16", 10240, "digits"),
    "out": ("fp32", 1024, "zeros"),
}
SCALARS = {}
OPTIONS = {"num_warps": 8}
TOLERANCES = {}
