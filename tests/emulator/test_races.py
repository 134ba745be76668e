"""Planted mistakes in the use of shared memory: each is found, and its repair is clean."""

import re

import numpy as np
import pytest
from ptx_snippets import kernel

from tilewright.emulator import Emulator

PLACE = """
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 2;
  add.s32 %r3, %r1, %r2;
  xor.b32 %r4, %r2, {distance};
  add.s32 %r4, %r1, %r4;
"""
BARRIER = """
  mov.b32 %r20, barrier;
  setp.eq.u32 %q7, %t, 0;
  @%q7 mbarrier.init.shared::cta.b64 [%r20], 1;
  bar.sync 0;
  @%q7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 256;
  @%q7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p0], 256, [%r20];
"""
WAIT = "$wait: mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r20], 0; @!%q1 bra $wait;"


def findings(body, threads=64, blocks=1, **options):
    text = kernel(body, 1, shared=".shared .align 8 .b8 barrier[8];")
    memory = np.zeros(1024, np.uint8)
    report = Emulator(text).launch(
        "k", (blocks,), (threads,), [memory], shared_bytes=2048, **({"races": True} | options)
    )
    return report.findings


CASES = {
    "read after write, across warps": (
        PLACE.format(distance=128),
        "st.shared.b32 [%r3], %t;",
        "bar.sync 0;",
        "ld.shared.b32 %r5, [%r4];",
        "reads shared byte .* wrote, with no barrier between",
    ),
    "read after write, inside a warp": (
        PLACE.format(distance=4),
        "st.shared.b32 [%r3], %t;",
        "bar.warp.sync -1;",
        "ld.shared.b32 %r5, [%r4];",
        "no barrier between",
    ),
    "write after read": (
        PLACE.format(distance=128) + "st.shared.b32 [%r3], 0; bar.sync 0;",
        "ld.shared.b32 %r5, [%r4];",
        "bar.sync 0;",
        "st.shared.b32 [%r3], %t;",
        "writes shared byte .* read, with no barrier between",
    ),
    "write after write": (
        PLACE.format(distance=128),
        "st.shared.b32 [%r3], %t;",
        "bar.sync 0;",
        "st.shared.b32 [%r4], %t;",
        "writes shared byte .* wrote, with no barrier between",
    ),
    "an atomic after a plain write": (
        PLACE.format(distance=128),
        "st.shared.b32 [%r3], %t;",
        "bar.sync 0;",
        "red.shared.add.u32 [%r4], 1;",
        "no barrier between",
    ),
    "cp.async without a wait": (
        PLACE.format(distance=0),
        (
            "cvt.u64.u32 %l0, %r2; add.s64 %l1, %p0, %l0;"
            "cp.async.ca.shared.global [%r3], [%l1], 4; cp.async.commit_group;"
        ),
        "cp.async.wait_group 0;",
        "bar.sync 0; ld.shared.b32 %r5, [%r3];",
        "cp.async of thread .* no wait and barrier between",
    ),
    "cp.async without a barrier": (
        PLACE.format(distance=128),
        (
            "cvt.u64.u32 %l0, %r2; add.s64 %l1, %p0, %l0;"
            "cp.async.ca.shared.global [%r3], [%l1], 4; cp.async.wait_all;"
        ),
        "bar.sync 0;",
        "ld.shared.b32 %r5, [%r4];",
        "cp.async of thread .* no wait and barrier between",
    ),
    "a bulk copy that is not waited for": (
        PLACE.format(distance=0) + BARRIER,
        "",
        WAIT,
        "ld.shared.b32 %r5, [%r3];",
        "a bulk copy writes, before the phase of its mbarrier was waited for",
    ),
    "a bulk copy over bytes that are still read": (
        PLACE.format(distance=128)
        + "st.shared.b32 [%r3], %t; fence.proxy.async.shared::cta; bar.sync 0;",
        "ld.shared.b32 %r5, [%r4];",
        "bar.sync 1;",
        BARRIER.replace("bar.sync 0;", "fence.proxy.async.shared::cta;") + WAIT,
        "writes shared byte .* read, with no barrier between",
    ),
    "a bulk store without a fence": (
        PLACE.format(distance=0),
        "st.shared.b32 [%r3], %t;",
        "fence.proxy.async.shared::cta;",
        (
            "bar.sync 0; setp.ne.u32 %q0, %t, 0; @%q0 bra $end;"
            "cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r1], 256;"
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; $end:"
        ),
        "no `fence.proxy.async` before the asynchronous proxy uses it",
    ),
    "a bulk store without a barrier": (
        PLACE.format(distance=0),
        "st.shared.b32 [%r3], %t; fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        (
            "setp.ne.u32 %q0, %t, 0; @%q0 bra $end;"
            "cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r1], 256;"
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; $end:"
        ),
        "no barrier between|no `fence.proxy.async`",
    ),
    "a buffer used again while a bulk store reads": (
        PLACE.format(distance=0)
        + (
            "st.shared.b32 [%r3], %t; fence.proxy.async.shared::cta; bar.sync 0;"
            "setp.ne.u32 %q0, %t, 0; @%q0 bra $sent;"
            "cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r1], 256;"
            "cp.async.bulk.commit_group;"
        ),
        "",
        "cp.async.bulk.wait_group.read 0;",
        "$sent: bar.sync 0; st.shared.b32 [%r3], 5;",
        "a bulk store may still read, before its group was waited for",
    ),
}


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_a_planted_race_is_found(name, blocks):
    before, first, repair, second, message = CASES[name]
    found = findings(f"{before}\n{first}\n{second}", blocks=blocks)
    assert found, "nothing was found"
    assert any(re.search(message, str(item)) for item in found), found
    assert all("PTX line" in str(item) for item in found)
    assert not findings(f"{before}\n{first}\n{repair}\n{second}", blocks=blocks)


