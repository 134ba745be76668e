"""Copies that complete later: cp.async, bulk copies, tensor copies, and their barriers."""

# ruff: noqa: E501 - a line of PTX is an instruction

import ml_dtypes
import numpy as np
import pytest
from ptx_snippets import assemble, kernel

from tilewright.emulator import Emulator, EmulatorError, TensorMap

BARRIER = """
  mov.b32 %r20, barrier;
  setp.eq.u32 %q7, %t, 0;
  @%q7 mbarrier.init.shared::cta.b64 [%r20], 1;
  bar.sync 0;
"""
WAIT = """
{{
  .reg .pred done;
  wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%r20], {phase};
  @!done bra.uni wait;
}}
"""
BACK = """
  mov.b32 %r21, smem;
  shl.b32 %r22, %t, 2;
  cvt.u64.u32 %l10, %r22;
  add.s32 %r21, %r21, %r22;
  add.s64 %l11, %p1, %l10;
$back:
  setp.ge.u32 %q6, %r22, {size};
  @%q6 bra $done;
  ld.shared.b32 %r23, [%r21];
  st.global.b32 [%l11], %r23;
  add.s32 %r21, %r21, 256;
  add.s32 %r22, %r22, 256;
  add.s64 %l11, %l11, 256;
  bra $back;
$done:
"""
SHARED = ".shared .align 8 .b8 barrier[8];"


def launch(body, arguments, threads=64, map_position=None, shared_bytes=0, **options):
    """Launch with 1024 bytes more, which aligning `smem` behind the barrier takes."""
    options["shared_bytes"] = shared_bytes + 1024
    text = with_map(kernel(body, len(arguments), shared=SHARED), map_position)
    return Emulator(text).launch("k", (1,), (threads,), arguments, **options)


def with_map(text, position):
    """Turn a pointer parameter into a tensor map that is passed by value."""
    if position is None:
        return text
    text = text.replace(f".param .u64 k_{position}", f".param .align 64 .b8 k_{position}[128]")
    load = f"ld.param.u64 %p{position}, [k_{position}];"
    return text.replace(
        load, f"mov.b64 %p{position}, k_{position}; cvta.param.u64 %p{position}, %p{position};"
    )


@pytest.mark.parametrize("wait", ["wait_group 0", "wait_all"])
def test_small_copies(wait):
    body = f"""
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 4;
  add.s32 %r1, %r1, %r2;
  cvt.u64.u32 %l1, %r2;
  add.s64 %l2, %p0, %l1;
  rem.u32 %r3, %t, 3;
  shl.b32 %r3, %r3, 3;
  cp.async.cg.shared.global [%r1], [%l2], 16, %r3;
  cp.async.commit_group;
  cp.async.{wait};
  bar.sync 0;
""" + BACK.format(size=1024)
    source = np.random.default_rng(0).integers(1, 1 << 31, 256).astype(np.uint32)
    out = np.zeros_like(source)
    report = launch(body, [source, out], shared_bytes=1024, races=True, uninitialised=True)
    kept = np.arange(4) < (np.arange(64) % 3 * 2)[:, None]
    assert np.array_equal(out.reshape(64, 4), np.where(kept, source.reshape(64, 4), 0))
    assert report.is_clean, report


def test_small_copies_may_be_ignored_or_cut_at_the_end_of_an_array():
    body = """
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 4;
  add.s32 %r1, %r1, %r2;
  cvt.u64.u32 %l1, %r2;
  add.s64 %l2, %p0, %l1;
  setp.gt.u32 %q0, %t, 1;
  mov.b32 %r3, 16;
  setp.eq.u32 %q1, %t, 1;
  @%q1 mov.b32 %r3, 6;
  @%q0 bra $ignore;
  cp.async.cg.shared.global.L2::128B [%r1], [%l2], 16, %r3;
  bra $issued;
$ignore:
  cp.async.ca.shared.global [%r1], [%l2], 16, %q0;
$issued:
  cp.async.wait_all;
  bar.sync 0;
""" + BACK.format(size=64)
    source, out = np.arange(1, 12, dtype=np.uint16), np.ones(32, np.uint16)
    launch(body, [source, out], shared_bytes=1024)
    assert out.tolist() == [*range(1, 12), *[0] * 21]


