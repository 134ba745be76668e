"""Threads that diverge, wait and spin; and what is said when they wait forever."""

import numpy as np
import pytest
from ptx_snippets import assemble, kernel

from tilewright.emulator import Emulator, EmulatorError

STORE = """
  mul.wide.u32 %l0, %t, 4;
  add.s64 %l1, %p0, %l0;
  st.global.b32 [%l1], %r0;
"""


def launch(body, arguments, threads=64, grid=1, shared="", **options):
    text = kernel(body, len(arguments), shared=shared)
    return Emulator(text).launch("k", (grid,), (threads,), arguments, **options)


def test_loops_of_different_length_meet_again():
    body = """
  mov.b32 %r0, 0;
  mov.b32 %r1, 0;
$loop:
  setp.gt.u32 %q0, %r1, %t;
  @%q0 bra $end;
  add.s32 %r0, %r0, %r1;
  add.s32 %r1, %r1, 1;
  bra $loop;
$end:
  activemask.b32 %r2;
  setp.ne.b32 %q1, %r2, -1;
  @%q1 trap;
"""
    out = np.zeros(96, np.uint32)
    launch(body + STORE, [out], 96)
    thread = np.arange(96)
    assert np.array_equal(out, thread * (thread + 1) // 2)


def test_branches_by_table():
    body = """
  rem.u32 %r1, %t, 3;
  $table: .branchtargets $zero, $one, $two;
  brx.idx %r1, $table;
$zero: mov.b32 %r0, 10; bra $end;
$one: mov.b32 %r0, 11; bra $end;
$two: mov.b32 %r0, 12;
$end:
"""
    out = np.zeros(64, np.uint32)
    launch(body + STORE, [out])
    assert np.array_equal(out, 10 + np.arange(64) % 3)
    assemble(kernel(body + STORE, 1))


def test_a_shuffle_waits_for_lanes_that_took_another_way():
    body = """
  mov.b32 %r1, %t;
  and.b32 %r2, %t, 1;
  setp.eq.u32 %q0, %r2, 0;
  @%q0 bra $even;
  add.s32 %r1, %r1, 100;
  bra $both;
$even:
  add.s32 %r1, %r1, 200;
$both:
  shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;
"""
    out = np.zeros(32, np.uint32)
    launch(body + STORE, [out], 32)
    partner = np.arange(32) ^ 1
    assert np.array_equal(out, partner + np.where(partner % 2, 100, 200))


def test_member_masks_of_half_a_warp():
    body = """
  setp.lt.u32 %q0, %t, 16;
  @%q0 bra $low;
  shfl.sync.idx.b32 %r0, %t, 31, 31, 0xFFFF0000;
  bra $end;
$low:
  shfl.sync.idx.b32 %r0, %t, 3, 31, 0xFFFF;
$end:
"""
    out = np.zeros(32, np.uint32)
    launch(body + STORE, [out], 32)
    assert np.array_equal(out, np.where(np.arange(32) < 16, 3, 31))


def test_named_barriers_order_producers_and_consumers():
    """Two warps hand numbers on through shared memory, with two barriers, ten times."""
    body = """
  mov.b32 %r9, smem;
  and.b32 %r1, %t, 31;
  shl.b32 %r1, %r1, 2;
  add.s32 %r9, %r9, %r1;
  mov.b32 %r0, 0;
  mov.b32 %r2, 0;
  setp.lt.u32 %q0, %t, 32;
  @%q0 bra $produce;
$consume:
  bar.sync 1, 64;
  ld.shared.b32 %r3, [%r9];
  add.s32 %r0, %r0, %r3;
  bar.arrive 2, 64;
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %q1, %r2, 10;
  @%q1 bra $consume;
  bra $end;
$produce:
  add.s32 %r4, %t, %r2;
  st.shared.b32 [%r9], %r4;
  bar.arrive 1, 64;
  bar.sync 2, 64;
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %q1, %r2, 10;
  @%q1 bra $produce;
$end:
"""
    out = np.zeros(64, np.uint32)
    report = launch(body + STORE, [out], shared_bytes=128, races=True)
    assert np.array_equal(out[32:], 10 * np.arange(32) + 45)
    assert report.is_clean, report


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((96, 64), "used with 64 threads, while others wait at it for 96"),
        ((32, 32), "64 threads are at barrier 1, which takes 32"),
    ],
)
def test_barriers_with_wrong_counts(counts, message):
    body = f"""
  setp.lt.u32 %q0, %t, 32;
  @%q0 bra $other;
  bar.sync 1, {counts[0]};
  bra $end;
$other:
  bar.sync 1, {counts[1]};
$end:
"""
    with pytest.raises(EmulatorError, match=message):
        launch(body, [np.zeros(1)], 96)


def test_reducing_barriers():
    body = """
  setp.lt.u32 %q0, %t, 40;
  bar.red.popc.u32 %r0, 0, %q0;
  bar.red.and.pred %q1, 0, %q0;
  bar.red.or.pred %q2, 0, %q0;
  @%q1 add.s32 %r0, %r0, 1000;
  @%q2 add.s32 %r0, %r0, 2000;
"""
    out = np.zeros(96, np.uint32)
    launch(body + STORE, [out], 96)
    assert (out == 2040).all()


