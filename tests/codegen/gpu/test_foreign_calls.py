"""Functions of bitcode libraries: of CUDA's libdevice, where it is installed, and of a user."""

import re

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu.harness import kernel_of, numbers
from tilewright.codegen.gpu.options import ForeignLibrary
from tilewright.codegen.nvidia.toolkit import find_libdevice
from tilewright.errors import CompileError, Unsupported

LIBDEVICE = find_libdevice()
needs_libdevice = pytest.mark.skipif(LIBDEVICE is None, reason="there is no libdevice")

# A function with a helper, one of two types, and one that nobody calls.
SOURCE = """
define internal float @helper(float %x) {
  %y = fmul float %x, 3.0
  ret float %y
}
define float @mine(float %x, i32 %n) {
  %y = call float @helper(float %x)
  %m = sitofp i32 %n to float
  %z = fadd float %y, %m
  ret float %z
}
define i32 @unused(i32 %x) {
  ret i32 %x
}
"""


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "mine.bc"
    path.write_bytes(llvm.parse_assembly(SOURCE, llvm.create_context()).as_bitcode())
    return str(path)


@tl.core.extern
def mine(x, n, _semantic=None):
    names = {(tl.float32, tl.int32): ("mine", tl.float32)}
    return tl.core.extern_elementwise("mine", "", [x, n], names, is_pure=True, _semantic=_semantic)


@tw.jit
def mine_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, mine(tl.load(x_ptr + at), n) + mine(1.0, n))


@tl.core.extern
def tanh(x, _semantic=None):
    names = {
        (tl.float32,): ("__nv_tanhf", tl.float32),
        (tl.float64,): ("__nv_tanh", tl.float64),
    }
    return tl.core.extern_elementwise("libdevice", "", [x], names, True, _semantic=_semantic)


@tw.jit
def tanh_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tanh(tl.load(x_ptr + at)))


@tl.core.extern
def wrong(x, symbol, result, _semantic=None):
    names = {(tl.float32, tl.int32): (symbol, result)}
    return tl.core.extern_elementwise("mine", "", [x, 1], names, True, _semantic=_semantic)


@tw.jit
def wrong_kernel(x_ptr, SYMBOL: tl.constexpr, RESULT: tl.constexpr):
    tl.store(x_ptr, wrong(tl.load(x_ptr), SYMBOL, RESULT))


def test_a_function_of_the_user(library):
    x, out = numbers(64), np.zeros(64, np.float32)
    with tw.emulate("sm_80"):
        kernel = mine_kernel[(1,)](x, out, 5, N=64, extern_libs={"mine": library})
    np.testing.assert_allclose(out, 3 * x + 5 + 8, rtol=1e-6)
    assert "unused" not in kernel.asm["ptx"]
    assert not re.search(r"\bcall\b", kernel.asm["ptx"].split(".file")[0])


def test_another_file_is_other_code(library, tmp_path):
    other = tmp_path / "other.bc"
    other.write_bytes(
        llvm.parse_assembly(SOURCE.replace("3.0", "7.0"), llvm.create_context()).as_bitcode()
    )
    x, out = numbers(64), np.zeros(64, np.float32)
    with tw.emulate("sm_80"):
        mine_kernel[(1,)](x, out, 5, N=64, extern_libs={"mine": library})
        mine_kernel[(1,)](x, out, 5, N=64, extern_libs={"mine": str(other)})
    np.testing.assert_allclose(out, 7 * x + 5 + 12, rtol=1e-6)


@needs_libdevice
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("named", [False, True])
def test_libdevice(dtype, named, monkeypatch):
    x, out = numbers(64, dtype), np.zeros(64, dtype)
    if named:
        monkeypatch.setenv("TRITON_LIBDEVICE_PATH", LIBDEVICE)
    with tw.emulate("sm_90a"):
        tanh_kernel[(1,)](x, out, N=64)
    np.testing.assert_allclose(out, np.tanh(x), rtol=1e-6 if dtype == np.float32 else 1e-14)


@needs_libdevice
@pytest.mark.parametrize("flushes", [False, True])
def test_subnormal_numbers_are_flushed_where_asked_for(flushes):
    x = numbers(64)
    ptx = kernel_of(tanh_kernel, [x, x], N=64, enable_reflect_ftz=flushes).ptx
    assert bool(re.search(r"abs\.ftz\.f32", ptx)) == flushes
    assert "__nvvm_reflect" not in ptx


ERRORS = [
    ("mine", tl.float32, (), "`mine` is in the library `mine`, of which no file is known"),
    ("min", tl.float32, None, "there is no function `min`"),
    ("mine", tl.float64, None, r"is a function float \(float, i32\), not double \(float, i32\)"),
    ("mine", tl.float32, "nowhere.bc", "cannot read the library `mine` of nowhere.bc"),
]


@pytest.mark.parametrize(("symbol", "result", "path", "message"), ERRORS)
def test_errors(symbol, result, path, message, library):
    libraries = () if path == () else (ForeignLibrary.of("mine", path or library),)
    x = np.zeros(1, np.float32)
    with pytest.raises(Unsupported, match=message) as caught:
        kernel_of(wrong_kernel, [x], SYMBOL=symbol, RESULT=result, extern_libs=libraries)
    assert "wrong(tl.load(x_ptr)" in str(caught.value)


def test_what_is_no_library(tmp_path):
    path = tmp_path / "text.bc"
    path.write_text("text")
    x = np.zeros(1, np.float32)
    libraries = (ForeignLibrary.of("mine", str(path)),)
    with pytest.raises(Unsupported, match="cannot read the library"):
        kernel_of(wrong_kernel, [x], SYMBOL="mine", RESULT=tl.float32, extern_libs=libraries)


def test_types_without_a_function():
    x = np.zeros(64, np.float16)
    with pytest.raises(CompileError, match=r"no function for \(fp16\)") as caught:
        kernel_of(tanh_kernel, [x, x], N=64)
    assert "(fp32), (fp64)" in str(caught.value)


def test_on_the_cpu():
    x = np.zeros(64, np.float32)
    with pytest.raises(Unsupported, match="of a library for a GPU, on the CPU"):
        tanh_kernel[(1,)](x, x, N=64)
    with pytest.raises(Unsupported, match="not in the interpreter"):
        tanh_kernel.debug[(1,)](x, x, N=64)