def test_groups_complete_in_order():
    """With one group pending, the second copy is not there yet."""
    body = """
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 2;
  add.s32 %r1, %r1, %r2;
  cvt.u64.u32 %l1, %r2;
  add.s64 %l2, %p0, %l1;
  cp.async.ca.shared.global [%r1], [%l2], 4;
  cp.async.commit_group;
  cp.async.ca.shared.global [%r1+256], [%l2+256], 4;
  cp.async.commit_group;
  cp.async.wait_group 1;
  bar.sync 0;
""" + BACK.format(size=512)
    source, out = np.arange(1, 129, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(body, [source, out], shared_bytes=512)
    assert np.array_equal(out, np.where(np.arange(128) < 64, source, 0xFFFFFFFF))


def test_bulk_copies_in_and_out():
    body = (
        BARRIER
        + """
  mov.b32 %r1, smem;
  @%q7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 512;
  @%q7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p0], 512, [%r20];
"""
        + WAIT.format(phase=0)
        + """
  shl.b32 %r2, %t, 3;
  add.s32 %r3, %r1, %r2;
  ld.shared.v2.f32 {%r4, %r5}, [%r3];
  add.f32 %r4, %r4, %r4;
  st.shared.f32 [%r3], %r4;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%q7 bra $end;
  cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r1], 256;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%p1+256], [%r1+256], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
$end:
"""
    )
    source, out = np.arange(128, dtype=np.float32), np.ones(128, np.float32)
    report = launch(body, [source, out], shared_bytes=512, races=True, uninitialised=True)
    doubled = np.where(np.arange(128) % 2 == 0, source * 2, source)
    assert np.array_equal(out, doubled + np.where(np.arange(128) < 64, 0, 1))
    assert report.is_clean, report
    assemble(kernel(body, 2, shared=SHARED))


def tensor_load(size, rank, at):
    kind = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    body = f"""
  mov.b32 %r1, smem;
  @!%q7 bra $loaded;
  mbarrier.arrive.expect_tx.shared::cta.b64 %l0, [%r20], {size};
  {kind} [%r1], [%p0, {{{at}}}], [%r20];
$loaded:
"""
    return BARRIER + body + WAIT.format(phase=0) + BACK.format(size=size)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["f4", "u1", "bfloat16"])
