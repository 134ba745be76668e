"""How tiles come from memory and go there: widths, hints to the caches, shared memory."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from examples.rows import layer_norm_kernel, softmax_kernel
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import ptx_of

BF16 = ml_dtypes.bfloat16


def accesses(ptx):
    return set(re.findall(r"(?:ld|st)\.global[\w.:]*", ptx))


@tw.jit
def hinted_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, cache_modifier=".cg")
    y = tl.load(y_ptr + tl.arange(0, BLOCK), eviction_policy="evict_last")
    tl.store(out_ptr + at, x + y, mask=at < n, cache_modifier=".cs")


@tw.jit
def streaming_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, eviction_policy="evict_first")
        tl.store(out_ptr + at, x + 1, mask=at < n, eviction_policy="evict_first")


def test_what_is_used_once_leaves_both_caches_first():
    values = [np.arange(1008, dtype=np.float32), np.zeros(1008, np.float32), 1008]
    hint = "L1::evict_first.L2::cache_hint"
    ptx = ptx_of(streaming_kernel, values, BLOCK=256, num_stages=1)
    assert accesses(ptx) == {f"ld.global.{hint}.v2.b32", f"st.global.{hint}.v2.b32"}
    assert "createpolicy.fractional.L2::evict_first.b64" in ptx
    older = ptx_of(streaming_kernel, values, BLOCK=256, num_stages=1, target="sm_75")
    assert accesses(older) == {
        "ld.global.L1::evict_first.v2.b32",
        "st.global.L1::evict_first.v2.b32",
    }
    for want, got in harness.run_both(streaming_kernel, (1,), values, BLOCK=256, num_stages=1):
        np.testing.assert_array_equal(got, want)


def test_hints_to_the_caches_are_passed_on():
    x, y = np.arange(1008, dtype=np.float32), np.ones(256, np.float32)
    values = [x, y, np.zeros(1008, np.float32), 1008]
    assert accesses(ptx_of(hinted_kernel, values, BLOCK=256)) == {
        "ld.global.cg.v2.b32", "ld.global.L1::evict_last.L2::cache_hint.v2.b32",
        "st.global.cs.v2.b32",
    }  # fmt: skip
    for want, got in harness.run_both(hinted_kernel, (4,), values, BLOCK=256):
        np.testing.assert_array_equal(got, want)


@tw.jit
def histogram_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    counts = tl.histogram(tl.load(x_ptr + at, mask=inside, other=0), BINS, mask=inside)
    tl.store(out_ptr + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64])
def test_a_histogram_has_no_branches(dtype):
    x = np.random.default_rng(0).integers(0, 100, 1000).astype(dtype)
    values = [x, np.zeros(64, np.int32), 999]
    ptx = ptx_of(histogram_kernel, values, BLOCK=1024, BINS=64)
    assert "bra" not in ptx
    for want, got in harness.run_both(histogram_kernel, (1,), values, BLOCK=1024, BINS=64):
        np.testing.assert_array_equal(got, want)


def rows(kernel, dtype):
    """The arguments of a kernel that works on rows of 4096."""
    x, row = np.zeros((2, 4096), dtype), np.zeros(4096, dtype)
    if kernel is softmax_kernel:
        return [x, x, 4096, 4096, 4096]
    statistics = np.zeros(2, np.float32)
    return [x, row, row, x, statistics, statistics, 4096, 4096, 1e-5]


@pytest.mark.parametrize("kernel", [softmax_kernel, layer_norm_kernel], ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=lambda d: d.__name__)
def test_rows_meet_only_in_their_reductions(kernel, dtype):
    ptx = ptx_of(kernel, rows(kernel, dtype), num_warps=8, BLOCK=4096)
    wide = {name for name in accesses(ptx) if "v4.b32" in name or name.endswith("global.b32")}
    assert accesses(ptx) == wide  # the statistics of a row are single numbers
    assert ptx.count("bar.sync") == 2
    assert ptx.count("shfl.sync.bfly") == 2 * 5
    assert ptx.count("shfl.sync") == 2 * 5
    stored = re.findall(r"st\.shared[\w.:]*", ptx)
    assert stored == ["st.shared.b32"] * 2  # a word of each warp for each reduction


@tw.jit
def moments_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    for _ in range(2):
        total = tl.sum(x, axis=0)
        largest = tl.max(x * x, axis=0)
        x += tl.max(x - total, axis=0) + largest
    tl.store(out_ptr + tl.arange(0, BLOCK), x)


@pytest.mark.parametrize("size", [512, 300])
def test_reductions_that_do_not_wait_share_a_barrier(size):
    x = np.random.default_rng(0).integers(-4, 5, size).astype(np.float32)
    values = [x, np.zeros_like(x)]
    # The third needs the first one's result. The loop itself ends with a barrier.
    assert ptx_of(moments_kernel, values, BLOCK=size).count("bar.sync") == 3
    for want, got in harness.run_both(moments_kernel, (1,), values, BLOCK=size):
        np.testing.assert_array_equal(got, want)
