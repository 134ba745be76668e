"""Loads, stores, atomics, and what is said about an access that is not allowed."""

import ml_dtypes
import numpy as np
import pytest
from ptx_snippets import kernel

from tilewright.emulator import Emulator, EmulatorError

ADDRESS = """
  mul.wide.u32 %l0, %t, {size};
  add.s64 %l1, %p0, %l0;
  mul.wide.u32 %l2, %t, {out};
  add.s64 %l3, %p1, %l2;
"""


def launch(text, arguments, threads=64, grid=1, **options):
    return Emulator(text).launch("k", (grid,), (threads,), arguments, **options)


@pytest.mark.parametrize(
    ("type", "kind", "register", "wide"),
    [
        ("u8", "u1", "%r0", "u4"),
        ("s8", "i1", "%r0", "i4"),
        ("s16", "i2", "%r0", "i4"),
        ("s32", "i4", "%l4", "i8"),
        ("b64", "u8", "%l4", "u8"),
    ],
)
def test_loads_widen(type, kind, register, wide):
    source = np.random.default_rng(0).integers(-100, 100, 64).astype(kind)
    out = np.zeros(64, wide)
    size, bits = np.dtype(kind).itemsize, out.itemsize * 8
    body = ADDRESS.format(size=size, out=out.itemsize)
    launch(
        kernel(f"{body} ld.global.{type} {register}, [%l1]; st.global.b{bits} [%l3], {register};"),
        [source, out],
    )
    assert np.array_equal(out, source.astype(wide))


@pytest.mark.parametrize("hints", ["", ".nc", ".L1::no_allocate", ".volatile", ".acquire.gpu"])
def test_vectors_and_hints(hints):
    space = f".global{hints}" if hints not in {".volatile", ".acquire.gpu"} else f"{hints}.global"
    source = np.random.default_rng(0).integers(0, 1 << 32, 256, np.uint64).astype(np.uint32)
    out = np.zeros_like(source)
    body = ADDRESS.format(size=16, out=16)
    body += (
        f"ld{space}.v4.b32 {{%r0, %r1, %r2, %r3}}, [%l1]; st.global.v2.b32 [%l3+8], {{%r0, %r1}};"
    )
    launch(kernel(body + "st.global.v2.b32 [%l3], {%r2, %r3};"), [source, out])
    assert np.array_equal(out.reshape(-1, 4), source.reshape(-1, 4)[:, [2, 3, 0, 1]])


def test_generic_addresses_lead_to_every_space():
    body = (
        ADDRESS.format(size=4, out=4)
        + """
  .local .align 4 .b8 mine[4];
  .shared .align 4 .b8 ours[256];
  mov.b64 %l4, mine;
  cvta.local.u64 %l4, %l4;
  mov.b32 %r0, ours;
  shl.b32 %r1, %t, 2;
  add.s32 %r0, %r0, %r1;
  cvt.u64.u32 %l5, %r0;
  cvta.shared.u64 %l5, %l5;
  rem.u32 %r2, %t, 3;
  setp.eq.u32 %q0, %r2, 0;
  setp.eq.u32 %q1, %r2, 1;
  selp.b64 %l6, %l4, %l5, %q0;
  selp.b64 %l6, %l3, %l6, %q1;
  ld.b32 %r3, [%l1];
  st.b32 [%l6], %r3;
  ld.b32 %r4, [%l6];
  isspacep.shared %q2, %l6;
  selp.u32 %r5, 1000, 0, %q2;
  add.s32 %r4, %r4, %r5;
  st.global.b32 [%l3], %r4;
"""
    )
    source = np.arange(64, dtype=np.uint32)
    out = np.zeros_like(source)
    launch(kernel(body), [source, out])
    assert np.array_equal(out, source + np.where(source % 3 == 2, 1000, 0))