def test_threads_that_ended_are_not_waited_for():
    body = """
  mov.b32 %r0, 1;
  setp.ge.u32 %q0, %t, 32;
  @%q0 exit;
  bar.sync 0;
"""
    out = np.zeros(64, np.uint32)
    launch(body + STORE, [out])
    assert out.sum() == 32


def test_blocks_wait_for_each_other():
    """Blocks take turns: each spins until its number is up."""
    body = """
  mov.u32 %r1, %ctaid.x;
$spin:
  ld.acquire.gpu.global.b32 %r2, [%p1];
  setp.ne.b32 %q0, %r2, %r1;
  @%q0 bra $spin;
  ld.global.b32 %r3, [%p0];
  mul.lo.u32 %r3, %r3, 3;
  add.s32 %r3, %r3, %r1;
  bar.sync 0;
  setp.ne.b32 %q1, %t, 0;
  @%q1 exit;
  st.global.b32 [%p0], %r3;
  add.s32 %r1, %r1, 1;
  st.release.gpu.global.b32 [%p1], %r1;
"""
    total, turn = np.array([1], np.uint32), np.zeros(1, np.uint32)
    launch(body, [total, turn], 32, grid=6)
    expected = 1
    for i in range(6):
        expected = expected * 3 + i
    assert (total[0], turn[0]) == (expected, 6)


def test_a_lock_inside_a_warp():
    body = """
$try:
  atom.acquire.gpu.global.cas.b32 %r1, [%p1], 0, 1;
  setp.ne.b32 %q0, %r1, 0;
  @%q0 bra $try;
  ld.volatile.global.b32 %r2, [%p0];
  add.s32 %r2, %r2, 1;
  st.volatile.global.b32 [%p0], %r2;
  atom.release.gpu.global.exch.b32 %r1, [%p1], 0;
"""
    count, lock = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    launch(body, [count, lock], 16, grid=2)
    assert count[0] == 32


def test_a_deadlock_says_where_each_warp_waits():
    body = """
  .loc 1 9 1
  setp.lt.u32 %q0, %t, 32;
  @%q0 bra $other;
  bar.sync 1, 64;
  bra $end;
$other:
  bar.sync 2, 64;
$end:
"""
    with pytest.raises(EmulatorError) as caught:
        launch(body, [np.zeros(1)])
    message = str(caught.value)
    assert "deadlock: no thread can go on" in message
    assert "warp 0 (32 lanes) waits at barrier 2 (32 of 64 arrived)" in message
    assert "warp 1 (32 lanes) waits at barrier 1 (32 of 64 arrived)" in message
    assert "file 1:9: `bar.sync 2, 64`" in message


def test_a_barrier_in_a_branch_of_a_warp_is_found():
    body = """
  setp.lt.u32 %q0, %t, 8;
  @%q0 bar.sync 0;
  shfl.sync.bfly.b32 %r0, %t, 1, 31, -1;
"""
    with pytest.raises(EmulatorError, match="waits for other lanes of its warp"):
        launch(body, [np.zeros(1)], 32)


def test_an_endless_loop_is_found(monkeypatch):
    monkeypatch.setattr("tilewright.emulator.scheduler._POLL_LIMIT", 200)
    with pytest.raises(EmulatorError, match="livelock"):
        launch("$spin: ld.volatile.global.b32 %r0, [%p0]; bra $spin;", [np.zeros(1)])


def test_an_endless_loop_that_writes_is_found(monkeypatch):
    monkeypatch.setattr("tilewright.emulator.scheduler._STEP_LIMIT", 1000)
    body = "$loop: add.s32 %r0, %r0, 1; st.global.b32 [%p0], %r0; bra $loop;"
    with pytest.raises(
        EmulatorError, match=r"has ended for 1000 instructions\n  block \(0, 0, 0\)"
    ):
        launch(body, [np.zeros(1)])


def test_grids_that_there_are_not():
    with pytest.raises(EmulatorError, match=r"not \(1, 65536, 1\)"):
        Emulator(kernel("", 0)).launch("k", (1, 2**16), (32,), [])


def test_grids_and_blocks_of_three_dimensions():
    body = """
  mov.u32 %r1, %tid.y;
  mov.u32 %r2, %tid.z;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ctaid.z;
  mov.u32 %r5, %nctaid.z;
  mad.lo.u32 %r0, %r1, 10, %t;
  mad.lo.u32 %r0, %r2, 100, %r0;
  mad.lo.u32 %r0, %r3, 1000, %r0;
  mad.lo.u32 %r0, %r4, 10000, %r0;
  mov.u32 %r6, %nctaid.x;
  mad.lo.u32 %r7, %r4, %r6, %r3;
  mad.lo.u32 %r8, %r7, 6, %t;
  mad.lo.u32 %r8, %r1, 3, %r8;
  mad.lo.u32 %r8, %r2, 3, %r8;
  mul.wide.u32 %l0, %r8, 4;
  add.s64 %l1, %p0, %l0;
  st.global.b32 [%l1], %r0;
"""
    out = np.zeros((5, 2, 2, 3), np.uint32)
    Emulator(kernel(body, 1)).launch("k", (2, 1, 5), (3, 1, 2), [out])
    z, x, tz, tx = np.indices(out.shape)
    assert np.array_equal(out, tx + 100 * tz + 1000 * x + 10000 * z)
