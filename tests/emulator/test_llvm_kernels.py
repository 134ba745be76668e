"""Whole kernels from LLVM: results, no findings; and findings where something is taken out."""

import re

import ml_dtypes
import numpy as np
import pytest
from ptx_llvm_kernels import INTRINSICS, SHARED_BYTES, SOFTMAX, K, M, N, compile_to_ptx, matmul
from ptx_snippets import assemble

from tilewright.emulator import Emulator, EmulatorError, TensorMap

BF16 = ml_dtypes.bfloat16


def test_softmax():
    x = np.random.default_rng(0).normal(size=(20, 100)).astype(np.float32)
    y = np.zeros_like(x)
    ptx = compile_to_ptx(SOFTMAX)
    report = Emulator(ptx).launch(
        "softmax", (20,), (128,), [x, y, 100], races=True, uninitialised=True
    )
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=3e-6)
    assert report.is_clean, report
    z = np.zeros_like(x)
    Emulator(ptx).launch("softmax", (20,), (128,), [x, z, 100])
    assert np.array_equal(y, z), "blocks side by side give what they give one by one"


def test_softmax_without_its_barriers():
    ptx = re.sub(r"\n\s*bar\.sync\s+0;", "", compile_to_ptx(SOFTMAX))
    x = np.ones((1, 100), np.float32)
    report = Emulator(ptx).launch("softmax", (1,), (128,), [x, x.copy(), 100], races=True)
    assert any("no barrier between" in finding.message for finding in report.findings)