def test_variables_with_initial_values():
    text = kernel(
        """
  mov.u64 %l0, table;
  mul.wide.u32 %l1, %t, 4;
  add.s64 %l0, %l0, %l1;
  ld.const.f32 %r0, [%l0];
  mov.u64 %l2, pointer;
  ld.global.u64 %l3, [%l2];
  ld.global.u8 %r1, [%l3+1];
  cvt.rn.f32.u32 %r1, %r1;
  add.f32 %r0, %r0, %r1;
  add.s64 %l4, %p0, %l1;
  st.global.f32 [%l4], %r0;
""",
        1,
    )
    declared = """.const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};
.global .align 1 .b8 text[3] = {65, 66, 0};
.global .align 8 .u64 pointer = generic(text);
.visible .entry"""
    out = np.zeros(4, np.float32)
    launch(text.replace(".visible .entry", declared), [out], 4)
    assert np.array_equal(out, np.float32([1, 2, 3, 4]) + 66)


# -- errors ---------------------------------------------------------------------------------------


def test_an_access_out_of_bounds_names_place_and_buffer():
    body = ".loc 1 42 7\n" + ADDRESS.format(size=4, out=4) + "ld.global.b32 %r0, [%l1];"
    text = kernel(body).replace(".visible", '.file 1 "softmax.py"\n.visible')
    source = np.zeros(40, np.float32)
    with pytest.raises(EmulatorError) as caught:
        launch(text, [source, np.zeros(64, np.float32)], names=["x_ptr", "y_ptr"])
    message = str(caught.value)
    assert "read of 4 bytes at byte 160 of `x_ptr`, which has 160 bytes" in message
    assert "thread (40, 0, 0) of block (0, 0, 0)" in message
    assert "softmax.py:42" in message
    assert "ld.global.b32 %r0, [%l1]" in message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.b32 %r0, [%p0+2];", "misaligned read of 4 bytes"),
        ("st.global.v4.b32 [%p0+8], {%t, %t, %t, %t};", "misaligned write of 16 bytes"),
        ("st.global.b32 [%p1], %t;", "read-only `k_1`"),
        ("ld.global.b32 %r0, [%p1+4];", "at byte 4 of `k_1`, which has 4 bytes"),
        ("st.shared.b32 [smem+64], %t;", "outside|out-of-bounds write of 4 bytes at byte 1088"),
        ("trap;", "`trap` was reached"),
        ("foo.b32 %r0, %r1;", "does not know the instruction `foo`"),
        ("add.s32 %r0, %r99, 1;", "cannot read the operand `%r99`"),
        ("add.s32 %r0, %l0;", "PTX line"),
        ("bra $nowhere;", "the label is not there"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16 {%r0}, %l0, %l1;", "not modelled"),
        ("call.uni sinf, (%r0);", "calls of `sinf` are not modelled"),
    ],
)
def test_messages(body, message):
    read_only = np.zeros(1, np.uint32)
    read_only.flags.writeable = False
    with pytest.raises(EmulatorError, match=message) as caught:
        launch(kernel(body), [np.zeros(64, np.uint32), read_only], shared_bytes=64)
    assert "PTX line" in str(caught.value)


def test_wrong_launches():
    emulator = Emulator(kernel("", 1).replace("{\n", ".reqntid 128\n{\n", 1))
    array = np.zeros(4)
    with pytest.raises(EmulatorError, match="requires blocks of"):
        emulator.launch("k", (1,), (64,), [array])
    with pytest.raises(EmulatorError, match="has 1 parameters, not 2"):
        emulator.launch("k", (1,), (128,), [array, array])
    with pytest.raises(EmulatorError, match="there is no kernel `j`; there are: k"):
        emulator.launch("j", (1,), (128,), [array])
    with pytest.raises(EmulatorError, match="1 to 1024 threads"):
        emulator.launch("k", (1,), (2048,), [array])


# -- arguments ------------------------------------------------------------------------------------


