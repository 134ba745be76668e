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


# Values for `make_many()`, whose sum is exact.
MANY = (-3, 70_000, -300, 2**40, True, 0.25, 0.5, 200, 5, -(2**40), 7, 40_000, 2**32 - 1)


def make_many():
    @tw.jit
    def many(
        out_ptr, a: tl.int8, b, c: tl.int16, d, e: tl.int1, f: tl.float64, g, h: tl.uint8,
        i, j: tl.int64, k, m: tl.uint16, n: tl.uint32, BLOCK: tl.constexpr,
    ):  # fmt: skip
        whole = a + b + c + d + e + h + i + j + k + m + n
        tl.store(out_ptr + tl.arange(0, BLOCK), whole.to(tl.float64) + f + g)

    return many