def run_matmul(ptx, m=2 * M, n=2 * N, k=6 * K, **options):
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (m, k)).astype(BF16)
    b = random.integers(-4, 5, (n, k)).astype(BF16)
    c = np.zeros((m, n), np.float32)
    maps = [TensorMap(a, (M, K), 64), TensorMap(b, (N, K), 64), TensorMap(c, (M, N))]
    report = Emulator(ptx).launch(
        "matmul", (m // M, n // N), (256,), [*maps, k], shared_bytes=SHARED_BYTES, **options
    )
    return report, c, a.astype(np.float32) @ b.astype(np.float32).T


def test_matmul():
    report, c, expected = run_matmul(compile_to_ptx(matmul()))
    assert np.array_equal(c, expected)
    assert report.is_clean


def test_matmul_is_clean():
    report, c, expected = run_matmul(
        compile_to_ptx(matmul()), M, N, 5 * K, races=True, uninitialised=True, profile=True
    )
    assert np.array_equal(c, expected)
    assert report.is_clean, report
    assert report.bank_conflicts > 0, "the plain epilogue has conflicts"


MISTAKES = {
    "no proxy fence": (
        r"call void @llvm.nvvm.fence.proxy.async.shared_cta\(\)",
        "missing proxy fence",
    ),
    "no wait for the product": (
        r"call void @llvm.nvvm.wgmma.wait_group.sync.aligned\(i64 0\)",
        "belongs to a wgmma in flight",
    ),
    "no fence of the registers": (
        r"call void @llvm.nvvm.wgmma.fence.sync.aligned\(\)",
        "with no `wgmma.fence` before this wgmma uses it",
    ),
    "no wait for the tiles": (
        r"br i1 %jok, label %multiply, label %jwait",
        "is read, but nothing has written it",  # the consumers run first
    ),
    "no barrier of the consumers": (
        r"call void @llvm.nvvm.barrier.cta.sync.aligned.count\(i32 1, i32 128\)",
        "race",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_matmul_is_found(name):
    pattern, message = MISTAKES[name]
    instead = "br label %multiply" if pattern.startswith("br") else ""
    broken = re.sub(pattern, instead, matmul())
    assert broken != matmul()
    try:
        report, _, _ = run_matmul(
            compile_to_ptx(broken), M, N, 5 * K, races=True, uninitialised=True
        )
    except EmulatorError as error:  # it may also hang
        report = error
    assert message in str(report)


def test_an_assembler_accepts_the_kernels():
    assemble(compile_to_ptx(matmul()))
    assemble(compile_to_ptx(SOFTMAX))


PRINTING = (
    INTRINSICS
    + """
@format = internal addrspace(1) constant [22 x i8] c"%d: %5.2f %lld 100%%\\0A\\00", align 1
declare i32 @vprintf(ptr, ptr)
declare void @__assertfail(ptr, ptr, i32, ptr, i64)
define ptx_kernel void @k(i32 %limit) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = alloca { i32, double, i64 }
  store i32 %t, ptr %b
  %b1 = getelementptr i8, ptr %b, i32 8
  %d = sitofp i32 %t to double
  store double %d, ptr %b1
  %b2 = getelementptr i8, ptr %b, i32 16
  store i64 -5, ptr %b2
  %f = addrspacecast ptr addrspace(1) @format to ptr
  %c = icmp slt i32 %t, 2
  br i1 %c, label %print, label %check
print:
  %r = call i32 @vprintf(ptr %f, ptr %b)
  br label %check
check:
  %good = icmp slt i32 %t, %limit
  br i1 %good, label %end, label %bad
bad:
  call void @__assertfail(ptr %f, ptr %f, i32 12, ptr %f, i64 1)
  unreachable
end:
  ret void
}
"""
)


def test_printing_and_assertions():
    emulator, seen = Emulator(compile_to_ptx(PRINTING)), []
    report = emulator.launch("k", (1,), (32,), [32], output=seen.append)
    assert seen == ["0:  0.00 -5 100%\n", "1:  1.00 -5 100%\n"]
    assert report.output == "".join(seen)
    with pytest.raises(EmulatorError, match=r"device-side assert: %d: (?s:.*):12"):
        emulator.launch("k", (1,), (32,), [7])


WITH_LINES = """
define ptx_kernel void @k(ptr addrspace(1) %p) !dbg !4 {
  %far = getelementptr i8, ptr addrspace(1) %p, i64 4096, !dbg !6
  store i32 1, ptr addrspace(1) %far, !dbg !7
  ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: DebugDirectivesOnly)
!1 = !DIFile(filename: "norm.py", directory: "kernels")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 2, !"Dwarf Version", i32 4}
!4 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 3, type: !5, unit: !0, \
spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !8)
!6 = !DILocation(line: 4, column: 5, scope: !4)
!7 = !DILocation(line: 5, column: 9, scope: !4)
!8 = !{null}
"""


def test_source_lines_come_from_debug_information():
    ptx = compile_to_ptx(WITH_LINES)
    with pytest.raises(EmulatorError, match="write of 4 bytes at byte 4096 of `p`") as caught:
        Emulator(ptx).launch("k", (1,), (1,), [np.zeros(8)], names=["p"])
    assert "norm.py:5" in str(caught.value)


MIXED = (
    INTRINSICS
    + """
@table = internal addrspace(4) constant [4 x i32] [i32 3, i32 5, i32 7, i32 11]
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i32 @llvm.sadd.sat.i32(i32, i32)
define ptx_kernel void @k(ptr addrspace(1) %p, ptr byval({ i32, [4 x i32] }) align 4 %s, i8 %byte) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %g = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %t
  %v = load <4 x i32>, ptr addrspace(1) %g, align 16
  %x = extractelement <4 x i32> %v, i32 0
  %y = extractelement <4 x i32> %v, i32 1
  %index = and i32 %t, 3
  %place = getelementptr i32, ptr addrspace(4) @table, i32 %index
  %entry = load i32, ptr addrspace(4) %place
  %field = getelementptr { i32, [4 x i32] }, ptr %s, i32 0, i32 1, i32 %index
  %given = load i32, ptr %field
  %wide = zext i32 %x to i128
  %square = mul i128 %wide, %wide
  %third = mul i128 %square, %wide
  %high = lshr i128 %third, 64
  %top = trunc i128 %high to i32
  %quotient = udiv i32 %y, %entry
  %small = trunc i32 %y to i8
  %signed = sdiv i8 %small, %byte
  %back = sext i8 %signed to i32
  %o0 = insertelement <4 x i32> poison, i32 %top, i32 0
  %o1 = insertelement <4 x i32> %o0, i32 %quotient, i32 1
  %o2 = insertelement <4 x i32> %o1, i32 %back, i32 2
  %o3 = insertelement <4 x i32> %o2, i32 %given, i32 3
  store <4 x i32> %o3, ptr addrspace(1) %g, align 16
  ret void
}
"""
)


def test_integers_of_odd_widths_constants_and_structs():
    random = np.random.default_rng(0)
    values = random.integers(0, 1 << 32, (64, 4), np.uint64).astype(np.uint32)
    struct = np.array([9, 10, 20, 30, 40], np.int32)
    out = values.copy()
    Emulator(compile_to_ptx(MIXED)).launch("k", (1,), (64,), [out, struct.tobytes(), -3])
    rows = values.tolist()
    small = values[:, 1].astype(np.int8)
    assert out[:, 0].tolist() == [row[0] ** 3 >> 64 & 0xFFFFFFFF for row in rows]
    assert out[:, 1].tolist() == [row[1] // [3, 5, 7, 11][i % 4] for i, row in enumerate(rows)]
    assert out[:, 2].astype(np.int32).tolist() == [
        int(abs(int(s)) / 3) * (-1 if s > 0 else 1) for s in small
    ]
    assert out[:, 3].tolist() == [10, 20, 30, 40] * 16
