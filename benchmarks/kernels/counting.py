"""A histogram of many numbers."""

import triton
import triton.language as tl


@triton.jit
def histogram_kernel(
    x_ptr, counts_ptr, size, PROGRAMS: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """Count the numbers from 0 to `BINS` - 1; `size` is a multiple of `BLOCK`."""
    counts = tl.zeros((BINS,), tl.int32)
    for first in range(tl.program_id(0) * BLOCK, size, PROGRAMS * BLOCK):
        x = tl.load(x_ptr + first + tl.arange(0, BLOCK))
        counts += tl.histogram(x, BINS)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), counts)
