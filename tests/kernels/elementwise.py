"""Vector addition, softmax and dropout."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@tw.jit
def softmax_row(out_ptr, in_ptr, in_stride, out_stride, columns, BLOCK: tl.constexpr):
    """One program for each row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(in_ptr + row * in_stride + offsets, mask=mask, other=-float("inf"))
    shifted = x - tl.max(x, axis=0)
    numerator = tl.exp(shifted)
    tl.store(out_ptr + row * out_stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


@tw.jit
def softmax_persistent(
    out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """A fixed number of programs, each taking every so many-th row."""
    first = tl.program_id(0)
    step = tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=STAGES):
        source = in_ptr + row * in_stride
        offsets = tl.arange(0, BLOCK)
        pointers = source + offsets
        mask = offsets < columns
        x = tl.load(pointers, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        target = out_ptr + row * out_stride + offsets
        tl.store(target, result, mask=mask)


@tw.jit
def dropout(x_ptr, keep_ptr, out_ptr, n, p, BLOCK: tl.constexpr):
    """Drop what a mask in memory says."""
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.load(keep_ptr + offsets, mask=mask) != 0
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@tw.jit
def seeded_dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    """Drop what a random generator says: nothing but its seed is kept."""
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@tw.jit
def random_numbers(uniform_ptr, normal_ptr, bits_ptr, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(uniform_ptr + offsets, tl.rand(seed, offsets))
    tl.store(normal_ptr + offsets, tl.randn(seed, offsets))
    tl.store(bits_ptr + offsets, tl.randint(seed, offsets))
