"""How often the code for the CPU goes over rows, and what it asks of memory meanwhile."""

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

LENGTH = 4096


@tw.jit
def statistics_kernel(x, out, length, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    elements = tl.load(x + tl.program_id(0) * length + offsets, offsets < length, 0.0)
    mean = tl.sum(elements) / length
    highest = tl.max(elements) + 1
    squares = tl.sum(elements * elements) / length
    tl.store(out + tl.program_id(0) * 3, mean)
    tl.store(out + tl.program_id(0) * 3 + 1, highest)
    tl.store(out + tl.program_id(0) * 3 + 2, squares)


@tw.jit
def centered_kernel(x, out, length, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < length
    elements = tl.load(x + offsets, mask, 0.0)
    centered = tl.where(mask, elements - tl.sum(elements) / length, 0.0)
    tl.store(out + offsets, centered, mask)


@pytest.mark.parametrize("length", [LENGTH, LENGTH - 5])
def test_reductions_share_a_pass_though_scalars_stand_between_them(length):
    x = np.random.default_rng(0).integers(-8, 9, (3, length)).astype(np.float32)
    out = np.zeros((3, 3), np.float32)
    kernel = statistics_kernel[(3,)](x, out, length, LENGTH)
    expected = np.stack([x.sum(1) / length, x.max(1) + 1, (x * x).sum(1) / length], 1)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    loops = len(re.findall(r"^loop\w*:", kernel.asm["llir"], re.MULTILINE))
    assert loops == 2  # for rows of which no element is left out, and for others


def test_the_next_page_of_long_rows_is_asked_for():
    x = np.ones(LENGTH, np.float32)
    kernel = centered_kernel[(1,)](x, np.empty_like(x), LENGTH, LENGTH)
    assert "llvm.prefetch" in kernel.asm["llir"]
    short = centered_kernel[(1,)](x, np.empty_like(x), 64, 64)
    assert "llvm.prefetch" not in short.asm["llir"]