def test_tensor_copies_swizzle(swizzle, dtype):
    dtype = np.dtype(dtype)
    columns = (swizzle or 32) // dtype.itemsize
    array = np.random.default_rng(0).integers(0, 99, (40, 4 * columns)).astype(dtype)
    box = TensorMap(array, (16, columns), swizzle)
    size = 16 * columns * dtype.itemsize
    body = tensor_load(size, 2, f"{columns}, 8")
    out = np.zeros(size // 4, np.uint32)
    launch(body, [box, out], map_position=0, shared_bytes=size, races=True)
    rows = np.ascontiguousarray(array[8:24, columns : 2 * columns]).view(np.uint8)
    width = columns * dtype.itemsize
    row, byte = np.divmod(np.arange(size), width)
    chunk = byte // 16 ^ (row * width // 128) % (swizzle // 16 or 1)
    expected = np.zeros(size, np.uint8)
    expected[row * width + chunk * 16 + byte % 16] = rows.reshape(-1)
    assert np.array_equal(out.view(np.uint8), expected)


@pytest.mark.parametrize(("fill_nan", "outside"), [(False, 0.0), (True, np.nan)])
def test_a_box_may_reach_out_of_the_tensor(fill_nan, outside):
    array = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
    body = tensor_load(256, 2, "-4, 4")
    out = np.ones((8, 8), np.float32)
    launch(
        body, [TensorMap(array, (8, 8), fill_nan=fill_nan), out], map_position=0, shared_bytes=256
    )
    expected = np.full((8, 8), outside, np.float32)
    expected[:2, 4:] = array[4:6, :4]
    assert np.array_equal(out, expected, equal_nan=True)


@pytest.mark.parametrize("rank", [1, 3, 4, 5])
def test_tensors_of_all_ranks(rank):
    shape, box = (3, 4, 2, 5, 16)[-rank:], (2, 2, 1, 3, 8)[-rank:]
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    size = int(np.prod(box)) * 4
    body = tensor_load(size, rank, ", ".join("4" + "1" * (rank - 1)))
    out = np.zeros(box, np.int32)
    launch(body, [TensorMap(array, box), out], map_position=0, shared_bytes=size)
    start = [1] * (rank - 1) + [4]
    window = array[tuple(slice(s, s + extent) for s, extent in zip(start, box, strict=True))]
    expected = np.zeros(box, np.int32)
    expected[tuple(slice(0, extent) for extent in window.shape)] = window
    assert np.array_equal(out, expected)


def tensor_store(at, operation=""):
    """Copy 256 bytes to shared memory, and from there to a tensor."""
    kind = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.bulk_group"
    kind = kind if operation else "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    return f"""
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 2;
  add.s32 %r3, %r1, %r2;
  cvt.u64.u32 %l0, %r2;
  add.s64 %l1, %p0, %l0;
  ld.global.b32 %r4, [%l1];
  st.shared.b32 [%r3], %r4;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.b32 %q0, %t, 0;
  @%q0 bra $end;
  {kind} [%p1, {{{at}}}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
$end:
"""


@pytest.mark.parametrize("operation", ["", "add", "max"])
def test_tensor_stores(operation):
    dtype = np.int32 if operation == "max" else np.float32
    body = tensor_store("4, 6", operation)
    source = np.random.default_rng(0).integers(-9, 9, (8, 8)).astype(dtype)
    out = np.random.default_rng(1).integers(-9, 9, (12, 16)).astype(dtype)
    expected = out.copy()
    combine = {"": lambda old, new: new, "add": np.add, "max": np.maximum}[operation]
    expected[6:12, 4:12] = combine(out[6:12, 4:12], source[:6])
    box = TensorMap(out, (8, 8))
    report = launch(body, [source, box], map_position=1, shared_bytes=256, races=True)
    assert np.array_equal(out, expected)
    assert report.is_clean, report
    assemble(with_map(kernel(body, 2), 1))


def test_a_ring_of_two_buffers():
    """A producer warp and a consumer warp, full and empty barriers, eight tiles."""
    body = """
  mov.b32 %r20, barrier;
  setp.ne.b32 %q0, %t, 0;
  @%q0 bra $ready;
  mbarrier.init.shared::cta.b64 [%r20], 1;
  mbarrier.init.shared::cta.b64 [%r20+8], 1;
  mbarrier.init.shared::cta.b64 [%r20+16], 32;
  mbarrier.init.shared::cta.b64 [%r20+24], 32;
  fence.mbarrier_init.release.cluster;
$ready:
  bar.sync 0;
  mov.b32 %r1, smem;
  mov.b32 %r2, 0;
  mov.b32 %r10, 0;
  setp.lt.u32 %q1, %t, 32;
$loop:
  and.b32 %r3, %r2, 1;
  shl.b32 %r4, %r3, 3;
  add.s32 %r4, %r4, %r20;
  shl.b32 %r5, %r3, 7;
  add.s32 %r5, %r5, %r1;
  shr.u32 %r6, %r2, 1;
  and.b32 %r6, %r6, 1;
  @%q1 bra $produce;
$full: mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r4], %r6;
  @!%q2 bra $full;
  and.b32 %r7, %t, 31;
  shl.b32 %r7, %r7, 2;
  add.s32 %r7, %r7, %r5;
  ld.shared.b32 %r8, [%r7];
  add.s32 %r10, %r10, %r8;
  mbarrier.arrive.shared::cta.b64 _, [%r4+16];
  bra $next;
$produce:
  xor.b32 %r6, %r6, 1;
$empty: mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r4+16], %r6;
  @!%q2 bra $empty;
  elect.sync %r9|%q3, -1;
  shl.b32 %r9, %r2, 5;
  @%q3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;
  @%q3 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%p0, {%r9}], [%r4];
