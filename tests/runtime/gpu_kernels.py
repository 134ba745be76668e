"""Small kernels, made anew for each test, so that nothing is known of them."""

import tilewright as tw
import tilewright.language as tl


def make_add():
    @tw.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)

    return add


def make_scalars():
    @tw.jit
    def scalars(
        out_ptr, narrow, wide, unsigned, real, double: tl.float64,
        yes, byte: tl.int8, WHAT: tl.constexpr,
    ):  # fmt: skip
        tl.store(out_ptr, narrow + wide + unsigned + real + double + byte)
        if yes:
            tl.store(out_ptr + 1, 1.0)

    return scalars