@pytest.mark.parametrize("threads", [64, 96])
def test_a_race_in_one_block_of_many(threads):
    body = PLACE.format(distance=128) + (
        "st.shared.b32 [%r3], %t; mov.u32 %r5, %ctaid.x; setp.eq.u32 %q0, %r5, {racing};"
        "@%q0 bra $over; bar.sync 0; $over: ld.shared.b32 %r6, [%r4];"
    )
    (found,) = findings(body.format(racing=2), threads, blocks=5)
    assert "no barrier between" in str(found)
    assert not findings(body.format(racing=7), threads, blocks=5)


def test_neighbouring_bytes_do_not_race():
    """The detector must not see less than what the kernel accesses."""
    body = "mov.b32 %r1, smem; add.s32 %r2, %r1, %t; xor.b32 %r3, %r2, 1;"
    write = "cvt.u16.u32 %h0, %t; st.shared.b8 [%r2], %h0;"
    assert not findings(f"{body} {write} ld.shared.b8 %h1, [%r2];")
    assert findings(f"{body} {write} ld.shared.b8 %h1, [%r3];")


def test_threads_that_write_one_place_at_once():
    (found,) = findings("mov.b32 %r1, smem; st.shared.b32 [%r1], %t;")
    assert "write different values" in found.message
    assert not findings("mov.b32 %r1, smem; st.shared.b32 [%r1], 7;", threads=32)


def test_atomics_do_not_race():
    assert not findings("mov.b32 %r1, smem; red.shared.add.u32 [%r1], %t;")


def test_a_named_barrier_orders_only_those_who_meet():
    body = (
        PLACE.format(distance=256)
        + """
  st.shared.b32 [%r3], %t;
  shr.u32 %r5, %t, 6;
  add.s32 %r5, %r5, 1;
  bar.sync %r5, 64;
  ld.shared.b32 %r6, [{place}];
"""
    )
    assert not findings(body.format(place="%r3"), threads=128)
    assert findings(body.format(place="%r4"), threads=128)


def test_uninitialised_reads():
    body = "mov.b32 %r1, smem; shl.b32 %r2, %t, 2; add.s32 %r1, %r1, %r2; ld.shared.b32 %r3, [%r1];"
    (found,) = findings(body, races=False, uninitialised=True)
    assert found.kind == "uninitialised"
    store = "st.shared.b32 [%r1], 0; ld.shared"
    assert not findings(body.replace("ld.shared", store), races=False, uninitialised=True)


def test_findings_name_source_lines():
    body = ".loc 1 3 1\n" + PLACE.format(distance=128) + "st.shared.b32 [%r3], %t;\n.loc 1 4 1\n"
    text = kernel(body + "ld.shared.b32 %r5, [%r4];", 1).replace(
        ".visible", '.file 1 "k.py"\n.visible'
    )
    report = Emulator(text).launch("k", (1,), (64,), [np.zeros(4)], shared_bytes=256, races=True)
    message = str(report)
    assert "k.py:4: `ld.shared.b32 %r5, [%r4]`" in message
    assert "against PTX line" in message
    assert "k.py:3" in message