def test_scalars_by_their_types():
    text = kernel(
        """
  ld.param.f32 %r0, [x];
  ld.param.b16 %h0, [y];
  ld.param.s8 %r1, [z];
  ld.param.u64 %l0, [w];
  st.global.b32 [%p0], %r0;
  st.global.b16 [%p0+4], %h0;
  st.global.b32 [%p0+8], %r1;
  st.global.b64 [%p0+16], %l0;
""",
        1,
    ).replace(
        "(.param .u64 k_0)",
        "(.param .u64 k_0, .param .f32 x, .param .b16 y, .param .s8 z, .param .u64 w)",
    )
    out = np.zeros(24, np.uint8)
    launch(text, [out, 1.5, ml_dtypes.bfloat16(3), -7, (1 << 64) - 5], 1)
    assert out[:4].view("f4")[0] == 1.5
    assert out[4:6].view(ml_dtypes.bfloat16)[0] == 3
    assert out[8:12].view("i4")[0] == -7
    assert out[16:24].view("i8")[0] == -5


def test_views_and_pointers_in_memory():
    base = np.arange(64, dtype=np.float32)
    view = base[10:20]
    table = np.array([view.ctypes.data], np.uint64)
    out = np.zeros(8, np.float32)
    body = """
  ld.global.u64 %l0, [%p0];
  mul.wide.u32 %l1, %t, 4;
  add.s64 %l0, %l0, %l1;
  ld.global.f32 %r0, [%l0];
  add.s64 %l2, %p1, %l1;
  st.global.f32 [%l2], %r0;
"""
    launch(kernel(body), [table, out], 8, buffers=[view])
    assert np.array_equal(out, base[10:18])
    with pytest.raises(EmulatorError, match="out-of-bounds"):
        launch(kernel(body), [table, np.zeros(16, np.float32)], 16, buffers=[view])


