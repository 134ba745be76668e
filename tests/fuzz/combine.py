"""Functions that combine two elements, for reductions and scans of random kernels.

Those in `ASSOCIATIVE` may be grouped in any way, on integers; scans take any of them.
"""

import tilewright as tw
import tilewright.language as tl

__all__ = ["ASSOCIATIVE", "ASSOCIATIVE_PAIRS", "COMMON", "LOADS", "PAIRS", "SINGLES"]


@tw.jit
def combine_add(a, b):
    return a + b


@tw.jit
def combine_multiply(a, b):
    return a * b


@tw.jit
def combine_or(a, b):
    return a | b


@tw.jit
def combine_larger(a, b):
    return tl.where(a > b, a, b)


@tw.jit
def combine_smaller(a, b):
    if a < b:  # noqa: SIM108 - a branch is what this one is for
        r = a
    else:
        r = b
    return r


@tw.jit
def combine_first(a, b):
    return a


@tw.jit
def combine_last(a, b):
    return b


@tw.jit
def combine_halves(a, b):
    return (a - b).to(b.dtype)


@tw.jit
def combine_affine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@tw.jit
def combine_best(a1, b1, a2, b2):
    keep = (a1 > a2) | ((a1 == a2) & (b1 <= b2))
    return tl.where(keep, a1, a2), tl.where(keep, b1, b2)


@tw.jit
def combine_drift(a1, b1, a2, b2):
    return (a2 - b1).to(a2.dtype), (b1 + a2).to(b2.dtype)


@tw.jit
def combine_totals(a1, b1, c1, a2, b2, c2):
    return a1 + a2, tl.where(b1 > b2, b1, b2), c1 ^ c2


ASSOCIATIVE = (
    combine_add, combine_multiply, combine_or, combine_larger, combine_smaller, combine_first,
    combine_last,
)  # fmt: skip
SINGLES = (*ASSOCIATIVE, combine_halves)
ASSOCIATIVE_PAIRS = (combine_affine, combine_best)
PAIRS = (*ASSOCIATIVE_PAIRS, combine_drift)


# Those that keep what is exact.
COMMON = (combine_larger, combine_first, combine_last)


@tw.jit
def call_applied(function, a, b):
    return function(function(a, b), a)


@tw.jit
def call_weighted(first, *others, weight: tl.constexpr = 2):
    total = first
    for place, value in enumerate(others):
        if place != 1:
            total += value * weight
        else:
            total -= value
    return total


@tw.constexpr_function
def twice_and_one(n):
    return 2 * n + 1


@tw.jit
def call_sized(a, SIZE: tl.constexpr):
    return tl.max(a) + tl.arange(0, twice_and_one(SIZE))


@tw.jit(noinline=True)
def call_searched(a, b, limit):
    for i in range(limit):
        if tl.max(a) > i:
            if tl.min(b) < 1:
                return b
            continue
        a, b = b, a
    return a


@tw.jit
def map_halvings(a):
    steps = 0
    while a > 0:
        a = a // 2
        steps += 1
    return steps


@tw.jit
def map_sides(a, b):
    if a < b:
        r = b
        for i in range(3):
            if r > i:
                break
            r = a
    else:
        r = -a
    return r


@tw.jit
def map_exchanged(a0, a1):
    return a1, a0


@tw.jit
def map_until_odd(a):
    turns = 0
    while True:
        if a % 2 != 0:
            return a
        a = a // 2
        turns += 1
        if turns > 5:
            break
    return a + 1


@tw.jit
def map_both(a, b):
    low, high = a, b
    if not (a < b):
        low, high = b, a
    return low, high


@tw.jit
def load_block(descriptor, row, column):
    return tl.load_tensor_descriptor(descriptor, [row, column])


@tw.jit(noinline=True)
def load_block_apart(descriptor, row, column):
    return descriptor.load([row, column])


LOADS = (load_block, load_block_apart)
