"""Functions that combine two elements, for reductions and scans of random kernels.

Those in `ASSOCIATIVE` may be grouped in any way, on integers; scans take any of them.
"""

import tilewright as tw
import tilewright.language as tl

__all__ = ["ASSOCIATIVE", "ASSOCIATIVE_PAIRS", "PAIRS", "SINGLES"]


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


ASSOCIATIVE = (
    combine_add, combine_multiply, combine_or, combine_larger, combine_smaller, combine_first,
    combine_last,
)  # fmt: skip
SINGLES = (*ASSOCIATIVE, combine_halves)
ASSOCIATIVE_PAIRS = (combine_affine, combine_best)
PAIRS = (*ASSOCIATIVE_PAIRS, combine_drift)


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