$next:
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %q4, %r2, 8;
  @%q4 bra $loop;
  @%q1 exit;
  and.b32 %r7, %t, 31;
  mul.wide.u32 %l0, %r7, 4;
  add.s64 %l1, %p1, %l0;
  st.global.b32 [%l1], %r10;
"""
    source, out = np.arange(256, dtype=np.int32), np.zeros(32, np.int32)
    text = with_map(kernel(body, 2, shared=".shared .align 8 .b8 barrier[32];"), 0)
    arguments = [TensorMap(source, (32,)), out]
    report = Emulator(text).launch("k", (1,), (64,), arguments, shared_bytes=1280, races=True)
    assert np.array_equal(out, source.reshape(8, 32).sum(0))
    assert report.is_clean, report
    assemble(text)


def test_an_arrival_for_small_copies():
    body = (
        BARRIER.replace(", 1;", ", 64;")
        + """
  mov.b32 %r1, smem;
  shl.b32 %r2, %t, 2;
  add.s32 %r1, %r1, %r2;
  cvt.u64.u32 %l1, %r2;
  add.s64 %l2, %p0, %l1;
  cp.async.ca.shared.global [%r1], [%l2], 4;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r20];
"""
        + WAIT.format(phase=0)
        + """
  xor.b32 %r3, %r1, 128;
  ld.shared.b32 %r4, [%r3];
  add.s64 %l3, %p1, %l1;
  st.global.b32 [%l3], %r4;
"""
    )
    source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    report = launch(body, [source, out], shared_bytes=256, races=True)
    assert np.array_equal(out, np.roll(source, 32))
    assert report.is_clean, report


def test_maps_made_on_the_device():
    body = (
        BARRIER
        + """
  mov.b32 %r1, smem;
  setp.ge.u32 %q0, %t, 32;
  @%q0 bra $made;
  shl.b32 %r2, %t, 2;
  add.s32 %r3, %r1, %r2;
  st.shared.b32 [%r3], 0;
  bar.warp.sync -1;
  @!%q7 bra $filled;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %p0;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 0, 8;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 1, 8;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 0, 16;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 1, 12;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 0, 64;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 0, 1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 1, 1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], 7;
  tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r1], 0;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r1], 0;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r1], 0;
$filled:
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%p2], [%r1], 128;
$made:
  bar.sync 0;
  fence.proxy.tensormap::generic.acquire.gpu [%p2], 128;
  @!%q7 bra $loaded;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p2, {4, 2}], [%r20];
