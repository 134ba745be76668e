"""Rings that warps go round at their own pace though all threads copy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.systems import TILEWRIGHT, load
from examples.matmul import whole_matmul_kernel
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import small_integers
from tilewright.codegen.nvidia.assembler import assemble
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.tools.tensor_descriptor import TensorDescriptor

SIDE = 64
ARRIVES = "cp.async.mbarrier.arrive.noinc"
pointer_attention_kernel = load(TILEWRIGHT, "attention")["pointer_attention_kernel"]


@tw.jit
def chained_kernel(
    q_ptr, k, v_ptr, sign_ptr, out_ptr, rows, trips,
    SIDE: tl.constexpr, BY_DESCRIPTOR: tl.constexpr, SIGNED: tl.constexpr,
):  # fmt: skip
    """What one product leaves is multiplied once more, for `SIDE` queries at a time."""
    i = tl.arange(0, SIDE)
    place = i[:, None] * SIDE + i[None, :]
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        q = tl.load(q_ptr + row * SIDE * SIDE + place)
        acc = tl.zeros((SIDE, SIDE), tl.float32)
        for step in range(trips):
            if BY_DESCRIPTOR:
                keys = k.load([step * SIDE, 0])
            else:
                keys = tl.load(k + step * SIDE * SIDE + place)
            p = tl.dot(q, tl.trans(keys))
            if SIGNED:
                p *= tl.load(sign_ptr + step * SIDE + i)[None, :]
            v = tl.load(v_ptr + step * SIDE * SIDE + place)
            acc = tl.dot(p.to(tl.float16), v, -acc)
        tl.store(out_ptr + row * SIDE * SIDE + place, acc)


def check(trips, *, programs=1, by_descriptor=False, signed=False, **options):
    """Run the kernel for three rows, compare it with NumPy to the bit, return its PTX."""
    q = small_integers((3, SIDE, SIDE), np.float16, 0)
    k, v = (small_integers((trips, SIDE, SIDE), np.float16, seed) for seed in (1, 2))
    signs = np.sign(small_integers((trips, SIDE), np.float32, 3))
    out = np.ones((3, SIDE, SIDE), np.float32)
    keys = TensorDescriptor.from_tensor(k.reshape(-1, SIDE), [SIDE, SIDE]) if by_descriptor else k
    values = [q, keys, v, signs, out, 3, trips]
    constants = {"SIDE": SIDE, "BY_DESCRIPTOR": by_descriptor, "SIGNED": signed}
    kernel = harness.run(chained_kernel, (programs,), values, **constants, **options)
    expected = np.zeros((3, SIDE, SIDE), np.float32)
    for step in range(trips):
        p = q.astype(np.float32) @ k[step].T.astype(np.float32)
        p = p * signs[step] if signed else p
        expected = p @ v[step].astype(np.float32) - expected
    np.testing.assert_array_equal(out, expected)
    return kernel.ptx


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_stages_and_warps_change_nothing(num_warps, num_stages):
    ptx = check(4, num_warps=num_warps, num_stages=num_stages)
    assert (ARRIVES in ptx) == (num_stages > 1)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("programs", [1, 2])
def test_a_ring_is_gone_round_again_in_an_outer_loop(trips, programs):
    check(trips, programs=programs, num_stages=3)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("by_descriptor", [False, True])
@pytest.mark.parametrize("num_stages", [2, 4])
def test_one_thread_asks_for_some_of_the_tiles(by_descriptor, signed, num_stages):
    ptx = check(4, by_descriptor=by_descriptor, signed=signed, num_stages=num_stages)
    assert ARRIVES in ptx
    assert ("cp.async.bulk.tensor" in ptx) == by_descriptor
    assert ("cp.async.bulk.shared" in ptx) == signed


def loops_with(ptx: str, word: str) -> list[str]:
    """The text of each loop with a word: the blocks that reach it, and that it reaches."""
    texts = re.split(r"^(?=\$L__BB\w+:)", ptx, flags=re.MULTILINE)
    names = [text.partition(":")[0] for text in texts]
    follows = {
        i: [names.index(n) for n in re.findall(r"bra[.\w]* +\t?(\$L__BB\w+);", text)]
        for i, text in enumerate(texts)
    }
    for i, text in enumerate(texts[:-1]):
        last = text.rstrip().rpartition("\n")[2].strip()
        if not re.match(r"bra|ret", last):
            follows[i].append(i + 1)

    def reached(start: int) -> frozenset[int]:
        found, waiting = set(), [start]
        while waiting:
            new = set(follows[waiting.pop()]) - found
            found |= new
            waiting += new
        return frozenset(found)

    after = {i: reached(i) for i in follows}
    loops = {
        frozenset(j for j in after[i] if i in after[j])
        for i, text in enumerate(texts)
        if word in text and i in after[i]
    }
    return ["".join(texts[i] for i in sorted(loop)) for loop in loops]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("head", "columns", "registers"), [(64, 64, 140), (128, 128, 232)])
def test_warps_of_attention_never_meet_in_a_loop(head, columns, registers, causal):
    q, k, v, out = (np.zeros((1, 1, 256, head), np.float16) for _ in range(4))
    lse = np.zeros((1, 1, 256), np.float32)
    ptx = harness.ptx_of(
        pointer_attention_kernel, [q, k, v, out, lse, 0.1, 256],
        HEAD=head, BLOCK_M=128, BLOCK_N=columns, IS_CAUSAL=causal, num_warps=8, num_stages=3,
    )  # fmt: skip
    loops = loops_with(ptx, "wgmma.mma_async")
    assert len(loops) == 1 + causal
    for loop in loops:
        assert ARRIVES in loop
        assert "bar.sync" not in loop
        assert loop.count("mbarrier.arrive.shared") == 1
        # In short iterations one for the first, and one for the next behind the products' start.
        assert loop.count("fence.proxy.async") == (2 if head == 64 else 1)
        # Copies start behind the products, one of which still runs.
        assert loop.index("wgmma.commit_group") < loop.index(ARRIVES)
    if find_ptxas() is not None:
        found = assemble(ptx, harness.TARGETS["h100"], find_ptxas())
        assert found.registers <= registers


def test_warps_meet_where_a_product_is_deferred():
    a, b, c = (np.zeros((256, 256), np.float16) for _ in range(3))
    ptx = harness.ptx_of(
        whole_matmul_kernel,
        [a, b, c, 256, 256, 256, 256, 1, 256, 1, 256, 1],
        BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=3,
    )  # fmt: skip
    (loop,) = loops_with(ptx, "wgmma.mma_async")
    assert ARRIVES not in ptx
    assert "bar.sync" in loop