# -- atomics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind", "expected"),
    [
        ("add.u32", "u4", 5 + 64 * 63 // 2),
        ("add.f32", "f4", 5.0 + 64 * 63 / 2),
        ("add.f64", "f8", 5.0 + 64 * 63 / 2),
        ("min.s32", "i4", 0),
        ("max.u64", "u8", 63),
        ("or.b32", "u4", 63),
        ("xor.b32", "u4", 5),
        ("and.b32", "u4", 0),
        ("exch.b32", "u4", 63),
        ("add.noftz.f16", "f2", 5 + 64 * 63 // 2),
    ],
)
def test_atomics_on_one_place(operation, kind, expected):
    size = np.dtype(kind).itemsize
    value = {2: "cvt.rn.f16.u32 %h0, %t;", 4: "mov.b32 %r0, %t;", 8: "cvt.u64.u32 %l4, %t;"}[size]
    if kind in {"f4", "f8"}:
        value = f"cvt.rn.f{size * 8}.u32 {'%r0' if size == 4 else '%l4'}, %t;"
    register = {2: "%h0", 4: "%r0", 8: "%l4"}[size]
    old = {2: "%h1", 4: "%r1", 8: "%l5"}[size]
    place = np.array([5], kind)
    seen = np.zeros(64, kind)
    body = ADDRESS.format(size=size, out=size)
    body += f"{value} atom.global.{operation} {old}, [%p0], {register};"
    body += f"st.global.b{size * 8} [%l3], {old};"
    launch(kernel(body), [place, seen])
    assert place[0] == expected
    assert seen[0] == 5
    if operation == "add.u32":
        assert np.array_equal(seen, 5 + np.r_[0, np.cumsum(np.arange(63))])


def test_reductions_and_swaps():
    body = """
  mul.lo.u32 %r0, %t, 0x00010001;
  rem.u32 %r1, %t, 4;
  mul.wide.u32 %l0, %r1, 4;
  add.s64 %l1, %p0, %l0;
  red.relaxed.gpu.global.add.u32 [%l1], 1;
  red.global.inc.u32 [%p0+16], 9;
  atom.global.cas.b32 %r2, [%p0+20], 0, 77;
  setp.eq.u32 %q0, %r2, 0;
  @%q0 st.global.b32 [%p0+24], %t;
  mov.b32 %r5, 0x3F803F80;
  red.global.add.noftz.bf16x2 [%p0+28], %r5;
  mov.b32 %r6, 0f3F800000;
  mov.b32 %r7, 0f40000000;
  red.global.v2.f32.add [%p1], {%r6, %r7};
"""
    out, pair = np.zeros(8, np.uint32), np.zeros(2, np.float32)
    launch(kernel(body), [out, pair])
    assert out[:4].tolist() == [16] * 4
    assert out[4:7].tolist() == [64 % 10, 77, 0]
    assert out[7:].view(ml_dtypes.bfloat16).tolist() == [64, 64]
    assert pair.tolist() == [64, 128]


def test_sums_in_global_memory_have_no_subnormal_numbers():
    body = """
  .shared .align 4 .b8 total[4];
  mov.b32 %r0, total;
  mov.b32 %r5, 0x00000009;
  st.shared.b32 [%r0], %r5;
  red.shared.add.f32 [%r0], 0f00000000;
  ld.shared.b32 %r1, [%r0];
  st.global.b32 [%p0], %r1;
  st.global.b32 [%p0+4], %r5;
  red.global.add.f32 [%p0+4], 0f00000000;
  mov.b32 %r6, 0x80000001;
  st.global.b32 [%p0+8], %r6;
  atom.global.add.f32 %r2, [%p0+8], 0f80000000;
  st.global.b32 [%p0+12], %r2;
"""
    out = np.zeros(4, np.uint32)
    launch(kernel(body, 1), [out], threads=1)
    assert out.tolist() == [9, 0, 0x80000000, 0x80000001]


def test_atomics_in_shared_memory_are_of_one_block():
    body = """
  .shared .align 4 .b8 counter[4];
  mov.b32 %r0, counter;
  st.volatile.shared.b32 [%r0], 0;
  bar.sync 0;
  cvt.u64.u32 %l0, %r0;
  cvta.shared.u64 %l0, %l0;
  atom.shared.add.u32 %r1, [%r0], 1;
  atom.add.u32 %r1, [%l0], 1;
  bar.sync 0;
  ld.shared.b32 %r1, [%r0];
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %l1, %r2, 4;
  add.s64 %l1, %p0, %l1;
  st.global.b32 [%l1], %r1;
"""
    out = np.zeros(3, np.uint32)
    launch(kernel(body, 1), [out], grid=3)
    assert out.tolist() == [128] * 3


# -- output ---------------------------------------------------------------------------------------


def test_profile_counts_sectors_and_conflicts():
    body = """
  .loc 1 5 1
  mul.wide.u32 %l0, %t, 4;
  add.s64 %l1, %p0, %l0;
  ld.global.b32 %r0, [%l1];
  .loc 1 6 1
  mul.wide.u32 %l2, %t, 128;
  add.s64 %l3, %p1, %l2;
  ld.global.b32 %r0, [%l3];
  .loc 1 7 1
  shl.b32 %r1, %t, 7;
  mov.b32 %r2, smem;
  add.s32 %r1, %r1, %r2;
  st.shared.b32 [%r1], %r0;
  .loc 1 8 1
  shl.b32 %r1, %t, 4;
  add.s32 %r1, %r1, %r2;
  ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];
"""
    text = kernel(body).replace(".visible", '.file 1 "k.py"\n.visible')
    raw = np.zeros(8192 + 32, np.uint8)
    raw = raw[-raw.ctypes.data % 32 :][:8192]
    report = launch(text, [raw.view("u4")[:64], raw.view("u4")], profile=True, shared_bytes=8192)
    lines = {line.place: line for line in report.lines}
    assert (lines["k.py:5"].sectors, lines["k.py:5"].ideal_sectors) == (8, 8)
    assert (lines["k.py:6"].sectors, lines["k.py:6"].ideal_sectors) == (64, 8)
    assert (lines["k.py:7"].wavefronts, lines["k.py:7"].bank_conflicts) == (64, 62)
    assert (lines["k.py:8"].wavefronts, lines["k.py:8"].bank_conflicts) == (8, 0)
    assert "k.py:7: 2 shared accesses, 64 wavefronts (62 by bank conflicts)" in str(report)