$loaded:
"""
        + WAIT.format(phase=0)
        + BACK.format(size=256)
    )
    source = np.arange(12 * 16, dtype=np.float32).reshape(12, 16)
    out, scratch = np.zeros((8, 8), np.float32), np.zeros(16, np.uint64)
    launch(body, [source, out, scratch], shared_bytes=256)
    assert np.array_equal(out, source[2:10, 4:12])
    assemble(kernel(body, 3, shared=SHARED))


def test_a_box_must_begin_at_16_bytes():
    array = np.zeros((8, 8), np.float32)
    with pytest.raises(EmulatorError, match="innermost coordinate 2 is at 8 bytes"):
        launch(tensor_load(256, 2, "2, 0"), [TensorMap(array, (8, 8)), array], 64, 0, 256)


@pytest.mark.parametrize("at", ["-4, 0", "0, -1"])
@pytest.mark.parametrize("operation", ["", "add"])
def test_no_store_begins_below_0(at, operation):
    arrays = [np.zeros((8, 8), np.float32) for _ in range(2)]
    with pytest.raises(EmulatorError, match="below 0, which the hardware takes for an illegal"):
        launch(
            tensor_store(at, operation), [arrays[0], TensorMap(arrays[1], (8, 8))],
            map_position=1, shared_bytes=256,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "f8"])
@pytest.mark.parametrize("operation", ["", "add"])
@pytest.mark.parametrize("size", [48, 49, 50, 51])
def test_stores_write_whole_pieces(size, operation, dtype):
    """Along the innermost axis the end is at a multiple of 16 bytes, as the hardware has it."""
    dtype = np.dtype(dtype)
    if operation and dtype.itemsize not in {2, 4}:
        pytest.skip("there is no such reduction")
    columns = 32 // dtype.itemsize
    source = np.ones((8, columns), dtype)
    whole = np.zeros((12, 64), dtype)
    first = size * dtype.itemsize // 16 * 16 // dtype.itemsize
    box = TensorMap(whole[:, :size], (8, columns))
    launch(tensor_store(f"{first}, 2", operation), [source, box], map_position=1, shared_bytes=256)
    end = -(-size * dtype.itemsize // 16) * 16 // dtype.itemsize
    assert whole[2:10, first:end].all()
    assert whole.sum(dtype=int) == 8 * (end - first)


@pytest.mark.parametrize("operation", ["", "add"])
def test_a_whole_piece_may_lie_out_of_memory(operation):
    source, rows = np.ones((16, 8), np.float16), np.ones((16, 12), np.float16)
    view = np.lib.stride_tricks.as_strided(rows.reshape(-1)[:60], (4, 12), (32, 2))
    with pytest.raises(EmulatorError, match="2 bytes"):
        launch(
            tensor_store("8, 0", operation), [source, TensorMap(view, (16, 8))],
            map_position=1, shared_bytes=256,
        )  # fmt: skip


def test_a_reduction_that_the_hardware_lacks():
    body = """
  mov.b32 %r1, smem;
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.bulk_group [%p0, {%t, %t}], [%r1];
"""
    with pytest.raises(EmulatorError, match="cannot reduce elements of type f32 by max"):
        launch(
            body, [TensorMap(np.zeros((8, 8), "f4"), (8, 8))], 1, map_position=0, shared_bytes=256
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorMap(np.zeros((4, 6), "f4"), (4, 4)), "strides .* no multiples of 16"),
        (lambda: TensorMap(np.zeros((4, 8), "f4"), (4, 2)), "8 bytes: no multiple of 16"),
        (lambda: TensorMap(np.zeros((4, 64), "f4"), (4, 64), 128), "the swizzle allows 128"),
        (lambda: TensorMap(np.zeros((4, 64), "f4"), (300, 4)), "not within 1 to 256"),
        (lambda: TensorMap(np.zeros((4, 8), "c8"), (4, 4)), "no element type"),
        (lambda: TensorMap(np.zeros((4, 8), "f4").T, (4, 4)), "must be contiguous"),
        (lambda: TensorMap(np.zeros((4, 8), "f4"), (4, 4), 48), "0, 32, 64 or 128 bytes"),
        (lambda: TensorMap(np.zeros((1,) * 6, "f4"), (1,) * 6), "rank 6"),
    ],
)
def test_wrong_maps(make, message):
    with pytest.raises(EmulatorError, match=message):
        make().encode()


def test_an_mbarrier_that_never_completes_is_a_deadlock():
    body = (
        BARRIER
        + "@%q7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 64;"
        + WAIT.format(phase=0)
    )
    with pytest.raises(EmulatorError, match="waits for an mbarrier"):
        launch(body, [np.zeros(1)])


def test_maps_of_narrow_types():
    array = np.zeros((4, 32), ml_dtypes.float8_e4m3fn)
    assert len(TensorMap(array, (4, 32), 32).encode()) == 128
